"""Being attached to a command: its output as it comes, and its end, from any process that can read the space's directory.

The record decides: who is attached waits for the exit record of that key, not for the end of a process by its number, so that nobody is
ever given another command's output or exit after a restart. A reader that is slow, stopped or gone does not hold the command up.
"""

import contextlib
import os
import select
import socket
from collections.abc import Callable, Iterator

import msgspec
from blake3 import blake3

from eventlog.errors import BusyError, CorruptError, LostProcessError, MisuseError, StaleEpochError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, is_alive
from eventlog.show import show_text, show_word
from recovery.space import protocol
from recovery.space.floor_poll import FloorPoll
from recovery.space.ledger import LedgerView
from recovery.space.output import HEAD_BYTES, read_kept
from recovery.space.protocol import Attach, EndCommand, EndFrame, Failed, Hello, OutputFrame, Stale, StreamName
from recovery.space.records import Attempt, Exited, Start
from recovery.space.silence import DEFAULT_SILENT_SECS, Patience, SilenceWatch

FIRST_LOOK_SECS = 0.001
LOOK_SECS = 0.05  # the longest pause between two looks at a ledger that does not say yet what is waited for
Sink = Callable[[StreamName, bytes], None]
Skip = Callable[[StreamName, int], None]


def skip_nothing(stream: StreamName, count: int) -> None:
    """For who does not want to know what was skipped."""


class Taken(msgspec.Struct):
    """How far a reader came: the next byte that it wants of each stream."""

    offsets: dict[StreamName, int] = msgspec.field(default_factory=lambda: {"out": 0, "err": 0})


def attach(
    directory: str, ledger: LedgerView, key: str, epoch: int, clock: Clock, host: Host, sink: Sink,
    skip: Skip = skip_nothing, taken: Taken | None = None, silent_secs: float = DEFAULT_SILENT_SECS,
) -> Exited:  # fmt: skip
    """Give a command's output to `sink` (stream, bytes) as it comes, from its beginning or from `taken` on, and wait for its exit record,
    which is returned. `directory` is the space's, `skip` is told how many bytes are held no more before the next ones.

    An attempt that has ended is replayed from what is kept. One that is only prepared is waited for. Raises MisuseError for a key that is
    not there, StaleEpochError once a newer epoch than `epoch` exists, LostProcessError when the shim ended without a record: nobody knows
    what its command did; BusyError when the shim is stopped or leaves a question open for `silent_secs` (S5), or nothing has begun by then.
    """
    taken = taken or Taken()
    begun_by = clock.monotonic() + silent_secs
    way_out = f"`recovery space advance --dir {show_word(directory)} --epoch {epoch + 1}`"
    poll = FloorPoll(clock, lambda: _look(ledger))
    patience: Patience | None = None
    pause = FIRST_LOOK_SECS
    while True:
        attempt = ledger.state.find(key)
        if attempt is None:
            raise MisuseError(f"{ledger.name}: there is no attempt {key}; `recovery ps` lists those there are")
        if attempt.exit is not None:
            ledger.sync()
            _replay(directory, attempt, attempt.exit, sink, skip, taken)
            return attempt.exit
        _check_floor(poll.floor(), epoch)
        if attempt.void:
            raise LostProcessError(f"{key} was declared never to have started; it has no exit")
        if attempt.start is None and clock.monotonic() >= begun_by:
            raise BusyError(
                f"{show_text(key)} was announced and has not begun for {silent_secs:g} s; ask for it to be started again, or a newer epoch "
                f"declares it void: {way_out}"
            )
        if attempt.start is not None and patience is None:
            patience = _be_patient(directory, attempt, attempt.start, epoch, clock, silent_secs, way_out)
        if attempt.start is not None and patience is not None and not _stream(
            directory, attempt, epoch, sink, skip, taken, poll, patience
        ):  # fmt: skip
            # the sweep of a newer epoch kills a shim sooner than the next look at the floor is due: fenced, not lost
            _check_floor(poll.look_now(), epoch)
            found = ledger.state.find(key)
            if found is not None and found.exit is None and not is_alive(attempt.start.identity, host):
                raise LostProcessError(f"{key}: its shim ended without an exit record: lost, nobody knows what its command did")
            patience.check()  # a file worker has no socket to be asked at
        clock.pause(pause)
        pause = min(2 * pause, LOOK_SECS)
        ledger.refresh()


def _be_patient(
    directory: str, attempt: Attempt, start: Start, epoch: int, clock: Clock, silent_secs: float, way_out: str
) -> Patience:  # fmt: skip
    def ask() -> socket.socket:
        connection = connect_shim(directory, start.socket)
        protocol.send(connection, Hello(epoch))
        return connection

    owner = "shim" if attempt.prepared.kind == "command" else "file worker"
    return Patience(attempt.prepared.key, owner, start.identity, SilenceWatch(ask, clock, silent_secs), clock, way_out)


def _look(ledger: LedgerView) -> int:
    ledger.refresh()
    return ledger.state.floor


def _check_floor(floor: int, epoch: int) -> None:
    if epoch < floor:
        raise StaleEpochError(f"epoch {epoch} was superseded by epoch {floor}")


