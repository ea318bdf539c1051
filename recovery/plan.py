"""`recovery plan`: what the next driver would do, and why. Takes nothing over and writes nothing, so its answer is provisional."""

import dataclasses
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from eventlog.errors import CorruptError, LogMissingError
from eventlog.ports import Host
from eventlog.process_identity import is_alive
from eventlog.reader import Reader
from eventlog.show import show_text
from recovery.agent import AskApproval, AskPerson, AwaitAnswer, RunNext, ScriptDone, choose_next
from recovery.behind import missing_calls
from recovery.checkpoints.vault import Vault
from recovery.contents import Contents
from recovery.decision import decide
from recovery.facts import Facts, LedgerFact
from recovery.fallback import describe_damage
from recovery.gather import Evidence, gather, is_newer, open_ledger_fact
from recovery.journal import only_stream, read_state
from recovery.labels import BEHIND, NOT_ACTED_ON, OBLIGATIONS, Label
from recovery.opening import log_path, space_paths
from recovery.perform import describe_row, describe_stale_target
from recovery.plan_words import KEPT, describe_evidence, describe_steps, foresee
from recovery.script import decode_bytes
from recovery.space.ledger import LedgerView
from recovery.space.records import Sealed, fold_record
from recovery.state import SessionState
from recovery.takeover import choose_fates


@dataclass(frozen=True, slots=True)
class Forecast:
    """The answer: the label of the first decision (None when the session has finished), the facts behind it, and what the script
    would do next. `calls` counts by their end those that stand as they are; `lost` are the calls that the log lost, by number; `steps` and
    `why` are in plain words; `commands` are what a person can run, or must."""

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

    @property
    def is_idle(self) -> bool:
        """True when there is nothing to recover."""
        return self.label in (None, Label.SETTLED)


def forecast(state_directory: str, host: Host, find_vault: Callable[[SessionState], Vault | None]) -> Forecast:
    """Read log, ledger and workspace as they are now, and the checkpoint that a restore would need. Raises LogMissingError, CorruptError,
    ScanError, NeedsPersonError for a session whose checkpoint store is not there."""
    reader = Reader.open(log_path(state_directory))
    try:
        stream = only_stream(reader)
        state, hashes = read_state(reader, stream)
    finally:
        reader.close()
    state = dataclasses.replace(state, is_restored_this_epoch=False)  # as the next driver_started will make it
    if state.is_finished:
        shown = f"`eventlog show {show_text(state_directory)}` prints its history"
        return Forecast(stream, state.floor, None, None, None, "the session has finished", count_calls(state), [], [], [], [shown])
    ledger = _view_ledger(space_paths(state_directory).ledger)
    fact = open_ledger_fact(ledger, state)
    if isinstance(ledger, LedgerView):
        _pretend_fates(ledger, state, host)
    root = os.fsdecode(decode_bytes(state.opened.workspace, "workspace"))
    view = ledger.state if isinstance(ledger, LedgerView) else None
    if fact is LedgerFact.MISSING and not state.has_driver:
        fact = LedgerFact.SOUND  # no driver has been here: the first one makes the ledger
    evidence = gather(state, hashes, view, fact, root, host, "")
    label = decide(evidence.facts)
    known, steps = evidence.facts, []
    if isinstance(ledger, LedgerView) and is_newer(ledger, state):
        steps, known = [f"{label.value}: {KEPT}"], dataclasses.replace(known, ledger=LedgerFact.SOUND)
    next_label = decide(known)
    number = state.open_call.number if state.open_call else None
    damage = _find_damage(state_directory, evidence, state, find_vault(state))
    then = _then(state).replace("STATE_DIR", show_text(state_directory))
    if label in NOT_ACTED_ON or _find_stale(evidence, state):
        then = "then a person is needed"
    elif damage:
        then = "then what an older checkpoint allows, or a person is needed"
    lost = list(missing_calls(state, view)) if view is not None and next_label in BEHIND else []
    steps += describe_steps(known, number) + [_describe_lost(next_label, call) for call in lost]
    return Forecast(
        stream, state.floor, label, number, evidence.facts, then, count_calls(state), lost, steps, describe_evidence(evidence.facts),
        damage + _find_commands(label, evidence, root, state, state_directory),
    )  # fmt: skip


def count_calls(state: SessionState) -> dict[str, int]:
    """How many calls have each end, those that a restore undid apart. Pure."""
    ends = Counter("undone" if call.undone_by is not None else str(call.ended) for call in state.calls if call.ended is not None)
    return dict(sorted(ends.items()))


def _describe_lost(label: Label, call: int) -> str:
    """What becomes of a call that the log lost."""
    became = "its intent and its outcome are recorded from the ledger" if label is Label.LOG_BEHIND_ADOPT else "it ends interrupted"
    return f"call {call}: lost from the log: {became}"


def _find_commands(label: Label, evidence: Evidence, root: str, state: SessionState, state_directory: str) -> list[str]:
    own = show_text(state_directory)
    if stale := _find_stale(evidence, state):
        return [stale.replace("STATE_DIR", own)]
    if label in NOT_ACTED_ON:
        return [describe_row(label, evidence, root, state).replace("STATE_DIR", own)]
    if label is Label.SETTLED:
        return [f"`recovery drive {own}` goes on"]
    return [f"`recovery apply {own}` does this and stops", f"`recovery drive {own}` does it and goes on"]


def _find_stale(evidence: Evidence, state: SessionState) -> str:
    """Why a row that is foreseen is not acted on for a stale image, "" where all are."""
    return next((why for label in foresee(evidence.facts) if (why := describe_stale_target(label, state))), "")


def _find_damage(state_directory: str, evidence: Evidence, state: SessionState, vault: Vault | None) -> list[str]:
    """A line where the newest image is to be restored and its checkpoint is not whole."""
    if vault is None or state.modes.newest is None or not OBLIGATIONS.intersection(foresee(evidence.facts)):
        return []
    reader = Reader.open(log_path(state_directory))
    try:
        damage = describe_damage(Contents(reader, vault), state, evidence.scan, state.root, state.image, state.untracked)
    finally:
        reader.close()
    if not damage:
        return []
    return [
        f"{damage}: an older checkpoint stands in where the session allows it, else nothing is touched and the drive stops with exit 78; "
        f"`recovery checkpoints verify {show_text(state_directory)}` names what is damaged"
    ]


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


def _then(state: SessionState) -> str:
    if state.open_call is not None:
        return "then the script goes on"
    if state.pause_asked is not None:
        return "then the session pauses, as was asked, and the drive stops with exit 78"
    match choose_next(state, state.opened.on_interrupted):
        case RunNext(index=index):
            return f"then call {index + 1} of {len(state.opened.script)} of the script runs"
        case AskApproval(index=index):
            return f"then a person is asked whether call {index + 1} of {len(state.opened.script)} of the script may run"
        case AwaitAnswer(call=call):
            return f"then the drive stops with exit 78: call {call} waits for `recovery answer STATE_DIR`"
        case AskPerson(call=call, undone_by=undone_by):
            return f"then a person is asked about {'interrupted' if undone_by is None else 'undone'} call {call}"
        case ScriptDone() if not state.opened.script:
            return "then the drive stops with exit 78: the session has no script, and only `recovery drive --finish` ends it"
        case ScriptDone():
            return "then the session finishes, for good: nothing can be recorded or restored in it after that"


def explain(found: Forecast) -> list[str]:
    """Lines for people."""
    lines = [f"session {found.session}, epoch {found.epoch}: {found.then}"]
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
