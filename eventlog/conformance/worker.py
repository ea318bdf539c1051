"""A writer in a process of its own: `python -m eventlog.conformance.worker STORE DIRECTORY WHO COUNT`.

It says `ready`, waits for a line, then appends COUNT notes `WHO:NUMBER` at the floor it finds, and says `TEXT SEQ` after each append
that was acknowledged. An append that found the log busy is made again.
"""

import sys
from pathlib import Path

from eventlog.conformance.factory import find_factory
from eventlog.conformance.processes import limit_life
from eventlog.conformance.samples import STREAM, note
from eventlog.errors import BusyError
from eventlog.ports import RandomIds
from eventlog.records import Appended
from eventlog.store import WritingHandle


def main(name: str, directory: str, who: str, count: int) -> None:
    limit_life()
    handle = find_factory(name)(Path(directory)).open_writing(RandomIds())
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        text = f"{who}:{number}"
        print(f"{text} {_append(handle, text).seq}", flush=True)


def _append(handle: WritingHandle, text: str) -> Appended:
    while True:
        try:
            return handle.append(STREAM, handle.reader.floor(STREAM), [note(text)], (), "note")[0]
        except BusyError:
            continue  # nothing was written; the other one will let go


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
