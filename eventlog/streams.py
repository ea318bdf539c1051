"""Which stream of a log a person means."""

from eventlog.errors import MisuseError
from eventlog.reader import Reader, StreamRow
from eventlog.show import show_text

_SHOWN = 20


def choose_stream(reader: Reader, session: str | None) -> StreamRow:
    """The stream of the session named; without a name the only one that takes events. Raises MisuseError naming those that there are."""
    rows = reader.streams()
    if session is not None:
        candidates = [row for row in rows if row.id == session]
    else:
        candidates = [row for row in rows if row.origin is None]
    if len(candidates) == 1:
        return candidates[0]
    names = ", ".join(show_text(row.id) for row in rows[:_SHOWN]) + (" ..." if len(rows) > _SHOWN else "")
    if session is None:
        raise MisuseError(f"{reader.name}: there are {len(rows)} sessions in this log; name one with --session: {names}")
    raise MisuseError(f"{reader.name}: there is no session {show_text(session) or repr('')} in this log; there are: {names}")
