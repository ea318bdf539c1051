"""`recovery pause`: ask for a planned pause at the next call boundary. Whoever may write the log may ask; the driver does it."""

import json

from eventlog import events
from eventlog.command_options import check_text
from eventlog.errors import CorruptError
from eventlog.identity_files import read_identities
from eventlog.process_identity import is_alive
from eventlog.show import show_word
from recovery.asking import append_judged, check_going_on
from recovery.driver.order import Ports
from recovery.state import SessionState
from recovery.words import describe_way_on


def ask_pause(state_directory: str, reason: str, as_json: bool, ports: Ports) -> int:
    """Ask for a pause, once; the exit code. Raises MisuseError, LogMissingError, CorruptError, BusyError."""
    check_text("--reason", reason)

    def judge(state: SessionState) -> events.PauseRequested | None:
        check_going_on(state, state_directory)
        if state.is_paused or state.pause_asked is not None:
            return None
        return events.PauseRequested(ports.clock.now_ms(), reason)

    before = append_judged(state_directory, ports.ids, judge, "pause.asked")
    is_new = not before.is_paused and before.pause_asked is None
    driver = _find_driver(state_directory, ports)
    if as_json:
        found = {"session": before.opened.name, "asked": is_new, "paused": before.is_paused, "driver_epoch": driver}
        print(json.dumps(found))
        return 0
    print(f"session {before.opened.name}: {_describe(before, driver, state_directory)}")
    return 0


def _describe(before: SessionState, driver: int | None, state_directory: str) -> str:
    if before.is_paused:
        way_on = describe_way_on(bool(before.opened.script), show_word(state_directory))
        return f"it is paused already; {way_on} goes on with it"
    asked = "a pause is asked for" if before.pause_asked is None else "a pause was asked for before"
    if driver is not None:
        return f"{asked}; the driver of epoch {driver} pauses when the call that runs has ended, and exits with 78"
    return f"{asked}; no driver is at work: the next `recovery drive {show_word(state_directory)}` recovers what there is and pauses"


def _find_driver(state_directory: str, ports: Ports) -> int | None:
    """The epoch of the newest driver that lives, as its identity file says; None without one."""
    try:
        found = read_identities(state_directory)
    except CorruptError:
        return None  # for the message only; the next driver stops at it
    return max((one.epoch for one in found if one.is_driver and is_alive(one.identity, ports.host)), default=None)
