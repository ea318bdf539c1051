"""Trying whether a log really refuses what it must refuse: each forbidden UPDATE and DELETE is run on the copy and rolled back.

A trigger fires only for a row that is there, and may be bound to single columns; so every column of every protected table is set
to itself on one row. Nothing but a trigger (or constraint) can stop such a statement.
"""

import sqlite3
from collections.abc import Iterator

from .encoding import digest

KEYS = {"event": "stream, seq", "image_change": "stream, seq, idx", "blob": "hash", "meta": "key", "stream": "id"}
COLUMNS = {
    "event": "stream seq id epoch kind version payload prev_hash hash",
    "image_change": "stream seq idx path op kind mode content size target link xattrs uid gid acl mtime_ns",
    "blob": "hash codec size bytes",
    "meta": "key value",
}


def forbidden_statements() -> Iterator[tuple[str, str]]:
    """Every (table, statement) that a log has to refuse; each is aimed at one row of its table."""
    for table, keys in KEYS.items():
        one_row = f"WHERE ({keys}) IN (SELECT {keys} FROM {table} LIMIT 1)"
        yield table, f"DELETE FROM {table} {one_row}"
        for column in COLUMNS.get(table, "").split():
            yield table, f"UPDATE {table} SET {column} = {column} {one_row}"
    yield "stream", "UPDATE stream SET floor = floor - 1, head_seq = head_seq + 1"
    yield "stream", "UPDATE stream SET head_seq = head_seq + 2"
    yield "stream", "UPDATE stream SET head_seq = head_seq - 1"


REFUSING: set[tuple[str, ...]] = set()
"""Schemas, by the text of all they hold, of which a log refused everything: the same triggers on the same tables refuse again."""


def accepted_statements(connection: sqlite3.Connection) -> list[str]:
    """What a log does not refuse though it must, a sentence each. The connection is in autocommit mode; nothing is kept: a refused
    statement changed nothing, and any other is rolled back before the next is tried. A schema that refused all is not tried again."""
    schema = tuple(str(row[0]) for row in connection.execute("SELECT sql FROM sqlite_master ORDER BY type, name"))
    complaints = [] if schema in REFUSING else try_all(connection)
    if not complaints:
        REFUSING.add(schema)
    return complaints


def try_all(connection: sqlite3.Connection) -> list[str]:
    """The complaints about every forbidden statement."""
    complaints = []
    for table, statement in forbidden_statements():
        if not connection.in_transaction:
            connection.execute("BEGIN")
        complaint = try_statement(connection, table, statement)
        if complaint is not None:
            complaints.append(complaint)
            roll_back(connection)
    roll_back(connection)
    return complaints


def roll_back(connection: sqlite3.Connection) -> None:
    """End the transaction, if the statement itself has not."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def try_statement(connection: sqlite3.Connection, table: str, statement: str) -> str | None:
    """Run one forbidden statement; None when it was refused, else a sentence."""
    try:
        provide_row(connection, table)
    except sqlite3.Error as error:
        return f"cannot be tried: {statement}: {error}"
    try:
        count = connection.execute(statement).rowcount
    except sqlite3.IntegrityError:
        return None
    except sqlite3.Error as error:
        return f"cannot be tried: {statement}: {error}"
    return f"not refused: {statement}" if count else f"cannot be tried, no row: {statement}"


def provide_row(connection: sqlite3.Connection, table: str) -> None:
    """Give an empty blob table one valid row (inside the transaction that is rolled back)."""
    if table == "blob" and connection.execute("SELECT 1 FROM blob LIMIT 1").fetchone() is None:
        connection.execute("INSERT INTO blob (hash, codec, size, bytes) VALUES (?, 'raw', 0, x'')", (digest(b""),))
