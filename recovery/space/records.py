"""The ledger's records, as one closed union, and the state that is folded from them. Pure.

States of an attempt: prepared (the driver announced it), started (the starting mark is synced; the command may have run), exited,
void. Fates are given by a takeover to attempts without an exit record: condemned is final, and an exit recorded after it is cut for
ever (rule T2).

What is dropped (rule S3): attempts of calls up to the high-water mark, and work outside any call, once they are resolved. The marks
stay, so XX"""

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from eventlog.errors import CorruptError
from eventlog.events import Exit
from eventlog.process_identity import ProcessIdentity

Kind = Literal["command", "file", "work"]
Fate = Literal["claimed", "condemned"]
_WORK_KEY = re.compile(r"/d([0-9]{1,18})/[0-9]+\Z")


class Header(msgspec.Struct, frozen=True, tag_field="op", tag="ledger"):
    """First record of a ledger."""

    format: int
    ledger_id: str
    generation: int


class Advance(msgspec.Struct, frozen=True, tag_field="op", tag="advance"):
    """A takeover: the floor rises and every attempt and helper process without an exit gets its fate, in one record (rule T2).

    `lost` are those of the attempts that had started and whose shim was dead already: nobody can tell any more how they ended.
    `highest_call` and `collected` are what is still known of the ledger that this one takes the place of (0: nothing, or of none).
    """

    epoch: int
    log_id: str
    log_seq: int
    log_hash: str
    fates: dict[str, Fate]
    condemned_helpers: list[str]
    lost: list[str] = []
    highest_call: int = 0
    collected: int = 0


class Condemn(msgspec.Struct, frozen=True, tag_field="op", tag="condemn"):
    """Claims that turned out not to hold (the shim did not answer)."""

    epoch: int
    keys: list[str]


class ProvedDead(msgspec.Struct, frozen=True, tag_field="op", tag="proved_dead"):
    """These condemned attempts and helpers were killed and their death proved: no later takeover need prove it again.

    `assumed` are those among them (keys and marks) that were taken for dead without proof, `by` the setting `container_ends_all` or a
    `person` who said so.
    """

    epoch: int
    keys: list[str]
    helpers: list[str]
    assumed: list[str] = []
    by: str = ""


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
    is under the attempt's, or under none). `at_ms` is unix time (0: not recorded), for people only: order is the order of the records.
    `newest` is the number that a process had got last then (0: not recorded): what began with the command has one given since."""

    key: str
    identity: ProcessIdentity
    socket: str
    at_ms: int = 0
    first: ProcessIdentity | None = None
    mark: str = ""
    newest: int = 0


class Exited(msgspec.Struct, frozen=True, tag_field="op", tag="exit"):
    """The end of an attempt, recorded by who owned it; its survivors were ended before (ARCHITECTURE, "Spaces").

    `output_*` and `digest` tell of standard output (or of both streams merged), `stderr_*` of standard error kept apart: all bytes,
    bytes kept, BLAKE3 of all bytes, kept or not ("": not recorded). `left` processes were left alive by policy; `held_output`: something
    still had the output open after the end (case 31). `named` says for people who the survivors were, as far as they were seen. `at_ms` is
    unix time, 0 when not recorded. `missing` says why nothing of the output is kept although there was some ("": it is kept).
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
    named: str = ""


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


class Rejoin(msgspec.Struct, frozen=True, tag_field="op", tag="rejoin"):
    """A log that had lost events the ledger has seen goes on from this one, its head: it was decided what became of the lost calls (D2)."""

    epoch: int
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


