"""What a call came to, as its caller is told: read from its outcome in the log, so that whoever asks again is told the same (C3)."""

from typing import Literal

import msgspec

from eventlog import events
from eventlog.errors import InternalError
from eventlog.reader import Position, Reader
from eventlog.values import ContentId, Epoch, Seq, StreamId
from recovery.fold_cache import Known
from recovery.state import CallState, RejectedRequest


class ChangedPath(msgspec.Struct, frozen=True):
    """A path that a call changed: `op` is put (made or changed), del (removed) or times (its time alone)."""

    path: bytes
    op: Literal["put", "del", "times"]


class CallResult(msgspec.Struct, frozen=True):
    """The one final result of a call (C3). It never changes, whatever becomes of the call's effects later.

    `ended` rejected: a person did not let it begin (`reason` is what was said); it has no number (`call` is 0), and nothing was done.
    interrupted: the call was cut, nothing of it is left in the workspace, and what it did elsewhere may be half done; it has no
    exit and no output then. `exit` is how its command ended, or how the file worker did. `stdout` and `stderr` are what is kept of the
    output (both streams in `stdout` where they were not kept apart); `output` counts all of it. `changed` is None where this log does
    not say (a call that was settled before a fork). `root` is the image's root after it, `label` and `reason` how it was settled.
    `is_recorded` says that it did not run now: the log had its result. `is_undone`: a restore, a person's
    or one from an older checkpoint, took its effects back later.
    """

    key: str
    call: int
    ended: events.Ended | Literal["rejected"]
    exit: events.Exit | None
    stdout: bytes
    stderr: bytes
    output: events.Output | None
    changed: tuple[ChangedPath, ...] | None
    root: str
    label: str
    reason: str
    is_recorded: bool = False
    is_undone: bool = False

    @property
    def ok(self) -> bool:
        """Whether it finished with exit code 0."""
        return self.ended == "finished" and self.exit is not None and self.exit.code == 0 and self.exit.kind == "exited"

    @property
    def text(self) -> str:
        """`stdout` as text; bytes that are not UTF-8 become surrogate escapes."""
        return self.stdout.decode("utf-8", "surrogateescape")


def read_result(reader: Reader, stream: StreamId, known: Known, call: CallState, *, is_recorded: bool) -> CallResult:
    """The result of a settled call of `known`, which was read from `reader`. Raises CorruptError, CompactedError for given-up output."""
    if call.forked is not None:
        return _read_forked(reader, call, call.forked)
    seq, hashes = call.settled_seq, known[1]
    before = Position(Seq(seq - 1), bytes.fromhex(hashes[seq - 2]), _epoch_before(reader, stream, seq))
    stored = next(reader.events(stream, before))
    settled = stored.event
    if not isinstance(settled, events.CallSettled):
        raise InternalError(f"call {call.number} was folded as settled at seq {seq}, where {settled.kind} stands")
    stdout, stderr = read_streams(reader, settled.output)
    changed = tuple(ChangedPath(change.path, change.op) for change in stored.changes)
    return CallResult(
        call.request_id, call.number, settled.ended, settled.exit, stdout, stderr, settled.output, changed, settled.root, settled.label,
        settled.reason, is_recorded, call.undone_by is not None,
    )  # fmt: skip


def describe_rejected(rejected: RejectedRequest, root: str) -> CallResult:
    """The result of a call that a person rejected; `root` is the image's root now."""
    return CallResult(rejected.request_id, 0, "rejected", None, b"", b"", None, (), root, "", rejected.reason, is_recorded=True)


def _epoch_before(reader: Reader, stream: StreamId, seq: int) -> Epoch:
    """The floor at the event before `seq`."""
    found = reader.rows("SELECT epoch FROM event WHERE stream = ? AND seq = ?", (stream, seq - 1))
    return Epoch(int(str(found[0][0])))


def _read_forked(reader: Reader, call: CallState, forked: events.ForkedCall) -> CallResult:
    stdout, stderr = read_streams(reader, forked.output)
    return CallResult(
        call.request_id, call.number, forked.ended, forked.exit, stdout, stderr, forked.output, None, forked.root, "", "", True
    )


def read_streams(reader: Reader, output: events.Output | None) -> tuple[bytes, bytes]:
    """What is kept of an output: standard output, or both streams, and standard error where it was kept apart."""
    if output is None or not output.kept:
        return b"", b""
    data = b"".join(reader.content(ContentId(bytes.fromhex(output.blob))))
    if output.stderr is None:
        return data, b""
    return data[: len(data) - output.stderr.kept], data[len(data) - output.stderr.kept :]
