"""What driver, spawner, shim and file worker say to each other: closed unions of messages, framed on Unix stream sockets.

A frame is a u32 length and that many bytes of JSON. Every request carries the epoch of who asks. A peer that ends closes its
socket: `receive` then returns None, and no message is ever half-read.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from eventlog.errors import CrashworthyError
from eventlog.events import Exit, RootIdentity
from eventlog.process_identity import ProcessIdentity
from eventlog.show import show_text
from recovery.space.records import Exited
from recovery.space.request import CommandRequest

StreamName = Literal["out", "err"]


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """To the spawner: register under this mark, then serve."""

    epoch: int
    mark: str
    ledger: str
    directory: str


class StartShim(msgspec.Struct, frozen=True, tag="start_shim"):
    """To the spawner: fork a shim under a mark of its own; its socket comes back with the answer."""

    epoch: int
    mark: str


class StartWorker(msgspec.Struct, frozen=True, tag="start_worker"):
    """To the spawner: fork the file worker; its socket comes back with the answer. With `is_synced` every change is on disk before its exit
    is recorded: for a space without a log, whose record is all there is."""

    epoch: int
    mark: str
    root: bytes
    space_id: str
    is_synced: bool = False


class RunCommand(msgspec.Struct, frozen=True, tag="run_command"):
    """To an idle shim: own this prepared command. `ordinal` counts the commands of this epoch (it names the role in steps); `wrapper`
    confines it (Bubblewrap.wrap), and is empty in the local space."""

    epoch: int
    mark: str
    ordinal: int
    request: CommandRequest
    wrapper: list[bytes] = []


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """From a shim: the exit of this key is recorded; it is idle, or ends now."""

    key: str
    is_idle: bool


class Delayed(msgspec.Struct, frozen=True, tag="delayed"):
    """From a shim: the command of this key has ended, its exit cannot be recorded, and it tries again."""

    key: str
    message: str


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """To a shim: send me what its command writes, from these offsets on (None: not that stream), and tell me when its exit is recorded."""

    epoch: int
    key: str
    from_out: int | None = 0
    from_err: int | None = 0


class EndCommand(msgspec.Struct, frozen=True, tag="end_command"):
    """To a shim: kill its command and all it started. No answer: its exit is recorded as any other."""

    epoch: int
    key: str


class OutputFrame(msgspec.Struct, frozen=True, tag="output"):
    """From a shim to a reader: `data` stands at `offset` of the stream; `skipped` bytes before it are held no more."""

    stream: StreamName
    offset: int
    data: bytes
    skipped: int = 0


class EndFrame(msgspec.Struct, frozen=True, tag="end"):
    """From a shim to a reader: the exit is recorded, as `exited` has it, and no frame follows."""

    exited: Exited


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """From the spawner: the process it forked, or itself in answer to Begin."""

    identity: ProcessIdentity


class Stale(msgspec.Struct, frozen=True, tag="stale"):
    """The asker's epoch is below the floor."""

    message: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The request could not be carried out. `error` names the class of this project's error, "" for the operating system's own."""

    message: str
    error: str = ""


def tell_failure(error: Exception) -> Failed:
    """What a helper says of what kept it from its work: of an error of the operating system in words for people, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return Failed(f"{error.strerror}: {show_text(str(error.filename))}" if error.filename else error.strerror)
    return Failed(str(error), type(error).__name__ if isinstance(error, CrashworthyError) else "")


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """To a shim: do you live, and whose are you (the handshake of a claim)."""

    epoch: int


class HelloAnswer(msgspec.Struct, frozen=True, tag="hello_answer"):
    """From a shim."""

    key: str
    identity: ProcessIdentity


class PrepareSide(msgspec.Struct, frozen=True, tag="prepare_side"):
    """To the file worker: side directory, and the root's identity when it has none; `root` is the identity the session began with."""

    epoch: int
    key: str
    root: RootIdentity


class TakeRoot(msgspec.Struct, frozen=True, tag="take_root"):
    """To the file worker: give the workspace root the random `id`, in a directory that is made for it, or in an empty one; in one with
    content only where `is_accepted` (a person named it). Answers with the root's identity."""

    epoch: int
    key: str
    id: str
    is_accepted: bool


