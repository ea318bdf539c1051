"""`recovery restore`: make a workspace equal to the image at an earlier event; with `--dry-run` only say what that would do."""

import json

import msgspec

from eventlog import events
from eventlog.errors import NeedsPersonError
from eventlog.reader import Reader
from eventlog.show import show_word
from eventlog.values import StreamId
from recovery.capture import look
from recovery.checkpoints.vault import Vault
from recovery.command_log import Place, find_place
from recovery.contents import Contents
from recovery.context import Context
from recovery.driver.entry import drive
from recovery.driver.order import Act, Order, Ports, finished_error
from recovery.opening import find_vault, log_path
from recovery.perform import restore_to
from recovery.person_restore import Aim, aim_at, check_not_stale, check_seq
from recovery.root import check_root
from recovery.settings import Settings
from recovery.words import naming_state
from recovery.workspace.restore_plan import describe, show_short


class RestoreOrder(msgspec.Struct, frozen=True):
    """What was asked for."""

    log: str
    seq: int
    workspace: str
    is_dry: bool = False
    as_json: bool = False


def restore_image(order: RestoreOrder, settings: Settings, ports: Ports) -> int:
    """Restore, or forecast; the exit code. Raises MisuseError, NeedsPersonError before anything is written."""
    place = find_place(order.log, order.workspace, "recovery restore", "name the state directory of a session")
    if place.known.is_finished:
        raise finished_error(place.state, place.known.opened.name)
    with naming_state(place.state):
        forecast = _forecast(place, order.seq, find_vault(place.known, settings.checkpoints, ports.clock))
    if order.is_dry:
        _print(order, place, forecast, None)
        return 0 if forecast.is_idle else 2
    command = f"recovery restore {show_word(place.state)} --at {order.seq} --workspace {show_word(place.workspace)}"

    def work(context: Context) -> int:
        begun = context.journal.state.head_seq
        aim = restore_to(context, order.seq)
        _print(order, place, aim, _read_done(context, begun))
        return 0

    return drive(Order(place.state, None, None, "", Act(work, command, may_claim=False)), settings, ports)


class _Done(msgspec.Struct, frozen=True):
    """What a restore came to, as the log tells it: the end of the older one that it completed, and its own; each None where there was none.
    `targets` has, by decision, the event aimed at."""

    older: events.RestoreFinished | None
    own: events.RestoreFinished | None
    targets: dict[int, int | None]


def _read_done(context: Context, begun: int) -> _Done:
    """What this command did: the restores that ended after `begun`. An older decision stands before it."""
    older = own = None
    targets: dict[int, int | None] = {}
    for stored in context.journal.reader.events(context.journal.stream):
        match stored.event:
            case events.RecoveryDecided(obligation=True, target_seq=target):
                targets[stored.seq] = target
            case events.RestoreFinished(decision_seq=decision) as event if stored.seq > begun:
                older, own = (event, own) if decision <= begun else (older, event)
            case _:
                pass
    return _Done(older, own, targets)


def _forecast(place: Place, seq: int, vault: Vault | None) -> Aim:
    """What the restore would do as everything is now; nothing is taken over. Raises MisuseError, ScanError, RestoreIncompleteError."""
    reader = Reader.open(log_path(place.state))
    try:
        check_seq(_restores(reader, place), place.known.head_seq, seq)
        if place.known.obligation is not None and not seq < place.known.obligation.seq:
            raise NeedsPersonError(f"the restore decided at seq {place.known.obligation.seq} is open; drive the session first")
        check_root(place.workspace, place.known)
        check_not_stale(place.known, seq)  # before the workspace is read: it may be above its limit
        return aim_at(Contents(reader, vault), place.known, look(place.workspace, None, place.known.profile, place.known.image), seq)
    finally:
        reader.close()


def _restores(reader: Reader, place: Place) -> list[tuple[int, int | None]]:
    open_: dict[int, int | None] = {}
    for stored in reader.events(StreamId(place.known.opened.name)):
        match stored.event:
            case events.RecoveryDecided(obligation=True):
                open_[stored.seq] = None
            case events.RestoreFinished(decision_seq=decision):
                open_[decision] = stored.seq
            case _:
                pass
    return list(open_.items())


def _print(order: RestoreOrder, place: Place, aim: Aim, done: _Done | None) -> None:
    """The answer. `done` is None for a forecast. The counts of what was done are the log's, those of a forecast the plan's."""
    undone = [call.number for call in aim.undone]
    own = done.own if done else None
    older = done.older if done else None
    restored, displaced = (own.restored, own.displaced) if own else (aim.plan.restored, aim.plan.displaced)
    if order.as_json:
        answer = {
            "session": place.known.opened.name,
            "at": aim.seq,
            "root": aim.root,
            "dry_run": done is None,
            "differs": not aim.is_idle,
            "plan": describe(aim.plan),
            "restored": restored,
            "displaced": displaced,
            "needed_bytes": aim.plan.needed_bytes,
            "undone_calls": undone,
            "decision_seq": own.decision_seq if own else None,
            "completed": _describe_older(done, older) if done and older else None,
        }
        print(json.dumps(answer))
        return
    if done is None:
        print("\n".join(describe(aim.plan, show_short)) or "the workspace equals the image")
    if done and older:
        print(
            f"completed: the restore decided at seq {older.decision_seq}, image at seq {done.targets[older.decision_seq]}, "
            f"{older.restored} paths, {older.displaced} moves to quarantine"
        )
    calls = f", calls undone: {', '.join(map(str, undone))}" if undone else ""
    would = "would restore" if done is None else "restored" if own else "nothing more to restore" if older else "nothing to restore"
    print(f"{would}: image at seq {aim.seq}, root {aim.root}, {restored} paths, {displaced} moves to quarantine{calls}")
    for one in (older, own):
        if one and one.displaced:
            print(f"what was displaced is in quarantine: `recovery quarantine show {show_word(place.state)} {one.decision_seq}`")


def _describe_older(done: _Done, older: events.RestoreFinished) -> dict[str, object]:
    at = done.targets[older.decision_seq]
    return {"decision_seq": older.decision_seq, "at": at, "restored": older.restored, "displaced": older.displaced}
