"""`recovery plan`: what the next driver would do, and why. Takes nothing over and writes nothing, so its answer is provisional."""

import contextlib
import os
from collections import Counter

import msgspec

from eventlog.errors import CorruptError, LogMissingError, ScanError
from eventlog.ports import Host
from eventlog.process_identity import is_alive
from eventlog.reader import Reader
from eventlog.show import show_word
from recovery.behind import missing_calls
from recovery.checkpoints.vault import Vault
from recovery.contents import Contents
from recovery.decision import decide
from recovery.facts import Facts, LedgerFact
from recovery.gather import Evidence, gather, is_newer, open_ledger_fact
from recovery.journal import only_stream, read_state
from recovery.labels import BEHIND, NOT_ACTED_ON, Label
from recovery.opening import fold_cache_of, log_path, space_paths
from recovery.perform import describe_row
from recovery.plan_ahead import NEEDED, Ahead, look_ahead
from recovery.plan_stops import (
    FindVault,
    describe_older,
    find_limit_stop,
    find_older,
    find_record_stop,
    find_shell,
    find_space_stop,
    find_stale,
    find_store,
    find_unstartable,
    list_replayed,
)
from recovery.plan_words import KEPT, describe_evidence, describe_steps, foresee
from recovery.script import decode_bytes
from recovery.settings import Settings
from recovery.space.ledger import LedgerView
from recovery.space.records import Sealed, fold_record
from recovery.state import SessionState
from recovery.takeover import choose_fates
from recovery.words import name_state

_BEGINS_AGAIN = frozenset({Label.RESTORE_AND_RERUN, Label.RERUN_RESTORED, Label.VOID_AND_RUN, Label.RUN_VOIDED})
_STOPPED = "the drive stops before anything is done"


class Forecast(msgspec.Struct, frozen=True):
    """The answer: the label of the first decision (None when the session has finished), the facts behind it, and what the script
    would do next. `calls` counts by their end those that stand as they are; `lost` are the calls that the log lost, by number; `steps` and
    `why` are in plain words; `commands` are what a person can run, or must. `stops` says why the drive stops before that is done: then the
    label is null where the workspace was not looked at. `is_unread`: it could not be looked at, and the same may go well the next time."""

    session: str
    epoch: int
    label: Label | None
    call: int | None
    facts: Facts | None
    then: str
    calls: dict[str, int]
    lost: list[int]
    steps: list[str]
    why: list[str]
    commands: list[str]
    stops: list[str] = msgspec.field(default_factory=list)
    is_unread: bool = False

    @property
    def is_idle(self) -> bool:
        """True when there is nothing to recover, and nothing to be mended first."""
        return self.label in (None, Label.SETTLED) and not self.stops

    @property
    def exit_code(self) -> int:
        """0 nothing to recover, 2 something, 1 the workspace could not be looked at: try again."""
        if self.is_unread:
            return 1
        return 0 if self.is_idle else 2


def forecast(state_directory: str, host: Host, find_vault: FindVault, settings: Settings) -> Forecast:
    """Read log, ledger and workspace as they are now, the checkpoints that a restore would need, and whether calls that are foreseen to
    begin again can be started by a driver with these settings. Raises LogMissingError,
    CorruptError."""
    reader = Reader.open(log_path(state_directory))
    try:
        stream = only_stream(reader)
        state, hashes = read_state(reader, stream, cache=fold_cache_of(state_directory))
    finally:
        reader.close()
    state = msgspec.structs.replace(state, is_restored_this_epoch=False)  # as the next driver_started will make it
    if state.is_finished:
        shown = f"`eventlog show {show_word(state_directory)}` prints its history"
        return Forecast(stream, state.floor, None, None, None, "the session has finished", count_calls(state), [], [], [], [shown])
    root = os.fsdecode(decode_bytes(state.opened.workspace, "workspace"))
    stops = find_record_stop(state_directory)
    vault, missing = find_store(state, find_vault)
    stops += missing + find_space_stop(state, root, settings)
    try:
        over = find_limit_stop(state, root)
        if over:
            return _unlooked(stream, state, stops + over, state_directory)
        return _look(state, hashes, stream, root, host, state_directory, stops, vault, settings)
    except ScanError as error:
        return msgspec.structs.replace(_unlooked(stream, state, [*stops, str(error)], state_directory), is_unread=True)


def _unlooked(stream: str, state: SessionState, stops: list[str], state_directory: str) -> Forecast:
    """The answer where nothing of the workspace was read."""
    number = state.open_call.number if state.open_call else None
    shown = [name_state(stop, state_directory) for stop in stops]
    return Forecast(stream, state.floor, None, number, None, _STOPPED, count_calls(state), [], [], [], [], shown)


