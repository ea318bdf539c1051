"""`recovery fork` and `recovery place`: a session that goes on from a point of another one, or from a bundle, in a workspace of its own."""

import json
import os

from eventlog.history import parse_point
from eventlog.show import show_text, show_word
from recovery.command_log import state_of
from recovery.driver.order import Ports
from recovery.opening import log_path
from recovery.place import Placed, fork_into, place_session
from recovery.settings import Settings


def fork(
    log: str, at: str, state: str, workspace: str, name: str | None, session: str | None, as_json: bool, settings: Settings, ports: Ports
) -> int:
    """Make the fork and say how it is driven."""
    point = parse_point(at)
    return _tell(fork_into(_log_of(log), session, point, name, state, workspace, settings, ports), as_json)


def _log_of(log: str) -> str:
    """The log file that LOG names: any regular file is one, as `eventlog doctor --repair NEWFILE` makes logs of any name, to fork from."""
    real = os.path.realpath(log)
    return real if os.path.isfile(real) else log_path(state_of(log))


def place(state: str, workspace: str, as_json: bool, settings: Settings, ports: Ports) -> int:
    """Give a forked or imported session its workspace and say how it is driven."""
    return _tell(place_session(state_of(state), workspace, settings, ports), as_json)


def _tell(placed: Placed, as_json: bool) -> int:
    if as_json:
        print(json.dumps({name: getattr(placed, name) for name in Placed.__struct_fields__}))
        return 0
    print(
        f"session {show_text(placed.session)} goes on from {show_text(placed.parent)} seq {placed.parent_seq} in "
        f"{show_text(placed.workspace)}; `recovery drive {show_word(placed.state)}` makes the files and drives it"
    )
    return 0
