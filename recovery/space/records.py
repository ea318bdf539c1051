"""The ledger's records, as one closed union, and the state that is folded from them. Pure.

States of an attempt: prepared (the driver announced it), started (the starting mark is synced; the command may have run), exited,
void. Fates are given by a takeover to attempts without an exit record: condemned is final, and an exit recorded after it is cut for
ever (rule T2).
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from eventlog.errors import CorruptError
from eventlog.events import Exit
from eventlog.process_identity import ProcessIdentity

Kind = Literal["command", "file", "work"]
Fate = Literal["claimed", "condemned"]


class Header(msgspec.Struct, frozen=True, tag_field="op", tag="ledger"):
    """First record of a ledger."""

    format: int
    ledger_id: str
    generation: int


class Advance(msgspec.Struct, frozen=True, tag_field="op", tag="advance"):
    """A takeover: the floor rises and every attempt and helper process without an exit gets its fate, in one record (rule T2)."""

    epoch: int
    log_id: str
    log_seq: int
    log_hash: str
    fates: dict[str, Fate]
    condemned_helpers: list[str]


class Condemn(msgspec.Struct, frozen=True, tag_field="op", tag="condemn"):
    """Claims that turned out not to hold (the shim did not answer)."""

    epoch: int
    keys: list[str]


class ProvedDead(msgspec.Struct, frozen=True, tag_field="op", tag="proved_dead"):
    """These condemned attempts and helpers were killed and their death proved: no later takeover need prove it again."""

    epoch: int
    keys: list[str]
    helpers: list[str]


class Prepare(msgspec.Struct, frozen=True, tag_field="op", tag="prepare"):
    """An attempt is announced. `intent` is the log's attempt_started event as stored (None for work outside a call)."""

    key: str
    kind: Kind
    epoch: int
    call: int | None
    attempt: int
    digest: str
    mark: str
    intent: dict[str, Any] | None
    log_seq: int
    log_hash: str


class Register(msgspec.Struct, frozen=True, tag_field="op", tag="register"):
    """A spawner or file worker is there, under its own mark."""

    role: Literal["spawner", "worker"]
    epoch: int
    mark: str
    identity: ProcessIdentity


class Start(msgspec.Struct, frozen=True, tag_field="op", tag="start"):
    """The starting mark, synced before the command can begin. `identity` is the shim's (or the file worker's), `first` that of the first
    process of the attempt's pid namespace, where the kill mark is one; `mark` is the shim's own, beside that of its command ("": the shim
    is under the attempt's, or under none). `at_ms` is unix time (0: not recorded), for people only: order is the order of the records."""

    key: str
    identity: ProcessIdentity
    socket: str
    at_ms: int = 0
    first: ProcessIdentity | None = None
    mark: str = ""


class Exited(msgspec.Struct, frozen=True, tag_field="op", tag="exit"):
    """The end of an attempt, recorded by who owned it; its survivors were ended before (ARCHITECTURE, "Spaces").

    `output_*` and `digest` tell of standard output (or of both streams merged), `stderr_*` of standard error kept apart: all bytes,
    bytes kept, BLAKE3 of all bytes, kept or not ("": not recorded). `left` processes were left alive by policy; `held_output`: something
    still had the output open after the end (case 31). `at_ms` is unix time, 0 when not recorded. `missing` says why nothing of the output
    is kept although there was some ("": it is kept).
    """

    key: str
    exit: Exit
    boot_id: str
    output_total: int = 0
    output_kept: int = 0
    survivors: int = 0
    message: str = ""
    detail: dict[str, Any] | None = None
    digest: str = ""
    stderr_total: int = 0
    stderr_kept: int = 0
    stderr_digest: str = ""
    left: int = 0
    held_output: bool = False
    at_ms: int = 0
    missing: str = ""


class Void(msgspec.Struct, frozen=True, tag_field="op", tag="void"):
    """The attempt provably never started and never will."""

    key: str
    epoch: int


class Collect(msgspec.Struct, frozen=True, tag_field="op", tag="collect"):
    """Everything up to `call` is in the log: the high-water mark."""

    epoch: int
    call: int
    log_seq: int
    log_hash: str


class ScanFailed(msgspec.Struct, frozen=True, tag_field="op", tag="scan_failed"):
    """A scan of the workspace failed during this call (rule C5)."""

    epoch: int
    call: int
    message: str


class Sealed(msgspec.Struct, frozen=True, tag_field="op", tag="sealed"):
    """A torn end was found and closed here: whatever it was going to say is unknown (case 22)."""

    torn_bytes: int
    torn_begin: str


Record = Header | Advance | Condemn | ProvedDead | Prepare | Register | Start | Exited | Void | Collect | ScanFailed | Sealed


@dataclass(slots=True)
class Attempt:
    """One key of the ledger."""

    prepared: Prepare
    epoch: int
    start: Start | None = None
    exit: Exited | None = None
    fate: Fate | None = None
    cut: bool = False
    void: bool = False
    torn: bool = False
    is_proved_dead: bool = False

    @property
    def is_open(self) -> bool:
        """No exit record and not void: a takeover must give it a fate."""
        return self.exit is None and not self.void


