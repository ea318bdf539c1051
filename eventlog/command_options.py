"""Arguments and options that commands share, and what they mean."""

import os
from pathlib import Path
from typing import Annotated

import typer

from eventlog.errors import MisuseError
from eventlog.held_files import resolve_log
from eventlog.preflight import check_writable_place
from eventlog.show import show_text

LogArgument = Annotated[Path, typer.Argument(help="log.sqlite, or the state directory that holds it")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object per line (eventlog/README)")]
SessionOption = Annotated[str | None, typer.Option("--session", help="the session, where the log holds several")]
CallsOption = Annotated[bool, typer.Option("--calls", help="one line for each call: tool, decision, end, size, duration")]
NOT_DRIVEN = "note: `recovery fork LOG --session NAME --at head --state DIR --workspace DIR` drives it in a space of its own"
"""For sessions that were forked, imported or salvaged."""
PLACED = "note: `recovery place STATE_DIR --workspace DIR` gives it a workspace of its own, and `recovery drive STATE_DIR` drives it"
"""For the session of a log that was made for it."""
HIGHEST_SEQ = (1 << 63) - 1
"""What SQLite counts to."""
POINT_HELP = "a seq, head, call:N (after it) or call:N:before"


def log_path(given: Path) -> str:
    """The log file for what a person named: the file itself, or the state directory around it."""
    path = os.path.join(given, "log.sqlite") if os.path.isdir(given) else str(given)
    return resolve_log(path) if os.path.islink(path) else path


def check_place(path: str) -> None:
    """Raise MisuseError where no log may be written (eventlog.preflight). Where there is no directory, opening says what is missing."""
    directory = os.path.dirname(path) or "."
    if os.path.isdir(directory):
        check_writable_place(directory, allow_network=os.environ.get("SESSION_ALLOW_NETWORK_FILESYSTEM") == "1")


def check_text(option: str, text: str) -> str:
    """The text, if it is one. Raises MisuseError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MisuseError(f"{option} {show_text(text)}: not UTF-8; a log holds text") from error
    return text