class Attempt(msgspec.Struct):
    """One key of the ledger. `condemned_by` is the epoch that condemned it (0: none did); `is_lost`: its shim was found dead then."""

    prepared: Prepare
    epoch: int
    start: Start | None = None
    exit: Exited | None = None
    fate: Fate | None = None
    cut: bool = False
    void: bool = False
    torn: bool = False
    is_proved_dead: bool = False
    condemned_by: int = 0
    is_lost: bool = False

    @property
    def is_open(self) -> bool:
        """No exit record and not void: a takeover must give it a fate."""
        return self.exit is None and not self.void

    @property
    def is_resolved(self) -> bool:
        """Nothing of it can live any more: it ended or never starts, nothing was kept alive, and no kill of it is still to be proved."""
        return self.is_proved_dead or not (self.is_open or self.has_kept or self.fate == "condemned")

    @property
    def has_kept(self) -> bool:
        """Processes that its command left behind were kept alive by policy, and are not proved dead since."""
        return self.exit is not None and self.exit.left > 0 and not self.is_proved_dead


class Helper(msgspec.Struct):
    """A spawner or file worker."""

    registered: Register
    condemned: bool = False


class IdleShim(msgspec.Struct, frozen=True):
    """A shim that may own one command after the other, and so live while no attempt names it: known by the starting marks it made."""

    identity: ProcessIdentity
    epoch: int


