"""What the commands of `eventlog` take in the same way: a log, a session, `--json`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from eventlog.errors import MisuseError
from eventlog.reader import Reader
from eventlog.show import show_text
from eventlog.values import StreamId

LogArgument = Annotated[Path, typer.Argument(help="log.sqlite, or the state directory that holds it")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object per line (eventlog/README)")]
SessionOption = Annotated[str, typer.Option("--session", metavar="S", help="the session; needed where the log holds several")]


def log_path(given: Path) -> str:
    """The log file for what a person named: the file itself, or the state directory around it."""
    return os.path.join(given, "log.sqlite") if os.path.isdir(given) else str(given)


def choose_session(reader: Reader, session: str) -> StreamId:
    """The session that was named, or the only one that takes events. Raises MisuseError."""
    rows = reader.streams()
    names = ", ".join(show_text(row.id) for row in rows)
    if session:
        if session not in {row.id for row in rows}:
            raise MisuseError(f"{reader.name}: there is no session {show_text(session)} in this log; it holds {names}")
        return StreamId(session)
    own = [row.id for row in rows if row.origin is None]
    if len(own) != 1:
        raise MisuseError(f"{reader.name}: holds the sessions {names}; say which one with --session")
    return own[0]
