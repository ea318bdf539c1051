"""A damaged log's rows in a scratch database with indices of its own: a damaged index hides rows, and a damaged page ends a scan.

Rows are copied inside SQLite, as they are stored, in the order of their row ids or keys; where a page fails they are asked for one by one
until the next page. Nothing is believed because it is here: whoever reads the copy proves each value by the chain.
"""

from collections.abc import Iterator

import apsw

from eventlog import connection
from eventlog.clustering import KEYS
from eventlog.errors import CorruptError
from eventlog.show import show_text

BATCH_ROWS = 64
GAP_ROWS = 4096
"""Row ids, or numbers at each place of a key, that are tried after the last that was read: what one damaged page of the tree can hide is
less."""

TABLES = {
    "meta": ("key", "value"),
    "stream": ("id", "parent", "forked_at", "floor", "head_seq", "head_hash", "origin_log", "origin_stream"),
    "event": ("stream", "seq", "id", "epoch", "kind", "version", "payload", "prev_hash", "hash"),
    "image_change": (
        "stream", "seq", "idx", "path", "op", "kind", "mode", "content", "size", "target", "link", "xattrs", "uid", "gid", "acl",
        "mtime_ns",
    ),
    "blob": ("hash", "codec", "size", "bytes"),
    "dropped": ("hash", "size", "reason", "at_ms"),
}  # fmt: skip
_INDICES = (
    "CREATE INDEX main.event_place ON event (stream, seq)",
    "CREATE INDEX main.change_place ON image_change (stream, seq, idx)",
    "CREATE INDEX main.blob_name ON blob (hash)",
    "CREATE INDEX main.dropped_name ON dropped (hash)",
)


def recover_rows(copy: str, scratch: str) -> None:
    """Bring every row that can be reached in the private copy of a log into a new database at `scratch`. Raises CorruptError."""
    handle = connection.create_scratch(scratch, copy)
    try:
        # No transaction around it all: once a statement has met a damaged page, SQLite writes nothing more in the transaction it was in.
        for table, columns in TABLES.items():
            handle.execute(f"CREATE TABLE main.{table} ({', '.join(columns)})").fetchall()
            _copy_table(handle, table, columns)
        for index in _INDICES:
            handle.execute(index).fetchall()
    except apsw.Error as error:
        raise CorruptError(f"{show_text(copy)}: its rows cannot be read ({error})") from error
    finally:
        handle.close()


def _copy_table(handle: apsw.Connection, table: str, columns: tuple[str, ...]) -> None:
    found = {str(name) for (name,) in handle.execute("SELECT name FROM pragma_table_info(?, 'damaged')", (table,))}
    present = [column for column in columns if column in found]
    if not present:
        return  # a log of format 1 has no `dropped`
    keys = KEYS.get(table)
    if keys is None or _has_row_ids(handle, table):
        _copy_by_row(handle, table, present)
    else:
        _copy_by_key(handle, table, present, keys)


def _has_row_ids(handle: apsw.Connection, table: str) -> bool:
    return handle.execute("SELECT wr FROM pragma_table_list WHERE schema = 'damaged' AND name = ?", (table,)).fetchall() != [(1,)]


def _copy_by_row(handle: apsw.Connection, table: str, columns: list[str]) -> None:
    names = ", ".join(("rowid", *columns))
    insert = f"INSERT INTO main.{table} ({names}) SELECT {names} FROM damaged.{table} NOT INDEXED WHERE rowid"
    row, failed = 0, 0
    while failed < GAP_ROWS:
        if _runs(handle, f"{insert} > ? ORDER BY rowid LIMIT {BATCH_ROWS}", (row,)):
            newest = handle.execute(f"SELECT max(rowid) FROM main.{table}").fetchall()[0][0]
            if not isinstance(newest, int) or newest <= row:
                return
            row, failed = newest, 0
        else:
            row += 1
            failed = 0 if _runs(handle, f"{insert} = ?", (row,)) and handle.changes() else failed + 1


Key = tuple[str | int, ...]
"""A stream, then numbers that are dense below what stands before them: (stream, seq, idx)."""


def _copy_by_key(handle: apsw.Connection, table: str, columns: list[str], keys: tuple[str, ...]) -> None:
    """A table WITHOUT ROWID. Where a page fails, the keys that may stand behind it are tried in order until one leads to a row."""
    names, key = ", ".join(columns), ", ".join(keys)
    insert = (
        f"INSERT INTO main.{table} ({names}) SELECT {names} FROM damaged.{table} NOT INDEXED"
        f" WHERE ({key}) > ({', '.join('?' * len(keys))}) ORDER BY {key} LIMIT"
    )
    found = handle.execute("SELECT id FROM main.stream WHERE typeof(id) = 'text' ORDER BY id").fetchall()
    streams = [str(name) for (name,) in found]
    last: Key = ("", *[0] * (len(keys) - 1))
    while True:
        held = _newest_row(handle, table)
        if any(_runs(handle, f"{insert} {count}", last) for count in (BATCH_ROWS, 1)):
            if not handle.changes():
                return
        elif not any(_runs(handle, f"{insert} 1", place) and handle.changes() for place in _places_behind(last, streams)):
            return
        reached = _reached(handle, table, keys, held, last)
        if reached is None:
            return
        last = reached


def _newest_row(handle: apsw.Connection, table: str) -> int:
    return int(str(handle.execute(f"SELECT coalesce(max(rowid), 0) FROM main.{table}").fetchall()[0][0]))


def _reached(handle: apsw.Connection, table: str, keys: tuple[str, ...], held: int, last: Key) -> Key | None:
    """How far the rows behind `held` go: the key of the newest, or the highest where a flipped bit made that one fall behind `last`;
    None when all did, and nothing tells where to go on."""
    key = ", ".join(keys)
    typed = " AND ".join((f"typeof({keys[0]}) = 'text'", *(f"typeof({name}) = 'integer'" for name in keys[1:])))
    for order in ("rowid", " DESC, ".join(keys)):
        rows = handle.execute(
            f"SELECT {key} FROM (SELECT * FROM main.{table} WHERE rowid > ? AND {typed} ORDER BY {order} DESC LIMIT 1)"
            f" WHERE ({key}) > ({', '.join('?' * len(keys))})",
            (held, *last),
        ).fetchall()
        if rows:
            return (str(rows[0][0]), *(int(str(number)) for number in rows[0][1:]))
    return None


def _places_behind(last: Key, streams: list[str]) -> Iterator[Key]:
    """What a row that follows a damaged page may follow: each number is tried, GAP_ROWS of them at each place of the key."""
    for stream in (str(last[0]), *(name for name in streams if name > str(last[0]))):
        numbers = [int(number) for number in last[1:]] if stream == last[0] else [0] * (len(last) - 1)
        for place in reversed(range(len(numbers))):
            for step in range(1, GAP_ROWS + 1):
                yield (stream, *numbers[:place], numbers[place] + step, *[-1] * (len(numbers) - place - 1))


def _runs(handle: apsw.Connection, sql: str, bindings: Key) -> bool:
    try:
        handle.execute(sql, bindings).fetchall()
    except apsw.Error:
        return False  # a damaged page: the caller goes on behind it
    return True