@dataclass(slots=True)
class Helper:
    """A spawner or file worker."""

    registered: Register
    condemned: bool = False


@dataclass(slots=True)
class LedgerState:
    """The fold of a ledger's records."""

    header: Header | None = None
    floor: int = 0
    attempts: dict[str, Attempt] = field(default_factory=dict)
    helpers: dict[str, Helper] = field(default_factory=dict)
    log_seq: int = 0
    log_hash: str = ""
    highest_call: int = 0
    collected: int = 0
    scan_failures: dict[int, int] = field(default_factory=dict)


def fold_record(state: LedgerState, record: Record, where: str) -> None:
    """Apply one record to `state`. Raises CorruptError, naming `where`, for a record that no sound ledger holds there."""
    if (state.header is None) != isinstance(record, Header):
        raise CorruptError(f"{where}: a ledger begins with its header and has one only")
    match record:
        case Header():
            state.header = record
        case Advance():
            _fold_advance(state, record, where)
        case Condemn():
            for key in record.keys:
                _condemn(_attempt(state, key, where))
        case ProvedDead():
            _fold_proved(state, record, where)
        case Prepare():
            _fold_prepare(state, record, where)
        case Register():
            state.helpers[record.mark] = Helper(record)
        case Start():
            _fold_start(_attempt(state, record.key, where), record, where)
        case Exited():
            _fold_exit(_attempt(state, record.key, where), record, where)
        case Void():
            _fold_void(state, record, where)
        case Collect():
            _fold_collect(state, record)
        case ScanFailed():
            state.scan_failures[record.call] = state.scan_failures.get(record.call, 0) + 1
        case Sealed():
            # What was torn may have been a starting mark: for what was prepared then, "never started" is no longer provable.
            for attempt in state.attempts.values():
                attempt.torn = attempt.torn or (attempt.start is None and not attempt.void)


def _attempt(state: LedgerState, key: str, where: str) -> Attempt:
    attempt = state.attempts.get(key)
    if attempt is None:
        raise CorruptError(f"{where}: key {key} was never prepared")
    return attempt


def _see_log(state: LedgerState, seq: int, digest: str) -> None:
    if seq >= state.log_seq:
        state.log_seq, state.log_hash = seq, digest


def _fold_advance(state: LedgerState, record: Advance, where: str) -> None:
    if record.epoch <= state.floor:
        raise CorruptError(f"{where}: floor {state.floor} would fall or stay at {record.epoch}")
    state.floor = record.epoch
    _see_log(state, record.log_seq, record.log_hash)
    for key, fate in record.fates.items():
        attempt = _attempt(state, key, where)
        if fate == "condemned":
            _condemn(attempt)
        elif attempt.fate != "condemned":
            attempt.fate, attempt.epoch = "claimed", record.epoch
    for mark in record.condemned_helpers:
        if mark in state.helpers:
            state.helpers[mark].condemned = True


def _condemn(attempt: Attempt) -> None:
    attempt.fate = "condemned"


def _fold_proved(state: LedgerState, record: ProvedDead, where: str) -> None:
    for key in record.keys:
        _attempt(state, key, where).is_proved_dead = True
    for mark in record.helpers:
        state.helpers.pop(mark, None)


def _fold_prepare(state: LedgerState, record: Prepare, where: str) -> None:
    if record.key in state.attempts:
        raise CorruptError(f"{where}: key {record.key} is prepared twice")
    state.attempts[record.key] = Attempt(record, record.epoch)
    _see_log(state, record.log_seq, record.log_hash)
    if record.call is not None:
        state.highest_call = max(state.highest_call, record.call)


def _fold_start(attempt: Attempt, record: Start, where: str) -> None:
    if attempt.start is not None or attempt.void:
        raise CorruptError(f"{where}: key {record.key} starts after it was {'voided' if attempt.void else 'started'}")
    attempt.start = record


def _fold_exit(attempt: Attempt, record: Exited, where: str) -> None:
    if attempt.exit is not None or attempt.start is None:
        raise CorruptError(f"{where}: key {record.key} exits {'twice' if attempt.exit else 'without a start'}")
    attempt.exit = record
    attempt.cut = attempt.fate == "condemned"


def _fold_void(state: LedgerState, record: Void, where: str) -> None:
    attempt = _attempt(state, record.key, where)
    if attempt.start is not None:
        raise CorruptError(f"{where}: key {record.key} is voided after it started")
    attempt.void = True


def _fold_collect(state: LedgerState, record: Collect) -> None:
    state.collected = max(state.collected, record.call)
    _see_log(state, record.log_seq, record.log_hash)
    for key in [key for key, attempt in state.attempts.items() if _is_collectable(attempt, record.call)]:
        del state.attempts[key]


def _is_collectable(attempt: Attempt, call: int) -> bool:
    """Settled in the log and resolved here: what is unresolved is never dropped (S3)."""
    return (attempt.prepared.call or 0) <= call and (not attempt.is_open or attempt.is_proved_dead)
