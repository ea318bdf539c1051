"""A damaged log's rows in a scratch database with indices of its own: a damaged index hides rows, and a damaged page ends a scan.

Rows are copied inside SQLite, as they are stored, in the order of their row ids; where a page fails they are asked for one by one until the
next page. Nothing is believed because it is here: whoever reads the copy proves each value by the chain.
"""

import apsw

from eventlog import connection
from eventlog.errors import CorruptError
from eventlog.show import show_text

BATCH_ROWS = 64
GAP_ROWS = 4096
"""Row ids that are tried after the last that was read: what one damaged page of the tree can hide is far less."""

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
    "CREATE INDEX event_place ON event (stream, seq)",
    "CREATE INDEX change_place ON image_change (stream, seq, idx)",
    "CREATE INDEX blob_name ON blob (hash)",
    "CREATE INDEX dropped_name ON dropped (hash)",
)


def recover_rows(copy: str, scratch: str) -> None:
    """Bring every row that can be reached in the private copy of a log into a new database at `scratch`. Raises CorruptError."""
    handle = connection.create_scratch(scratch, copy)
    try:
        handle.execute("BEGIN").fetchall()
        for table, columns in TABLES.items():
            handle.execute(f"CREATE TABLE main.{table} ({', '.join(columns)})").fetchall()
            _copy_table(handle, table, columns)
        for index in _INDICES:
            handle.execute(index).fetchall()
        handle.execute("COMMIT").fetchall()
    except apsw.Error as error:
        raise CorruptError(f"{show_text(copy)}: its rows cannot be read ({error})") from error
    finally:
        handle.close()


def _copy_table(handle: apsw.Connection, table: str, columns: tuple[str, ...]) -> None:
    found = {str(name) for (name,) in handle.execute("SELECT name FROM pragma_table_info(?, 'damaged')", (table,))}
    present = [column for column in columns if column in found]
    if not present:
        return  # a log of format 1 has no `dropped`
    names = ", ".join(("rowid", *present))
    insert = f"INSERT INTO main.{table} ({names}) SELECT {names} FROM damaged.{table} NOT INDEXED WHERE rowid"
    row, failed = 0, 0
    while failed < GAP_ROWS:
        if _runs(handle, f"{insert} > ? ORDER BY rowid LIMIT {BATCH_ROWS}", row):
            newest = handle.execute(f"SELECT max(rowid) FROM main.{table}").fetchall()[0][0]
            if not isinstance(newest, int) or newest <= row:
                return
            row, failed = newest, 0
        else:
            row += 1
            failed = 0 if _runs(handle, f"{insert} = ?", row) and handle.changes() else failed + 1


def _runs(handle: apsw.Connection, sql: str, row: int) -> bool:
    try:
        handle.execute(sql, (row,)).fetchall()
    except apsw.Error:
        return False  # a damaged page: the caller goes on behind it
    return True
