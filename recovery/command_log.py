"""Which session a command is about: LOG is a state directory or the log file in it; DIR must be that session's workspace."""

import os

import msgspec

from eventlog.errors import MisuseError
from eventlog.show import show_text, show_word
from recovery.opening import LOG_NAME, log_missing, log_path, read_log, should_exist
from recovery.script import decode_bytes
from recovery.state import SessionState
from recovery.words import describe_way_on


class Place(msgspec.Struct, frozen=True):
    """A session found: its state directory and workspace, resolved, and its state as the log says now (no more than a preview)."""

    state: str
    workspace: str
    known: SessionState

    @property
    def way_on(self) -> str:
        """What drives the session on."""
        return describe_way_on(bool(self.known.opened.script), show_word(self.state))


def state_of(log: str) -> str:
    """The state directory that LOG names, resolved."""
    real = os.path.realpath(log)
    return os.path.dirname(real) if os.path.basename(real) == LOG_NAME and not os.path.isdir(real) else real


def find_place(log: str, workspace: str | None, command: str, way_out: str) -> Place:
    """Read the session; nothing is changed. Raises MisuseError, LogMissingError, CorruptError, NeedsPersonError."""
    state = state_of(log)
    if not os.path.exists(log_path(state)):
        if should_exist(state):
            raise log_missing(state)
        raise MisuseError(f"{show_text(log)}: no log is there; {way_out}")
    known = read_log(state)
    recorded = os.fsdecode(decode_bytes(known.opened.workspace, "workspace"))
    if workspace is None:
        return Place(state, recorded, known)
    found = os.path.realpath(workspace)
    if found != recorded:
        raise MisuseError(
            f"{show_text(workspace)} ({show_text(found)}) is not the workspace of {show_text(state)}, which is {show_text(recorded)}; "
            f"run `{command}` with that one, or with the log of this workspace"
        )
    if os.path.lexists(found) and not os.path.isdir(found):
        raise MisuseError(f"{show_text(workspace)} is not a directory; put the session's own workspace back")
    return Place(state, recorded, known)
