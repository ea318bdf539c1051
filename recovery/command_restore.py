"""`recovery restore`: make a workspace equal to the image at an earlier event; with `--dry-run` only say what that would do."""

import json
from dataclasses import dataclass

from eventlog import events
from eventlog.errors import NeedsPersonError
from eventlog.reader import Reader
from eventlog.show import show_text
from eventlog.values import StreamId
from recovery.capture import check_place_root, look
from recovery.command_log import Place, find_place
from recovery.context import Context
from recovery.driver.entry import Act, Order, Ports, drive, finished_error
from recovery.opening import log_path
from recovery.perform import restore_to
from recovery.person_restore import Aim, aim_at, check_seq
from recovery.settings import Settings
from recovery.workspace.restore_plan import describe


@dataclass(frozen=True, slots=True)
class RestoreOrder:
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
    forecast = _forecast(place, order.seq)
    if order.is_dry:
        _print(order, place, forecast, None)
        return 0 if forecast.is_idle else 2
    command = f"recovery restore {show_text(place.state)} --at {order.seq} --workspace {show_text(place.workspace)}"

    def work(context: Context) -> int:
        aim = restore_to(context, order.seq)
        decided = [stored.seq for stored in context.journal.reader.events(context.journal.stream) if _is_decision(stored.event, order.seq)]
        _print(order, place, aim, decided[-1] if decided and not aim.is_idle else 0)
        return 0

    return drive(Order(place.state, None, None, "", Act(work, command, may_claim=False)), settings, ports)


def _is_decision(event: events.Event, seq: int) -> bool:
    return isinstance(event, events.RecoveryDecided) and event.obligation and event.target_seq == seq


def _forecast(place: Place, seq: int) -> Aim:
    """What the restore would do as everything is now; nothing is taken over. Raises MisuseError, ScanError, RestoreIncompleteError."""
    reader = Reader.open(log_path(place.state))
    try:
        check_seq(_restores(reader, place), place.known.head_seq, seq)
        if place.known.obligation is not None and not seq < place.known.obligation.seq:
            raise NeedsPersonError(f"the restore decided at seq {place.known.obligation.seq} is open; drive the session first")
        check_place_root(place.workspace, place.known.opened)
        return aim_at(reader, place.known, look(place.workspace), seq)
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


def _print(order: RestoreOrder, place: Place, aim: Aim, decision: int | None) -> None:
    """The answer. `decision` is None for a forecast, 0 when there was nothing to do."""
    undone = [call.number for call in aim.undone]
    if order.as_json:
        answer = {
            "session": place.known.opened.name,
            "at": aim.seq,
            "root": aim.root,
            "dry_run": decision is None,
            "differs": not aim.is_idle,
            "plan": describe(aim.plan),
            "restored": aim.plan.restored,
            "displaced": aim.plan.displaced,
            "needed_bytes": aim.plan.needed_bytes,
            "undone_calls": undone,
            "decision_seq": decision or None,
        }
        print(json.dumps(answer))
        return
    if decision is None:
        print("\n".join(describe(aim.plan)) or "the workspace equals the image")
    calls = f", calls undone: {', '.join(map(str, undone))}" if undone else ""
    would = "would restore" if decision is None else "restored" if decision else "nothing to restore"
    print(f"{would}: image at seq {aim.seq}, root {aim.root}, {aim.plan.restored} paths, {aim.plan.displaced} moves to quarantine{calls}")
    if decision and aim.plan.displaced:
        print(f"what was displaced is in quarantine under decision {decision}: `eventlog show {show_text(place.state)}` names its paths")
