"""Every kind of event, as one closed union of frozen values. The payloads stand in eventlog/README, "Kinds".

`decode` refuses a kind or version it does not know by name (old code must not half-read a newer log). Each class has `kind` and
`version`; a field added later raises the version, and the payload of an older one is upcast on read (`UPCASTS`).
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec

from eventlog.errors import CorruptError
from eventlog.values import JsonBytes

HIGHEST = (1 << 63) - 1
"""What SQLite counts to."""
Count = Annotated[int, msgspec.Meta(ge=0, le=HIGHEST)]
Number = Annotated[int, msgspec.Meta(ge=1, le=HIGHEST)]
"""Of a call, an attempt, an event: they count from 1."""
Instant = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
"""Unix milliseconds, within what every reader of JSON keeps as it is."""
Nanoseconds = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=HIGHEST)]
ExitCode = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 32) - 1)]
Signal = Annotated[int, msgspec.Meta(ge=1, le=127)]
Ended = Literal["finished", "interrupted"]
Tracked = Literal["owners", "acls"]
Mode = Literal["transactional", "checkpoint", "auto"]


class Untracked(msgspec.Struct, frozen=True):
    """A node that no image holds: `kind` is socket, character device, block device, mount or outside link; or one that this image does not
    hold for sure: `unstable`, which makes the image stale (C8)."""

    path: JsonBytes
    kind: str


class RootIdentity(msgspec.Struct, frozen=True):
    """What tells a workspace root from another (R6): the id in its xattr, else inode, birth time and file system."""

    id: str
    inode: int
    birth_ns: Nanoseconds | None
    filesystem: str

    def __post_init__(self) -> None:
        if not 0 <= self.inode < 1 << 64:  # more than Meta can say
            raise ValueError("an inode is a number of 64 bits")


class DriverIdentity(msgspec.Struct, frozen=True):
    """A process, for ever: random nonce, pid, start time in clock ticks since boot, boot id, pid namespace."""

    nonce: str
    pid: Count
    start_ticks: Count
    boot_id: str
    pid_namespace: Count


class Exit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a command ended. Code and signal are kept apart: exit code 137 is not signal 9 (I8). It has exactly one of the fields of its
    kind; ValueError otherwise, when one is made and when one is read."""

    kind: Literal["exited", "signaled", "timed_out", "start_failed"]
    code: ExitCode | None = None
    signal: Signal | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("code", "signal", "error") if getattr(self, name) is not None]
        if len(given) != 1 or given[0] not in _EXIT_FIELDS[self.kind]:
            raise ValueError(f"an exit {self.kind} has {' or '.join(_EXIT_FIELDS[self.kind])}, found {', '.join(given) or 'nothing'}")


_EXIT_FIELDS = {"exited": ("code",), "signaled": ("signal",), "timed_out": ("signal", "code"), "start_failed": ("error",)}


class Stderr(msgspec.Struct, frozen=True):
    """What a command wrote to standard error, where it was kept apart: `total` bytes, of which `kept` are kept; `digest` is the BLAKE3 of
    all."""

    total: Count
    kept: Count
    cut: bool
    digest: str


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a command wrote: `total` bytes, of which `kept` are in the blob named `blob` (hex).

    All of it is counted in these. Where standard error was kept apart (`stderr`) its kept bytes are the last `stderr.kept` ones of the
    blob. `digest` is the BLAKE3 of all of standard output, kept or not ("": not recorded); `held` says that something still had the
    output open after the command's end; `missing` why nothing is kept although there was some ("": it is kept).
    """

    total: Count
    kept: Count
    cut: bool
    blob: str
    digest: str = ""
    stderr: Stderr | None = None
    held: bool = False
    missing: str = ""


class ForkedCall(msgspec.Struct, frozen=True):
    """A settled call of the parent, as a fork needs it to go on from there: `request_id` and `request_digest` of its newest attempt, `exit`
    and `output` of its outcome, so that whoever asks for it again in the fork gets the recorded result."""

    call: Number
    script_index: Count | None
    tool: str
    ended: Ended
    root: str
    request_id: str
    request_digest: str
    exit: Exit | None
    output: Output | None


class ForkedInput(msgspec.Struct, frozen=True):
    """An input that the parent had admitted."""

    request_id: str
    input: dict[str, Any]


class Limits(msgspec.Struct, frozen=True):
    """What an image in the log may have at most (C8): bytes of all its files, paths, bytes of one file; null: no limit."""

    bytes: Count | None
    paths: Count | None
    file_bytes: Count | None


class Checkpoints(msgspec.Struct, frozen=True):
    """Where a session's checkpoints are, and how many finished calls may be lost with the newest of them (C7). `manifest` names the
    checkpoint of this event's image, "" where there is none."""

    store: JsonBytes
    lost_work_bound: Count
    manifest: str


