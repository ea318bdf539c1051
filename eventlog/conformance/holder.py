"""Holds the write lock of a log and exchanges the file under it: `python -m eventlog.conformance.holder LOG OTHER`.

It says `locked`, waits for a line, renames OTHER over LOG, says `exchanged`, and lets the lock go.
"""

import sys

import apsw

from eventlog import durable
from eventlog.conformance.processes import limit_life


def main(log: str, other: str) -> None:
    limit_life()
    connection = apsw.Connection(log)
    connection.execute("BEGIN IMMEDIATE").fetchall()
    print("locked", flush=True)
    sys.stdin.readline()
    durable.rename(other, log, "conformance")
    print("exchanged", flush=True)
    connection.execute("ROLLBACK").fetchall()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