def _look(
    state: SessionState, hashes: list[str], stream: str, root: str, host: Host, state_directory: str, stops: list[str], vault: Vault | None,
    settings: Settings,
) -> Forecast:  # fmt: skip
    """The answer from ledger and workspace. Raises ScanError."""
    own = show_word(state_directory)
    ledger = _view_ledger(space_paths(state_directory).ledger)
    fact = open_ledger_fact(ledger, state)
    if isinstance(ledger, LedgerView):
        _pretend_fates(ledger, state, host)
    view = ledger.state if isinstance(ledger, LedgerView) and (fact is LedgerFact.SOUND or is_newer(ledger, state)) else None
    if fact is LedgerFact.MISSING and not state.has_driver:
        fact = LedgerFact.SOUND  # no driver has been here: the first one makes the ledger
    evidence = gather(state, hashes, view, fact, root, host, "")
    label = decide(evidence.facts)
    known, steps = evidence.facts, []
    if isinstance(ledger, LedgerView) and is_newer(ledger, state):
        steps, known = [f"{label.value}: {KEPT}"], msgspec.structs.replace(known, ledger=LedgerFact.SOUND)
    next_label = decide(known)
    number = state.open_call.number if state.open_call else None
    labels = foresee(known)
    older, refusal = None, find_stale(labels, state)
    if not refusal:
        with contextlib.closing(Reader.open(log_path(state_directory))) as reader:
            older, refusal = find_older(labels, Contents(reader, vault), state, evidence.scan)
    lost = list(missing_calls(state, view)) if view is not None and next_label in BEHIND else []
    steps += describe_steps(known, number) + [_describe_lost(next_label, call) for call in lost]
    given_up: list[int] = []
    if older is not None:
        said, given_up = describe_older(older, state)
        steps.append(said)
    again = list_replayed(older, state)
    refusal = refusal or find_unstartable(again, settings.command_environment)
    begun = [] if given_up or not _BEGINS_AGAIN.intersection(labels) or state.open_call is None else [state.open_call]
    unstartable = find_unstartable(begun, settings.command_environment)
    steps += find_shell([*again, *begun], settings.command_environment)
    ahead = look_ahead(state, labels, view, own, given_up)
    if unstartable:
        ahead = Ahead(f"then the drive stops with exit 78: {unstartable}", ("the program that opened it, started again, goes on",), True)
    if refusal:
        ahead = Ahead(NEEDED, (name_state(refusal, state_directory),), True)
    commands = _find_commands(labels, ahead, evidence, root, state, state_directory)
    return Forecast(
        stream, state.floor, label, number, evidence.facts, _STOPPED if stops else ahead.then, count_calls(state), lost, steps,
        describe_evidence(evidence.facts), [] if stops else commands, [name_state(stop, state_directory) for stop in stops],
    )  # fmt: skip


def count_calls(state: SessionState) -> dict[str, int]:
    """How many calls have each end, the finished ones that a restore undid apart: a call that was cut, or lost with the log's tail, ended
    interrupted whatever took back what it did. Pure."""
    ended = [call for call in state.calls if call.ended is not None]
    ends = Counter("undone" if call.undone_by is not None and call.ended == "finished" else str(call.ended) for call in ended)
    return dict(sorted(ends.items()))


def _describe_lost(label: Label, call: int) -> str:
    """What becomes of a call that the log lost."""
    became = "its intent and its outcome are recorded from the ledger" if label is Label.LOG_BEHIND_ADOPT else "it ends interrupted"
    return f"call {call}: lost from the log: {became}"


def _find_commands(labels: list[Label], ahead: Ahead, evidence: Evidence, root: str, state: SessionState, directory: str) -> list[str]:
    own = show_word(directory)
    needed = [name_state(describe_row(label, evidence, root, state), directory) for label in labels if label in NOT_ACTED_ON]
    if labels[0] in NOT_ACTED_ON:
        return needed
    commands = [*needed, *ahead.commands]
    if ahead.then == NEEDED and not needed:
        return commands  # what is foreseen is refused
    if labels[0] is not Label.SETTLED:
        return [f"`recovery apply {own}` does this and stops", *(commands or [f"`recovery drive {own}` does it and goes on"])]
    return commands or [f"`recovery drive {own}` goes on"]


def _view_ledger(path: str) -> LedgerView | LogMissingError | CorruptError:
    try:
        return LedgerView(path)
    except (LogMissingError, CorruptError) as error:
        return error


def _pretend_fates(ledger: LedgerView, state: SessionState, host: Host) -> None:
    """In memory only: the fates a takeover would give now."""
    if ledger.has_torn_end:
        fold_record(ledger.state, Sealed(0, ""), ledger.name)
    alive = {key for key, attempt in ledger.state.attempts.items() if attempt.start is not None and is_alive(attempt.start.identity, host)}
    for key, fate in choose_fates(ledger.state, state, alive).items():
        ledger.state.attempts[key].fate = fate


def explain(found: Forecast) -> list[str]:
    """Lines for people."""
    lines = [f"session {found.session}, epoch {found.epoch}: {found.then}"]
    lines += [f"stops: {stop}" for stop in found.stops]
    if found.label is None:
        return lines
    lines += found.steps
    if found.calls:
        lines.append("calls that stand as they are: " + ", ".join(f"{count} {how}" for how, count in found.calls.items()))
    if not found.is_idle:
        lines.append("because " + ", and ".join(found.why))
    lines += found.commands
    if found.facts is not None and not found.is_idle:
        lines.append("known: " + ", ".join(f"{name}={value}" for name, value in found.facts.named().items()))
    lines.append("provisional: a driver takes over first, and decides from what it finds then")
    return lines
