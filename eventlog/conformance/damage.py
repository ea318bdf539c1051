"""Changing the rows of a log behind its triggers' back, while nobody has it open: what a flipped bit or somebody's SQL does."""

import apsw


def tamper(path: str, *statements: str) -> None:
    """Run statements with the triggers away and the checks off; the triggers are there again afterwards."""
    connection = apsw.Connection(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    connection.pragma("ignore_check_constraints", True)
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}").fetchall()
    for statement in statements:
        connection.execute(statement).fetchall()
    for _, sql in triggers:
        connection.execute(str(sql)).fetchall()
    connection.close()


def count_events(path: str) -> int:
    """How many events stand in the log, whatever its caches say."""
    connection = apsw.Connection(path)
    ((count,),) = connection.execute("SELECT count(*) FROM event").fetchall()
    connection.close()
    return int(str(count))


def refuse(path: str, statement: str) -> str:
    """What the log's triggers say to a statement; "" when they let it pass."""
    connection = apsw.Connection(path)
    connection.pragma("recursive_triggers", True)
    try:
        connection.execute(statement).fetchall()
    except apsw.ConstraintError as error:
        return str(error)
    finally:
        connection.close()
    return ""