class SessionOpened(msgspec.Struct, frozen=True):
    """The first event of a session. `excludes` are its pattern lines and `track` what it tracks beside the rest, both for good. In mode
    `transactional` there are no `checkpoints`."""

    kind: ClassVar[str] = "session_opened"
    version: ClassVar[int] = 4
    at_ms: Instant
    name: str
    workspace: JsonBytes
    mode: Mode
    on_interrupted: Literal["stop", "reissue", "continue"]
    script: list[dict[str, Any]]
    root: str
    root_identity: RootIdentity
    ledger_id: str
    generation: Count
    untracked: list[Untracked]
    excludes: list[JsonBytes]
    track: list[Tracked]
    limits: Limits | None
    checkpoints: Checkpoints | None


class DriverStarted(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "driver_started"
    version: ClassVar[int] = 1
    at_ms: Instant
    identity: DriverIdentity
    ledger_id: str
    generation: Count
    kill_mark: Literal["pid-namespace", "cgroup", "cgroup1", "uts", "environment"]


class WorkspaceObserved(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "workspace_observed"
    version: ClassVar[int] = 2
    at_ms: Instant
    root: str
    untracked: list[Untracked]


class SessionForked(msgspec.Struct, frozen=True):
    """The first event of a stream that goes on from an event of another one. It holds all that is needed without the parent; its
    changes are the whole image at that event. `calls` are the calls settled by then, `inputs` the inputs admitted; `excludes`, `track`,
    `limits` and `checkpoints` are the parent's, and `mode` is its mode there."""

    kind: ClassVar[str] = "session_forked"
    version: ClassVar[int] = 4
    at_ms: Instant
    name: str
    reason: Literal["forked", "imported", "moved", "salvaged"]
    parent_log: str
    parent: str
    parent_seq: Number
    parent_hash: str
    mode: Mode
    on_interrupted: Literal["stop", "reissue", "continue"]
    script: list[dict[str, Any]]
    calls: list[ForkedCall]
    root: str
    untracked: list[Untracked]
    excludes: list[JsonBytes]
    track: list[Tracked]
    limits: Limits | None
    checkpoints: Checkpoints | None
    inputs: list[ForkedInput]


class SessionPlaced(msgspec.Struct, frozen=True):
    """Where a session that was forked, imported or moved is driven from here on: its own workspace and ledger, and the store of the
    checkpoints that it takes, "" where it takes none. No directory bears `root_identity` yet: the first driver finds the root lost and
    rebuilds it (R6)."""

    kind: ClassVar[str] = "session_placed"
    version: ClassVar[int] = 1
    at_ms: Instant
    workspace: JsonBytes
    root_identity: RootIdentity
    ledger_id: str
    generation: Count
    store: JsonBytes


class InputAdmitted(msgspec.Struct, frozen=True):
    """Input from outside, taken in once for each `request_id` of a stream, whoever sends it how often."""

    kind: ClassVar[str] = "input_admitted"
    version: ClassVar[int] = 1
    at_ms: Instant
    request_id: str
    input: dict[str, Any]


class AttemptStarted(msgspec.Struct, frozen=True):
    """The intent. `redacted` says that `input` is not what the call was given: it cannot be replayed from the log. `request_id` is what
    whoever asked for the call calls it, "" where nobody does: under one id of a session one call runs, once."""

    kind: ClassVar[str] = "attempt_started"
    version: ClassVar[int] = 3
    at_ms: Instant
    call: Number
    attempt: Number
    script_index: Count | None
    tool: str
    input: dict[str, Any]
    policy: Literal["safe", "after-restore", "never", "ask"]
    key: str
    request_digest: str
    redacted: bool
    request_id: str


class CallSettled(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "call_settled"
    version: ClassVar[int] = 2
    at_ms: Instant
    call: Number
    attempt: Number
    ended: Ended
    label: str
    reason: str
    exit: Exit | None
    output: Output | None
    root: str
    untracked: list[Untracked]


class CallUndone(msgspec.Struct, frozen=True):
    """A finished call whose effects a restore took back (C3)."""

    kind: ClassVar[str] = "call_undone"
    version: ClassVar[int] = 1
    at_ms: Instant
    call: Number
    reason: str
    decision_seq: Number


class CallReplayed(msgspec.Struct, frozen=True):
    """A finished call that was run again from a checkpoint and reached its root (C3, C7)."""

    kind: ClassVar[str] = "call_replayed"
    version: ClassVar[int] = 1
    at_ms: Instant
    call: Number
    attempt: Number
    root: str


class CheckpointTaken(msgspec.Struct, frozen=True):
    """A copy of the workspace outside the log, durable before this event stands, named by the digest of its manifest (C7). Making it took
    `took_ms`."""

    kind: ClassVar[str] = "checkpoint_taken"
    version: ClassVar[int] = 2
    at_ms: Instant
    manifest: str
    root: str
    took_ms: Count


class ModeSwitched(msgspec.Struct, frozen=True):
    """The one, permanent switch of mode `auto` (C8); `manifest` names the checkpoint that it stands on."""

    kind: ClassVar[str] = "mode_switched"
    version: ClassVar[int] = 2
    at_ms: Instant
    mode: str
    reason: str
    manifest: str


class RecoveryDecided(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "recovery_decided"
    version: ClassVar[int] = 1
    at_ms: Instant
    label: str
    call: Number | None
    attempt: Number | None
    obligation: bool
    target_seq: Number | None
    target_root: str | None
    mode: str
    facts: dict[str, Any]


class Quarantined(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "quarantined"
    version: ClassVar[int] = 1
    at_ms: Instant
    decision_seq: Number
    directory: str
    paths: list[JsonBytes]


class RestoreFinished(msgspec.Struct, frozen=True):
    """The end of a restore. Of the `restored` paths `reverted` were put back in a workspace that was there, `reimaged` placed in one that
    was rebuilt. `accepted`: a person took the workspace as it was found, `root`, in place of the image that the decision aimed at (R5)."""

    kind: ClassVar[str] = "restore_finished"
    version: ClassVar[int] = 3
    at_ms: Instant
    decision_seq: Number
    root: str
    restored: Count
    displaced: Count
    rounds: Count
    reverted: Count
    reimaged: Count
    accepted: bool


class Synced(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "synced"
    version: ClassVar[int] = 1
    at_ms: Instant
    root: str
    boot_id: str


class PauseRequested(msgspec.Struct, frozen=True):
    """Somebody asks for a pause at the next call boundary (L2: whoever may append it). It settles nothing."""

    kind: ClassVar[str] = "pause_requested"
    version: ClassVar[int] = 1
    at_ms: Instant
    reason: str


class ApprovalAsked(msgspec.Struct, frozen=True):
    """Call `call`, of which no attempt has begun, waits for a person's word. `input` is what it would do; `request_id` and `request_digest`
    are what its intent will have, "" for a call of the script."""

    kind: ClassVar[str] = "approval_asked"
    version: ClassVar[int] = 2
    at_ms: Instant
    call: Number
    script_index: Count | None
    tool: str
    input: dict[str, Any]
    request_id: str
    request_digest: str


class ApprovalAnswered(msgspec.Struct, frozen=True):
    """The one answer to the question at `asked_seq`, whoever gives it (L2). `input` is what runs in place of what was asked about, null
    unless `edited`. A rejected call is at its end by this: it never begins."""

    kind: ClassVar[str] = "approval_answered"
    version: ClassVar[int] = 1
    at_ms: Instant
    asked_seq: Number
    answer: Literal["approved", "edited", "rejected"]
    input: dict[str, Any] | None
    reason: str

    def __post_init__(self) -> None:
        if (self.answer == "edited") != (self.input is not None):
            raise ValueError("an answer has an input when it is `edited`, and only then")


class SessionPaused(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "session_paused"
    version: ClassVar[int] = 1
    at_ms: Instant
    root: str
    reason: str


class SessionResumed(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "session_resumed"
    version: ClassVar[int] = 1
    at_ms: Instant


class SessionMoved(msgspec.Struct, frozen=True):
    """The last event of a stream that lives on elsewhere: `digest` is that of the bundle with all events before this one (L8)."""

    kind: ClassVar[str] = "session_moved"
    version: ClassVar[int] = 1
    at_ms: Instant
    digest: str


class SessionFailed(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "session_failed"
    version: ClassVar[int] = 1
    at_ms: Instant
    root: str
    reason: str


class SessionFinished(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "session_finished"
    version: ClassVar[int] = 1
    at_ms: Instant
    root: str


class RootRecorded(msgspec.Struct, frozen=True):
    """The directory that is the session's workspace from here on (R6): made anew by a rebuild, or named by a person who knows it."""

    kind: ClassVar[str] = "root_recorded"
    version: ClassVar[int] = 1
    at_ms: Instant
    how: Literal["rebuilt", "accepted"]
    identity: RootIdentity


class Noted(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "noted"
    version: ClassVar[int] = 1
    at_ms: Instant
    text: str


Event = (
    SessionOpened
    | SessionForked
    | SessionPlaced
    | DriverStarted
    | WorkspaceObserved
    | InputAdmitted
    | AttemptStarted
    | CallSettled
    | CallUndone
    | CallReplayed
    | CheckpointTaken
    | ModeSwitched
    | RecoveryDecided
    | Quarantined
    | RestoreFinished
    | Synced
    | PauseRequested
    | ApprovalAsked
    | ApprovalAnswered
    | SessionPaused
    | SessionResumed
    | SessionMoved
    | SessionFinished
    | SessionFailed
    | RootRecorded
    | Noted
)

EVENT_TYPES: tuple[type[Event], ...] = (
    SessionOpened,
    SessionForked,
    SessionPlaced,
    DriverStarted,
    WorkspaceObserved,
    InputAdmitted,
    AttemptStarted,
    CallSettled,
    CallUndone,
    CallReplayed,
    CheckpointTaken,
    ModeSwitched,
    RecoveryDecided,
    Quarantined,
    RestoreFinished,
    Synced,
    PauseRequested,
    ApprovalAsked,
    ApprovalAnswered,
    SessionPaused,
    SessionResumed,
    SessionMoved,
    SessionFinished,
    SessionFailed,
    RootRecorded,
    Noted,
)


E = TypeVar("E", bound=Event)


class _AttemptStarted1(msgspec.Struct, frozen=True):
    """`attempt_started` version 1, before inputs could be redacted."""

    at_ms: Instant
    call: Number
    attempt: Number
    script_index: Count | None
    tool: str
    input: dict[str, Any]
    policy: Literal["safe", "after-restore", "never", "ask"]
    key: str
    request_digest: str


def _upcast_attempt_started_1(payload: bytes) -> Event:
    old = _attempt_started_1.decode(payload)
    return AttemptStarted(
        old.at_ms, old.call, old.attempt, old.script_index, old.tool, old.input, old.policy, old.key, old.request_digest,
        redacted=False, request_id="",
    )  # fmt: skip


class _AttemptStarted2(_AttemptStarted1, frozen=True):
    """`attempt_started` version 2, before calls had request ids."""

    redacted: bool


def _upcast_attempt_started_2(payload: bytes) -> Event:
    old = _attempt_started_2.decode(payload)
    return AttemptStarted(
        old.at_ms, old.call, old.attempt, old.script_index, old.tool, old.input, old.policy, old.key, old.request_digest, old.redacted,
        request_id="",
    )  # fmt: skip


class _SessionOpened1(msgspec.Struct, frozen=True):
    """`session_opened` version 1, before paths could be excluded, and owners and ACLs tracked."""

    at_ms: Instant
    name: str
    workspace: JsonBytes
    mode: Literal["transactional"]
    on_interrupted: Literal["stop", "reissue", "continue"]
    script: list[dict[str, Any]]
    root: str
    root_identity: RootIdentity
    ledger_id: str
    generation: Count
    untracked: list[Untracked]


def _upcast_session_opened_1(payload: bytes) -> Event:
    old = _session_opened_1.decode(payload)
    return SessionOpened(
        old.at_ms, old.name, old.workspace, old.mode, old.on_interrupted, old.script, old.root, old.root_identity, old.ledger_id,
        old.generation, old.untracked, excludes=[], track=[], limits=None, checkpoints=None,
    )  # fmt: skip


class _ForkedCall3(msgspec.Struct, frozen=True):
    """A call in `session_forked` up to version 3, before it carried what the call ended in."""

    call: Number
    script_index: Count | None
    tool: str
    ended: Ended
    root: str

    def upcast(self) -> ForkedCall:
        return ForkedCall(self.call, self.script_index, self.tool, self.ended, self.root, "", "", None, None)


class _SessionForked1(msgspec.Struct, frozen=True):
    """`session_forked` version 1, of parents of that time."""

    at_ms: Instant
    name: str
    reason: Literal["forked", "imported", "moved", "salvaged"]
    parent_log: str
    parent: str
    parent_seq: Number
    parent_hash: str
    mode: Literal["transactional"]
    on_interrupted: Literal["stop", "reissue", "continue"]
    script: list[dict[str, Any]]
    calls: list[_ForkedCall3]
    root: str
    untracked: list[Untracked]


class _SessionForked3(_SessionForked1, frozen=True):
    """`session_forked` version 3, before inputs were carried on; version 2 is the same."""

    excludes: list[JsonBytes]
    track: list[Tracked]


def _upcast_session_forked_1(payload: bytes) -> Event:
    return _upcast_session_forked(_session_forked_1.decode(payload), [], [])


def _upcast_session_forked_3(payload: bytes) -> Event:
    old = _session_forked_3.decode(payload)
    return _upcast_session_forked(old, old.excludes, old.track)


def _upcast_session_forked(old: _SessionForked1, excludes: list[JsonBytes], track: list[Tracked]) -> Event:
    calls = [call.upcast() for call in old.calls]
    return SessionForked(
        old.at_ms, old.name, old.reason, old.parent_log, old.parent, old.parent_seq, old.parent_hash, old.mode, old.on_interrupted,
        old.script, calls, old.root, old.untracked, excludes, track, limits=None, checkpoints=None, inputs=[],
    )  # fmt: skip


class _SessionOpened3(_SessionOpened1, frozen=True):
    """`session_opened` versions 2 and 3, before there were modes with checkpoints."""

    excludes: list[JsonBytes]
    track: list[Tracked]


def _upcast_session_opened_3(payload: bytes) -> Event:
    old = _session_opened_3.decode(payload)
    return SessionOpened(
        old.at_ms, old.name, old.workspace, old.mode, old.on_interrupted, old.script, old.root, old.root_identity, old.ledger_id,
        old.generation, old.untracked, old.excludes, old.track, limits=None, checkpoints=None,
    )  # fmt: skip


class _ApprovalAsked1(msgspec.Struct, frozen=True):
    """`approval_asked` version 1, before calls that no script names could be asked about."""

    at_ms: Instant
    call: Number
    script_index: Count | None
    tool: str
    input: dict[str, Any]


def _upcast_approval_asked_1(payload: bytes) -> Event:
    old = _approval_asked_1.decode(payload)
    return ApprovalAsked(old.at_ms, old.call, old.script_index, old.tool, old.input, request_id="", request_digest="")


class _CheckpointTaken1(msgspec.Struct, frozen=True):
    """`checkpoint_taken` version 1, before it said what it cost."""

    at_ms: Instant
    manifest: str
    root: str


def _upcast_checkpoint_taken_1(payload: bytes) -> Event:
    old = _checkpoint_taken_1.decode(payload)
    return CheckpointTaken(old.at_ms, old.manifest, old.root, took_ms=0)


class _ModeSwitched1(msgspec.Struct, frozen=True):
    """`mode_switched` version 1, before it named the checkpoint that it stands on."""

    at_ms: Instant
    mode: str
    reason: str


def _upcast_mode_switched_1(payload: bytes) -> Event:
    old = _mode_switched_1.decode(payload)
    return ModeSwitched(old.at_ms, old.mode, old.reason, manifest="")


class _Output1(msgspec.Struct, frozen=True):
    """`output` of that time: both streams in one, and no more of it than its size."""

    total: Count
    kept: Count
    cut: bool
    blob: str


class _CallSettled1(msgspec.Struct, frozen=True):
    """`call_settled` version 1, before output was kept by stream and with its digest."""

    at_ms: Instant
    call: Number
    attempt: Number
    ended: Ended
    label: str
    reason: str
    exit: Exit | None
    output: _Output1 | None
    root: str
    untracked: list[Untracked]


def _upcast_call_settled_1(payload: bytes) -> Event:
    old = _call_settled_1.decode(payload)
    output = None if old.output is None else Output(old.output.total, old.output.kept, old.output.cut, old.output.blob)
    return CallSettled(
        old.at_ms, old.call, old.attempt, old.ended, old.label, old.reason, old.exit, output, old.root, old.untracked
    )  # fmt: skip


class _RestoreFinished2(msgspec.Struct, frozen=True):
    """`restore_finished` up to version 2, before it told a rebuild from a restore, and a person could end one."""

    at_ms: Instant
    decision_seq: Number
    root: str
    restored: Count
    displaced: Count
    rounds: Count


def _upcast_restore_finished_2(payload: bytes) -> Event:
    old = _restore_finished_2.decode(payload)
    return RestoreFinished(old.at_ms, old.decision_seq, old.root, old.restored, old.displaced, old.rounds, old.restored, 0, accepted=False)


_approval_asked_1 = msgspec.json.Decoder(_ApprovalAsked1)
_restore_finished_2 = msgspec.json.Decoder(_RestoreFinished2)
_call_settled_1 = msgspec.json.Decoder(_CallSettled1)
_attempt_started_1 = msgspec.json.Decoder(_AttemptStarted1)
_attempt_started_2 = msgspec.json.Decoder(_AttemptStarted2)
_session_opened_1 = msgspec.json.Decoder(_SessionOpened1)
_session_forked_1 = msgspec.json.Decoder(_SessionForked1)
_session_opened_3 = msgspec.json.Decoder(_SessionOpened3)
_session_forked_3 = msgspec.json.Decoder(_SessionForked3)
_checkpoint_taken_1 = msgspec.json.Decoder(_CheckpointTaken1)
_mode_switched_1 = msgspec.json.Decoder(_ModeSwitched1)
UPCASTS: dict[tuple[str, int], Callable[[bytes], Event]] = {
    ("call_settled", 1): _upcast_call_settled_1,
    ("approval_asked", 1): _upcast_approval_asked_1,
    ("attempt_started", 1): _upcast_attempt_started_1,
    ("attempt_started", 2): _upcast_attempt_started_2,
    ("session_opened", 1): _upcast_session_opened_1,
    ("session_forked", 1): _upcast_session_forked_1,
    ("session_forked", 2): _upcast_session_forked_3,
    ("session_forked", 3): _upcast_session_forked_3,
    # Newer by their changes alone: hard-link groups of symlinks and FIFOs.
    ("session_opened", 2): _upcast_session_opened_3,
    ("session_opened", 3): _upcast_session_opened_3,
    ("checkpoint_taken", 1): _upcast_checkpoint_taken_1,
    ("mode_switched", 1): _upcast_mode_switched_1,
    ("workspace_observed", 1): msgspec.json.Decoder(WorkspaceObserved).decode,
    ("restore_finished", 1): _upcast_restore_finished_2,
    ("restore_finished", 2): _upcast_restore_finished_2,
}
"""For each older version of a kind, what makes an event of today from its stored payload. The log keeps what was written."""

FIRST_KINDS = frozenset({SessionOpened.kind, SessionForked.kind})
UNFENCED_KINDS = frozenset({InputAdmitted.kind, Noted.kind, PauseRequested.kind, ApprovalAnswered.kind})
"""What any process may append under the floor that it finds (L2): it settles nothing."""

_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Event]] = {event.kind: msgspec.json.Decoder(event) for event in EVENT_TYPES}
_versions = {event.kind: event.version for event in EVENT_TYPES}
READ_NEWEST: dict[str, Callable[[bytes], Event]] = {kind: decoder.decode for kind, decoder in _decoders.items()}
"""What reads a payload of a kind's newest version, as the payload of every event that is appended is."""
DECODERS: dict[tuple[bytes, int], Callable[[bytes], Event]] = {
    **{(event.kind.encode(), event.version): _decoders[event.kind].decode for event in EVENT_TYPES},
    **{(kind.encode(), version): upcast for (kind, version), upcast in UPCASTS.items()},
}
"""What reads a payload, by the stored bytes of its kind and its version. Of what is not here, or raises, `decode` says what is wrong."""


def encode(event: Event) -> bytes:
    """The payload bytes of an event: JSON, UTF-8."""
    return _encoder.encode(event)


def find_misplacement(kind: str, seq: int, epoch: int, floor: int) -> str:
    """Why an event may not stand at `seq` under `epoch`, `floor` being that of the events before it; "" when it may.

    The same check before an append and after a read (eventlog/README, "Events and the chain").
    """
    if (kind in FIRST_KINDS) != (seq == 1):
        return f"{kind} at seq {seq}, where session_opened or session_forked is the first event and no other"
    if kind == DriverStarted.kind:
        return "" if epoch > floor else f"driver_started at epoch {epoch}, not above the floor {floor}"
    return "" if epoch == floor else f"epoch {epoch} where the newest driver_started has {floor}"


_RELATED = frozenset({CallSettled.kind, CallUndone.kind, Quarantined.kind, RestoreFinished.kind, RecoveryDecided.kind})
"""The kinds with numbers that can contradict each other: most events are spared the rest of the question."""


def find_contradiction(event: Event, seq: int) -> str:
    """Why the numbers of an event cannot be true together at `seq`, each being possible by itself; "" when they can.

    Asked before an append, and of what comes from somebody else. Its payload alone tells: no other event is looked at.
    """
    if event.kind not in _RELATED:
        return ""
    match event:
        case CallSettled(output=Output() as output):
            apart = output.stderr
            if output.kept > output.total or (apart is not None and apart.kept > apart.total):
                return "more of its output is kept than there was"
            if apart is not None and (apart.total > output.total or apart.kept > output.kept):
                return "more of its output is standard error than there is of both"
        case CallUndone() | Quarantined() | RestoreFinished() if event.decision_seq >= seq:
            return f"it carries out the decision at seq {event.decision_seq}, which does not precede it"
        case RecoveryDecided() if event.target_seq is not None and event.target_seq >= seq:
            return f"it goes back to seq {event.target_seq}, which does not precede it"
        case _:
            pass
    return ""


def decode(kind: str, version: int, payload: bytes, where: str) -> Event:
    """The event in stored bytes. Raises CorruptError naming `where` for an unknown kind, a newer version or a payload that is not one."""
    if kind not in _decoders:
        raise CorruptError(f"{where}: unknown event kind {kind!r}; it was written by a newer version of crashworthy, use that to read it")
    upcast = UPCASTS.get((kind, version))
    if upcast is None and version != _versions[kind]:
        raise CorruptError(
            f"{where}: event kind {kind} version {version} is not known (newest known {_versions[kind]}); upgrade crashworthy to read it"
        )
    try:
        return _decoders[kind].decode(payload) if upcast is None else upcast(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptError(f"{where}: payload of {kind} is damaged: {error}; run `eventlog verify` on the log") from error
