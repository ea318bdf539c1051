"""`recovery apply`: what `plan` says, done: a driver that takes over, recovers, and stops before the script goes on.

Nothing but recovery happens: no call is begun that the log does not have, and the session is not finished, also where its script is done.
"""

import json

from eventlog import events
from eventlog.show import show_word
from recovery.command_log import find_place
from recovery.context import Context
from recovery.driver.entry import drive
from recovery.driver.order import Act, Order, Ports
from recovery.perform import recover
from recovery.settings import Settings
from recovery.words import word_of


def apply_recovery(log: str, accept_outside: str, as_json: bool, settings: Settings, ports: Ports) -> int:
    """Recover and stop; the exit code. Raises MisuseError, LogMissingError, CorruptError before anything is changed."""
    place = find_place(log, None, f"recovery apply {show_word(log)}", "name the state directory of a session")
    if place.known.is_finished:
        _print(place.known.opened.name, place.known.floor, [], f"`eventlog show {show_word(place.state)}` prints its history", as_json)
        return 0

    def work(context: Context) -> int:
        begun = context.journal.state.head_seq
        recover(context)
        _print(
            place.known.opened.name, context.epoch, _read_decisions(context, begun), f"{place.way_on} goes on",
            as_json,
        )  # fmt: skip
        return 0

    act = Act(work, f"recovery apply {show_word(place.state)}", runs_commands=True, accepts_outside=True)
    return drive(Order(place.state, None, None, accept_outside, act), settings, ports)


def _read_decisions(context: Context, begun: int) -> list[dict[str, object]]:
    """The decisions of this driver, in order. One that made the ledger anew stands before the act began."""
    return [
        {"seq": stored.seq, "label": stored.event.label, "call": stored.event.call, "attempt": stored.event.attempt}
        for stored in context.journal.reader.events(context.journal.stream)
        if isinstance(stored.event, events.RecoveryDecided) and (stored.epoch == context.epoch or stored.seq > begun)
    ]


def _print(session: str, epoch: int, decisions: list[dict[str, object]], follows: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"session": session, "epoch": epoch, "decisions": decisions}))
        return
    for one in decisions:
        about = f"call {one['call']}: " if one["call"] is not None else ""
        print(f"{about}{one['label']}: {word_of(str(one['label']))}")
    print(f"session {session}: {'recovered' if decisions else 'nothing to recover'}; {follows}")