REUSED_UNDER = ("cgroup:", "environment:")
"""What the marks begin with under which shims are used again (`marks.allows_reuse`)."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Attempt)


class Compacted(msgspec.Struct, frozen=True, tag_field="op", tag="compacted"):
    """Second record of a ledger that was written anew: what the `lines` lines before it come to (fields: as in LedgerState)."""

    lines: int
    floor: int
    log_seq: int
    log_hash: str
    highest_call: int
    collected: int
    collected_work: int
    scan_failures: dict[int, int]
    moved: dict[int, int]
    compactions: int
    attempts: list[Attempt]
    ended: dict[str, msgspec.Raw]
    helpers: list[Helper]
    shims: list[IdleShim] = []


Record = (
    Header
    | Advance
    | Condemn
    | ProvedDead
    | Prepare
    | Register
    | Start
    | Exited
    | Void
    | Collect
    | Rejoin
    | ScanFailed
    | Sealed
    | Compacted
)


class LedgerState(msgspec.Struct, eq=False):
    """The fold of a ledger's records.

    `highest_call` is the highest call ever prepared; `collected` and `collected_work` are the high-water marks: everything resolved of
    calls up to the one, and of work for decisions up to the seq of the other, was dropped. `moved` counts, by seq of its decision, the
    paths that the file worker displaced for each restore. `compactions` tells how often the file was written anew. `attempts` are those
    that a takeover, a call or a wait may be concerned with; `ended` are commands by hand that are resolved, each as JSON. `shims` are those
    that are used again, by process: each is to be ended by the takeover that follows, whatever became of its attempts.
    """

    header: Header | None = None
    floor: int = 0
    attempts: dict[str, Attempt] = msgspec.field(default_factory=dict)
    ended: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    helpers: dict[str, Helper] = msgspec.field(default_factory=dict)
    log_seq: int = 0
    log_hash: str = ""
    highest_call: int = 0
    collected: int = 0
    collected_work: int = 0
    scan_failures: dict[int, int] = msgspec.field(default_factory=dict)
    moved: dict[int, int] = msgspec.field(default_factory=dict)
    compactions: int = 0
    shims: dict[str, IdleShim] = msgspec.field(default_factory=dict)
    # What may be dropped one day, so that a collection looks at these and not at every key. Two states that differ in these are equal.
    keys_by_call: dict[int, list[str]] = msgspec.field(default_factory=dict)
    work_keys: list[str] = msgspec.field(default_factory=list)

    def __eq__(self, other: object) -> bool:
        told = [name for name in LedgerState.__struct_fields__ if name not in ("keys_by_call", "work_keys")]
        return isinstance(other, LedgerState) and all(getattr(self, name) == getattr(other, name) for name in told)

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct has one of its own

    def find(self, key: str) -> Attempt | None:
        """What the ledger holds of a key, None when nothing."""
        attempt = self.attempts.get(key)
        if attempt is None and key in self.ended:
            return _decoder.decode(self.ended[key])
        return attempt

    def every(self) -> Iterator[Attempt]:
        """All attempts, those that ended by hand first."""
        yield from map(_decoder.decode, self.ended.values())
        yield from self.attempts.values()


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
                _condemn(_attempt(state, key, where), record.epoch)
                _set_aside(state, key)
        case ProvedDead():
            _fold_proved(state, record, where)
        case Prepare():
            _fold_prepare(state, record, where)
        case Register():
            state.helpers[record.mark] = Helper(record)
        case Start():
            attempt = _attempt(state, record.key, where)
            _fold_start(attempt, record, where)
            _know_shim(state, attempt, record)
        case Exited():
            _fold_exit(_attempt(state, record.key, where), record, where)
            _count_moves(state, record)
            _set_aside(state, record.key)
        case Void():
            _fold_void(state, record, where)
        case Collect():
            _fold_collect(state, record)
        case Rejoin():
            state.log_seq, state.log_hash = record.log_seq, record.log_hash
        case ScanFailed():
            state.scan_failures[record.call] = state.scan_failures.get(record.call, 0) + 1
        case Sealed():
            # What was torn may have been a starting mark: for what was prepared then, "never started" is no longer provable.
            for attempt in state.attempts.values():
                attempt.torn = attempt.torn or (attempt.start is None and not attempt.void)
        case Compacted():
            _fold_compacted(state, record, where)


def _attempt(state: LedgerState, key: str, where: str) -> Attempt:
    attempt = state.find(key)
    if attempt is None:
        raise CorruptError(f"{where}: key {key} was never prepared")
    if key in state.ended:  # something is still to be said of it
        del state.ended[key]
        state.attempts[key] = attempt
    return attempt


def _is_by_hand(prepared: Prepare) -> bool:
    """Neither of a call nor of a decision: no collection ever drops it."""
    return prepared.call is None and (prepared.kind != "work" or decision_of(prepared.key) is None)


def _set_aside(state: LedgerState, key: str) -> None:
    """Keep a command or a change of files by hand that is resolved as its bytes."""
    attempt = state.attempts[key]
    if attempt.is_resolved and _is_by_hand(attempt.prepared):
        del state.attempts[key]
        state.ended[key] = msgspec.Raw(_encoder.encode(attempt))


def _see_log(state: LedgerState, seq: int, digest: str) -> None:
    if seq >= state.log_seq:
        state.log_seq, state.log_hash = seq, digest


def _fold_advance(state: LedgerState, record: Advance, where: str) -> None:
    if record.epoch <= state.floor:
        raise CorruptError(f"{where}: floor {state.floor} would fall or stay at {record.epoch}")
    state.floor = record.epoch
    state.highest_call = max(state.highest_call, record.highest_call)
    state.collected = max(state.collected, record.collected)
    _see_log(state, record.log_seq, record.log_hash)
    for key, fate in record.fates.items():
        attempt = _attempt(state, key, where)
        if fate == "condemned":
            _condemn(attempt, record.epoch)
        elif attempt.fate != "condemned":
            attempt.fate, attempt.epoch = "claimed", record.epoch
    for key in record.lost:
        _attempt(state, key, where).is_lost = True
    for mark in record.condemned_helpers:
        if mark in state.helpers:
            state.helpers[mark].condemned = True


def _condemn(attempt: Attempt, epoch: int) -> None:
    attempt.fate = "condemned"
    attempt.condemned_by = attempt.condemned_by or epoch


def _fold_proved(state: LedgerState, record: ProvedDead, where: str) -> None:
    for key in record.keys:
        _attempt(state, key, where).is_proved_dead = True
        _set_aside(state, key)
    for mark in record.helpers:
        state.helpers.pop(mark, None)
    _forget_shims(state, record.epoch)


def _fold_prepare(state: LedgerState, record: Prepare, where: str) -> None:
    if record.key in state.attempts or record.key in state.ended:
        raise CorruptError(f"{where}: key {record.key} is prepared twice")
    _keep(state, Attempt(record, record.epoch))
    _see_log(state, record.log_seq, record.log_hash)
    if record.call is not None:
        state.highest_call = max(state.highest_call, record.call)


def _keep(state: LedgerState, attempt: Attempt) -> None:
    prepared = attempt.prepared
    state.attempts[prepared.key] = attempt
    if prepared.call is not None:
        state.keys_by_call.setdefault(prepared.call, []).append(prepared.key)
    elif not _is_by_hand(prepared):
        state.work_keys.append(prepared.key)


def _fold_start(attempt: Attempt, record: Start, where: str) -> None:
    if attempt.start is not None or attempt.void:
        raise CorruptError(f"{where}: key {record.key} starts after it was {'voided' if attempt.void else 'started'}")
    attempt.start = record


def _know_shim(state: LedgerState, attempt: Attempt, record: Start) -> None:
    if attempt.prepared.kind == "command" and attempt.prepared.mark.startswith(REUSED_UNDER):
        one = record.identity
        state.shims[f"{one.pid}-{one.start_ticks}"] = IdleShim(one, attempt.prepared.epoch)


def _forget_shims(state: LedgerState, epoch: int) -> None:
    """Shims below `epoch` were ended, but for those whose command was claimed."""
    owners = [attempt.start.identity for attempt in state.attempts.values() if attempt.is_open and attempt.start is not None]
    state.shims = {name: shim for name, shim in state.shims.items() if shim.epoch >= epoch or shim.identity in owners}


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
    _set_aside(state, record.key)


def _fold_collect(state: LedgerState, record: Collect) -> None:
    state.collected = max(state.collected, record.call)
    _see_log(state, record.log_seq, record.log_hash)
    for call in [call for call in state.keys_by_call if call <= record.call]:
        left = _drop_resolved(state, state.keys_by_call[call])
        if left:
            state.keys_by_call[call] = left
        else:
            del state.keys_by_call[call]
        state.scan_failures.pop(call, None)
    left = _drop_resolved(state, state.work_keys)
    if len(left) < len(state.work_keys):
        dropped = set(state.work_keys) - set(left)
        state.collected_work = max(state.collected_work, *(decision_of(key) or 0 for key in dropped))
        state.work_keys = left


def _drop_resolved(state: LedgerState, keys: list[str]) -> list[str]:
    """Drop what is resolved, settled in the log as it is; the keys that stay: what is unresolved is never dropped (S3)."""
    left = []
    for key in keys:
        if state.attempts[key].is_resolved:
            del state.attempts[key]
        else:
            left.append(key)
    return left


def decision_of(key: str) -> int | None:
    """The seq of the decision in the key of work outside any call (`log id/session/d<seq>/attempt`); None for any other key."""
    found = _WORK_KEY.search(key)
    return int(found[1]) if found else None


def _count_moves(state: LedgerState, record: Exited) -> None:
    decision, moves = decision_of(record.key), (record.detail or {}).get("displaced")
    if decision is not None and isinstance(moves, int):
        state.moved[decision] = state.moved.get(decision, 0) + moves


def _fold_compacted(state: LedgerState, record: Compacted, where: str) -> None:
    if state != LedgerState(state.header):
        raise CorruptError(f"{where}: a compacted state stands behind the header and nowhere else")
    state.floor, state.log_seq, state.log_hash = record.floor, record.log_seq, record.log_hash
    state.highest_call, state.collected, state.collected_work = record.highest_call, record.collected, record.collected_work
    state.scan_failures, state.moved, state.compactions = dict(record.scan_failures), dict(record.moved), record.compactions
    state.ended = dict(record.ended)
    for attempt in record.attempts:
        _keep(state, attempt)
    for helper in record.helpers:
        state.helpers[helper.registered.mark] = helper
    state.shims = {f"{shim.identity.pid}-{shim.identity.start_ticks}": shim for shim in record.shims}


def compact_state(state: LedgerState, lines: int) -> Compacted:
    """The record that stands for a state to which `lines` lines have led."""
    return Compacted(
        lines, state.floor, state.log_seq, state.log_hash, state.highest_call, state.collected, state.collected_work,
        dict(state.scan_failures), dict(state.moved), state.compactions + 1, list(state.attempts.values()), dict(state.ended),
        list(state.helpers.values()), list(state.shims.values()),
    )  # fmt: skip