def _stream(
    directory: str, attempt: Attempt, epoch: int, sink: Sink, skip: Skip, taken: Taken, poll: FloorPoll, patience: Patience
) -> bool:  # fmt: skip
    """Take frames until the end or until the shim is gone; False when nobody answers at its socket. Raises StaleEpochError, BusyError."""
    if attempt.start is None:
        return False
    try:
        connection = connect_shim(directory, attempt.start.socket)
    except OSError:
        return False
    with connection, contextlib.closing(patience):
        with contextlib.suppress(OSError):  # gone meanwhile: what it sent is read all the same
            protocol.send(connection, Attach(epoch, attempt.prepared.key, taken.offsets["out"], taken.offsets["err"]))
        for message in _receive_all(connection, poll, epoch, patience):
            match message:
                case OutputFrame(stream=stream, offset=offset, data=data, skipped=skipped):
                    if skipped:
                        skip(stream, skipped)
                    sink(stream, data)
                    taken.offsets[stream] = offset + len(data)
                case EndFrame():
                    return True
                case Stale(message=why):
                    raise StaleEpochError(why)
                case Failed(message=why):
                    raise MisuseError(why)
                case _:
                    return False
    return False


def _receive_all(connection: socket.socket, poll: FloorPoll, epoch: int, patience: Patience) -> Iterator[protocol.Message]:
    """Messages until the peer is gone. The floor is looked at meanwhile: nothing is passed on that came after it was seen to be higher."""
    readable = select.poll()
    readable.register(connection, select.POLLIN)
    while True:
        ready = readable.poll(poll.due_secs * 1000)
        _check_floor(poll.floor(), epoch)
        if ready:
            message = protocol.receive(connection)
            if message is None:
                return
            yield message
        else:
            patience.check()


def _replay(directory: str, attempt: Attempt, exited: Exited, sink: Sink, skip: Skip, taken: Taken) -> None:
    """What is kept of an ended attempt, from where the reader came to on. Of a cut stream a reader that began before the cut gets the rest
    of the head, is told what is missing, and gets the tail."""
    out, err = read_output(directory, attempt.prepared.mark, exited)
    for stream, kept, total in (("out", out, exited.output_total), ("err", err, exited.stderr_total)):
        for missing, data in cut_from(kept, total, taken.offsets[stream]):  # type: ignore[index]
            if missing:
                skip(stream, missing)  # type: ignore[arg-type]
            if data:
                sink(stream, data)  # type: ignore[arg-type]


def cut_from(kept: bytes, total: int, offset: int) -> Iterator[tuple[int, bytes]]:
    """Pieces of a kept stream from `offset` of the whole one on: how many bytes are missing before each, and the piece. Pure."""
    if offset >= total or not kept:
        if offset < total:
            yield total - offset, b""
        return
    if len(kept) == total:
        yield 0, kept[offset:]
        return
    head, tail = split_kept(kept)
    begin = total - len(tail)
    if offset < len(head):
        yield 0, head[offset:]
    reached = max(offset, len(head))
    yield max(0, begin - reached), tail[max(0, reached - begin) :]


def split_kept(kept: bytes) -> tuple[bytes, bytes]:
    """Head and tail of a stream that was cut, without the marker between them."""
    from_head = kept[HEAD_BYTES:]
    return kept[:HEAD_BYTES], from_head[from_head.index(b"]\n") + 2 :]


def read_output(directory: str, mark: str, exited: Exited) -> tuple[bytes, bytes]:
    """What is kept of an ended attempt's stdout (or merged output) and stderr, as its record says. Raises CorruptError when the files hold
    something else."""
    out, err = read_kept(directory, mark.rpartition("/")[2])
    if (len(out), len(err)) != (exited.output_kept, exited.stderr_kept) and not exited.missing:
        raise CorruptError(
            f"{exited.key}: {exited.output_kept} and {exited.stderr_kept} bytes of output were kept, {len(out)} and {len(err)} are there; "
            "put the space's own output files back"
        )
    for kept, total, digest in ((out, exited.output_total, exited.digest), (err, exited.stderr_total, exited.stderr_digest)):
        if not exited.missing and digest and len(kept) == total and blake3(kept).hexdigest() != digest:
            raise CorruptError(f"{exited.key}: its output is not what was written; put the space's own output files back")
    return (b"", b"") if exited.missing else (out, err)


def name_socket(mark: str, shim: ProcessIdentity) -> str:
    """The name of a shim's socket, also before its starting mark has it. Two handles may have a shim each for one prepared key: until one
    has the mark, neither may take the other's socket. Pure."""
    return f"{mark.rpartition('/')[2]}.{shim.pid}"


def connect_shim(directory: str, name: str) -> socket.socket:
    """A connection to the shim that listens under this name, through a directory descriptor (paths to sockets are at most 107 bytes).
    OSError when nobody listens; BlockingIOError when so many wait to be taken that one more is not let in: it may be stopped."""
    descriptor = os.open(os.path.join(directory, "sockets"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
        connection.setblocking(True)
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(descriptor)
    return connection


def end_command(directory: str, attempt: Attempt, epoch: int) -> bool:
    """Ask a running attempt's shim to kill its command and all it started; False when nobody answers. Its exit is recorded as any other."""
    if attempt.start is None:
        return False
    try:
        with connect_shim(directory, attempt.start.socket) as connection:
            protocol.send(connection, EndCommand(epoch, attempt.prepared.key))
    except OSError:
        return False
    return True
