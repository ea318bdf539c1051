"""`recovery release`: free a workspace of a session that is parked, so that another session may have it (S1).

Nothing of the session may live: whoever does is named, and nothing is changed. Then the session is taken over like by any driver (next
epoch, fates, the condemned proved dead by their marks), without a decision and without a look at the workspace, and the holder's record
goes. So no process of an older epoch can touch a path of the workspace later, whatever this process could not see. The session can be
driven again: it must claim the workspace first, and meets the changes made meanwhile as outside changes.
"""

import json

from eventlog.errors import BusyError
from eventlog.show import show_text, show_word
from recovery.command_log import Place, find_place
from recovery.context import Context
from recovery.driver.entry import drive
from recovery.driver.order import Act, Order, Ports
from recovery.living import find_living
from recovery.opening import space_paths
from recovery.settings import Settings
from recovery.space.holders import Holders


def release_holder(log: str, as_json: bool, settings: Settings, ports: Ports) -> int:
    """Release the workspace of the session in a state directory; the exit code.

    Raises BusyError naming who lives, MisuseError, LogMissingError, CorruptError before anything is changed.
    """
    place = find_place(log, None, "recovery release", "name the state directory of a session")
    name = place.known.opened.name
    holders = Holders(settings.holders, ports.clock)
    roots = holders.held_by(name, place.state)
    if roots and not place.known.is_finished:
        _check_parked(place, ports)
        code = drive(Order(place.state, None, None, "", Act(_nothing, _command(place), may_claim=False)), settings, ports)
        if code != 0:
            return code
    for root in roots:
        holders.release(root, name, place.state, lambda: _check_parked(place, ports))
    _print(place, roots, settings.holders, as_json)
    return 0


def _nothing(_: Context) -> int:
    """All that a release does under its epoch is the takeover."""
    return 0


def _command(place: Place) -> str:
    return f"recovery release {show_word(place.state)}"


def _check_parked(place: Place, ports: Ports) -> None:
    if place.known.is_finished:
        return
    living = find_living(place.state, space_paths(place.state).ledger, place.known, ports.host)
    if living:
        raise BusyError(
            f"session {place.known.opened.name} in {show_text(place.state)} is not parked: {', '.join(living)} may still write in "
            f"{show_text(place.workspace)}; nothing was changed. Let it end, or end it, and run `{_command(place)}` again"
        )


def _print(place: Place, roots: list[str], registry: str, as_json: bool) -> None:
    name = place.known.opened.name
    if as_json:
        print(json.dumps({"session": name, "state": place.state, "released": [show_text(root) for root in roots], "registry": registry}))
    elif not roots:
        print(f"session {name} holds no workspace in the registry {show_text(registry)}; nothing was changed")
    else:
        again = "" if place.known.is_finished else f"; {place.way_on} claims it again before it goes on"
        print(f"released {', '.join(show_text(root) for root in roots)} from session {name}{again}")
