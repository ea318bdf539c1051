"""What SQLite itself says of a database's pages: its integrity check, asked so that it leaves nothing out.

The check of the whole database counts the free pages only where the first table that it comes to has a page of its own: a 0 there means
"of one table alone" to it (`sqlite3BtreeIntegrityCheck`), and a view, which the check of 3.54 lists with the tables, has none. Which one is
first is decided by a hash of the names, and in a log it is a view. Asked of the schema's own table it counts them: a free list that says
more than there is makes the next commit fail as malformed.
"""

from collections.abc import Callable, Sequence

ASKED = ("PRAGMA integrity_check", "PRAGMA integrity_check(sqlite_schema)")
SOUND = "ok"


def ask_integrity(rows: Callable[[str], Sequence[tuple[object, ...]]]) -> list[str]:
    """What it says of the database that `rows` asks, each thing once; `[SOUND]` for nothing."""
    said = [str(message) for sql in ASKED for (message,) in rows(sql)]
    return list(dict.fromkeys(one for one in said if one != SOUND)) or [SOUND]
