"""Who is attached to a running command: the shim's side of the stream (rule S5, case 34).

A reader never holds the command up. What it has not taken yet is not buffered for it: it reads from what is kept of the output anyway, by
offset, one frame at a time, and what is not held any more is skipped and said to be. A reader of an epoch below the floor is cut off at
the next look at the floor. Whoever connects may send anything and do nothing: the shim owns a command and goes on.
"""

import contextlib
import selectors
import socket
from collections.abc import Callable, Mapping

import msgspec

from eventlog.process_identity import ProcessIdentity
from recovery.space import protocol
from recovery.space.floor_poll import FloorPoll
from recovery.space.output import OutputKeeper
from recovery.space.protocol import Attach, EndCommand, EndFrame, Hello, HelloAnswer, OutputFrame, Stale, StreamName
from recovery.space.records import Exited

FRAME_BYTES = 1 << 16
REQUEST_BYTES = 1 << 16
MOST_CONNECTIONS = 64


class _Connection(msgspec.Struct):
    """One who connected. `offsets` are the next byte of each stream it wants; None until it asked to be attached."""

    socket: socket.socket
    received: bytearray = msgspec.field(default_factory=bytearray)
    pending: bytearray = msgspec.field(default_factory=bytearray)
    epoch: int = 0
    offsets: dict[StreamName, int] | None = None
    watched: int = 0


class Readers:
    """Everybody connected to one command's socket, served from the shim's one loop."""

    def __init__(
        self, listener: socket.socket, key: str, identity: ProcessIdentity, keepers: Mapping[StreamName, OutputKeeper],
        poll: FloorPoll, end_command: Callable[[], None],
    ) -> None:  # fmt: skip
        self._listener = listener
        self._key = key
        self._identity = identity
        self._keepers = keepers
        self._poll = poll
        self._end_command = end_command
        self._connections: list[_Connection] = []
        self._selector: selectors.BaseSelector | None = None
        self.newest_epoch = 0  # the newest epoch that asked anything of this shim
        listener.setblocking(False)

    def serve_from(self, selector: selectors.BaseSelector) -> None:
        """Have the listener and all connections watched by the shim's selector."""
        self._selector = selector
        selector.register(self._listener, selectors.EVENT_READ, self.accept)

    @property
    def wait_secs(self) -> float | None:
        """How long the loop may sleep because of readers; None for as long as it likes."""
        return self._poll.due_secs if any(one.offsets is not None for one in self._connections) else None

    def accept(self, _: int) -> None:
        """Take a new connection."""
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            if len(self._connections) >= MOST_CONNECTIONS:
                connection.close()
                return
            connection.setblocking(False)
            self._connections.append(one := _Connection(connection))
            self._watch(one)

    def _watch(self, one: _Connection) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if one.pending else 0)
        if self._selector is None or one.watched == wanted:
            return
        if one.watched:
            self._selector.modify(one.socket, wanted, lambda mask: self._serve(one, mask))
        else:
            self._selector.register(one.socket, wanted, lambda mask: self._serve(one, mask))
        one.watched = wanted

    def _drop(self, one: _Connection) -> None:
        self._connections.remove(one)
        if self._selector is not None and one.watched:
            self._selector.unregister(one.socket)
        one.socket.close()

    def _serve(self, one: _Connection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ and not self._read(one):
                self._drop(one)
                return
            self._push(one)
        except (OSError, msgspec.MsgspecError):  # gone, or it speaks another language
            self._drop(one)

    def _read(self, one: _Connection) -> bool:
        """Take what was sent; False when the peer is gone or sends what nobody asked it for."""
        try:
            data = one.socket.recv(REQUEST_BYTES)
        except BlockingIOError:
            return True
        one.received += data
        if not data or len(one.received) > REQUEST_BYTES:
            return False
        for message in protocol.take_frames(one.received):
            self._answer(one, message)
        return True

    def _answer(self, one: _Connection, message: protocol.Message) -> None:
        epoch = getattr(message, "epoch", 0)
        floor = self._poll.look_now()
        if epoch < max(floor, 1):
            one.pending += protocol.encode_frame(Stale(f"epoch {epoch} is below the ledger's floor {floor}; a newer driver has the space"))
            return
        self.newest_epoch = max(self.newest_epoch, epoch)
        match message:
            case Hello():
                one.pending += protocol.encode_frame(HelloAnswer(self._key, self._identity))
            case Attach(key=key) if key == self._key:
                wanted: dict[StreamName, int | None] = {"out": message.from_out, "err": message.from_err}
                one.epoch = epoch
                one.offsets = {name: start for name, start in wanted.items() if start is not None and name in self._keepers}
            case EndCommand(key=key) if key == self._key:
                self._end_command()
            case Attach() | EndCommand():
                one.pending += protocol.encode_frame(protocol.Failed(f"this is the shim of {self._key}, not of {message.key}"))
            case _:
                one.pending += protocol.encode_frame(protocol.Failed(f"a shim does not know {type(message).__name__}"))

    def push(self) -> None:
        """Send on what was written since, to whoever takes it; cut off who is superseded."""
        attached = [one for one in self._connections if one.offsets is not None]
        if not attached:
            return
        floor = self._poll.floor()
        for one in attached:
            try:
                if one.epoch >= floor:
                    self._push(one)
                    continue
                if not one.pending:  # a frame that was begun cannot be followed by a word of why
                    one.socket.send(protocol.encode_frame(Stale(f"epoch {one.epoch} was superseded by epoch {floor}")))
                self._drop(one)
            except OSError:
                self._drop(one)

    def _push(self, one: _Connection) -> None:
        """Send until the peer takes no more."""
        while one.pending or self._fill(one):
            try:
                sent = one.socket.send(one.pending)
            except BlockingIOError:
                break
            del one.pending[:sent]
        self._watch(one)

    def _fill(self, one: _Connection) -> bool:
        """Put the next frame of output into `pending`; False when there is none."""
        for name, offset in (one.offsets or {}).items():
            skipped, data = self._keepers[name].read(offset, FRAME_BYTES)
            if data or skipped:
                one.pending += protocol.encode_frame(OutputFrame(name, offset + skipped, data, skipped))
                one.offsets = {**(one.offsets or {}), name: offset + skipped + len(data)}
                return True
        return False

    def finish(self, exited: Exited) -> None:
        """The exit is recorded: everybody gets the rest and the end, as far as they take it at once, and is let go. Who takes less finds
        the rest where it is kept."""
        self._selector = None  # the loop is over
        for one in list(self._connections):
            with contextlib.suppress(OSError):
                if one.offsets is not None and one.epoch >= self._poll.look_now():
                    self._push(one)
                    if not one.pending:
                        one.socket.send(protocol.encode_frame(EndFrame(exited)))
            self._drop(one)
