"""Format 2 to format 3: the rows of `image_change` into the tree of their primary key.

The same statements read and write both kinds of tables, so a log of format 2 stays in use as it is; a compaction brings it over. No event,
no change and no blob becomes another: the rows are copied inside SQLite, in one transaction that stands as a whole or not at all.
"""

import re

import apsw

from eventlog.connection import SCHEMA_3, expected_triggers, read_schema, read_trigger, schema_of, state_format

KEYS = {"image_change": ("stream", "seq", "idx")}
"""The primary keys of the tables that format 3 keeps WITHOUT ROWID."""
_AROUND = (
    "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND (type = 'view' OR type IN ('index', 'trigger')"
    " AND tbl_name = 'image_change') ORDER BY type, name"
)
_TABLE = re.compile(r"CREATE TABLE (\w+) \(.*?\n\)(?: WITHOUT ROWID)?(?=;)", re.DOTALL)


def cluster(connection: apsw.Connection, name: str) -> None:
    """Make a log of format 2 one of format 3, inside a transaction of a handle that does not enforce foreign keys: while a table is
    exchanged nothing may be done to the rows that refer to it. Does nothing to a log of another format.

    Indices, triggers and views are made anew from the words they have, then those of format 3. Raises CorruptError when the log lacks
    one of the triggers.
    """
    if connection.pragma("user_version") != 2:
        return
    made = {found[1]: found[0] for found in _TABLE.finditer(schema_of(3))}
    around = connection.execute(_AROUND).fetchall()
    for trigger in expected_triggers(2):
        read_trigger(connection, trigger, name)
    for (view,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'").fetchall():
        connection.execute(f'DROP VIEW "{view}"').fetchall()  # a view of a table that is not there keeps every other from being renamed
    for table, keys in KEYS.items():
        columns = ", ".join(str(column) for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,)))
        connection.execute(made[table].replace(f"TABLE {table} ", f"TABLE clustered_{table} ", 1)).fetchall()
        copied = f"SELECT {columns} FROM {table} ORDER BY {', '.join(keys)}"
        connection.execute(f"INSERT INTO clustered_{table} ({columns}) {copied}").fetchall()
        connection.execute(f"DROP TABLE {table}").fetchall()
        connection.execute(f"ALTER TABLE clustered_{table} RENAME TO {table}").fetchall()
    for (statement,) in around:
        connection.execute(str(statement)).fetchall()
    connection.execute(read_schema(SCHEMA_3)).fetchall()
    state_format(connection, 3, name)