class WriteFile(msgspec.Struct, frozen=True, tag="write_file"):
    """To the file worker: the write tool."""

    epoch: int
    key: str
    path: bytes
    content: bytes
    mode: int | None


class EditFile(msgspec.Struct, frozen=True, tag="edit_file"):
    """To the file worker: the edit tool."""

    epoch: int
    key: str
    path: bytes
    old: bytes
    new: bytes


class DeletePath(msgspec.Struct, frozen=True, tag="delete_path"):
    """To the file worker: remove a file, symlink, FIFO or empty directory."""

    epoch: int
    key: str
    path: bytes


class ApplyPlan(msgspec.Struct, frozen=True, tag="apply_plan"):
    """To the file worker: carry out a restore plan (`plan` is its JSON), with its contents in the pack `contents` (a path)."""

    epoch: int
    key: str
    plan: bytes
    quarantine: str
    contents: str


class EmptyQuarantine(msgspec.Struct, frozen=True, tag="empty_quarantine"):
    """To the file worker: delete what these decisions displaced (`directories` are their names in quarantine)."""

    epoch: int
    key: str
    directories: list[str]


class Done(msgspec.Struct, frozen=True, tag="done"):
    """From the file worker: the request's exit, as its ledger record has it."""

    exit: Exit
    message: str
    detail: dict[str, Any]


WorkerRequest = PrepareSide | TakeRoot | WriteFile | EditFile | DeletePath | ApplyPlan | EmptyQuarantine
Message = (
    Begin
    | StartShim
    | RunCommand
    | Ended
    | Delayed
    | Attach
    | EndCommand
    | OutputFrame
    | EndFrame
    | StartWorker
    | Forked
    | Stale
    | Failed
    | Hello
    | HelloAnswer
    | PrepareSide
    | TakeRoot
    | WriteFile
    | EditFile
    | DeletePath
    | ApplyPlan
    | EmptyQuarantine
    | Done
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


_HEADER_BYTES = 4


def encode_frame(message: Message) -> bytes:
    """One message as it goes over the wire."""
    body = _encoder.encode(message)
    return struct.pack(">I", len(body)) + body


def send(connection: socket.socket, message: Message, descriptors: list[int] | None = None) -> None:
    """Send one message, with open descriptors when given. BrokenPipeError when the peer is gone."""
    frame = encode_frame(message)
    if descriptors:
        sent = socket.send_fds(connection, [frame[:_HEADER_BYTES]], descriptors)
        frame = frame[sent:]
    connection.sendall(frame)  # at once: a peer that is woken by the length alone would have to wait again


def take_frames(received: bytearray) -> Iterator[Message]:
    """The whole messages at the front of a buffer, which are taken from it. Raises MsgspecError for one that is none."""
    while len(received) >= 4 and len(received) >= 4 + (size := struct.unpack(">I", received[:4])[0]):
        body = bytes(received[4 : 4 + size])
        del received[: 4 + size]
        yield _decoder.decode(body)


def receive(connection: socket.socket) -> Message | None:
    """The next message, or None when the peer is gone (also in the middle of one)."""
    header = _receive_exactly(connection, 4)
    body = _receive_exactly(connection, struct.unpack(">I", header)[0]) if header else b""
    return _decoder.decode(body) if body else None


def receive_with_descriptor(connection: socket.socket) -> tuple[Message | None, int | None]:
    """`receive`, and the descriptor that came along."""
    try:
        header, descriptors, _, _ = socket.recv_fds(connection, 4, 1)
    except ConnectionResetError:
        return None, None
    header += _receive_exactly(connection, 4 - len(header)) if 0 < len(header) < 4 else b""
    body = _receive_exactly(connection, struct.unpack(">I", header)[0]) if len(header) == 4 else b""
    return (_decoder.decode(body) if body else None), (descriptors[0] if descriptors else None)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = connection.recv(min(size - len(parts), 1 << 20))
        except ConnectionResetError:
            return b""
        if not part:
            return b""
        parts += part
    return bytes(parts)
