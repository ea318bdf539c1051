"""`recovery plan`: what the next driver would do, and why. Takes nothing over and writes nothing, so its answer is provisional."""

import dataclasses
import os
from dataclasses import dataclass

from eventlog.errors import CorruptError, LogMissingError
from eventlog.ports import Host
from eventlog.process_identity import is_alive
from eventlog.reader import Reader
from recovery.agent import AskApproval, AskPerson, AwaitAnswer, RunNext, ScriptDone, choose_next
from recovery.decision import decide
from recovery.facts import Facts, LedgerFact
from recovery.gather import gather, open_ledger_fact
from recovery.journal import only_stream, read_state
from recovery.labels import NOT_ACTED_ON, Label
from recovery.opening import log_path, space_paths
from recovery.script import decode_bytes
from recovery.space.ledger import LedgerView
from recovery.space.records import Sealed, fold_record
from recovery.state import SessionState
from recovery.takeover import choose_fates
from recovery.words import WORDS


@dataclass(frozen=True, slots=True)
class Forecast:
    """The answer: the label of the first decision (None when the session has finished), the facts behind it, and what the script
    would do next."""

    session: str
    epoch: int
    label: Label | None
    call: int | None
    facts: Facts | None
    then: str

    @property
    def is_idle(self) -> bool:
        """True when there is nothing to recover."""
        return self.label in (None, Label.SETTLED)


def forecast(state_directory: str, host: Host) -> Forecast:
    """Read log, ledger and workspace as they are now. Raises LogMissingError, CorruptError, ScanError."""
    reader = Reader.open(log_path(state_directory))
    try:
        stream = only_stream(reader)
        state, hashes = read_state(reader, stream)
    finally:
        reader.close()
    state = dataclasses.replace(state, is_restored_this_epoch=False)  # as the next driver_started will make it
    if state.is_finished:
        return Forecast(stream, state.floor, None, None, None, "the session has finished")
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
    call = state.open_call
    then = "then a person is needed" if label in NOT_ACTED_ON else _then(state)
    return Forecast(stream, state.floor, label, call.number if call else None, evidence.facts, then)


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
    about = f"call {found.call}: " if found.call is not None else ""
    lines.insert(1, f"{about}{found.label.value}: {WORDS[found.label]}")
    if found.facts is not None and not found.is_idle:
        lines.append("known: " + ", ".join(f"{name}={value}" for name, value in found.facts.named().items()))
    lines.append("provisional: a driver takes over first, and decides from what it finds then")
    return lines
