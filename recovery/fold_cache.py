"""The fold on disk: what a session's log said up to one of its events, kept beside the log, so that a long history is not folded anew.

    8 bytes magic and version | 32 bytes BLAKE3 of the rest | MessagePack array: Binding, state

Mode 0600, written under a temporary name and renamed, not synced: a file torn by a crash fails its checksum, and losing it costs time only.

What must hold (I9): the state in it is used only where the log's rows up to its event are, byte for byte and type for type, the ones that
were verified against the chain when it was made. `Binding.digest` says which those were, and is made again from the rows at each use; that
costs a fraction of what hashing, decoding and folding each event does. Where one bit of them is another one, or a row is missing, the file
is as if it were not there, and reading the log from its beginning says what is damaged. What follows its event is verified and folded as
ever.

The digest goes by pages, so that whoever adds to a log adds to it: digest of a page = BLAKE3(digest of the page before, MessagePack of its
rows); before the first page it is that of the log's id and the stream's.
"""

import contextlib
import functools
import os
import typing
from typing import Any

import msgspec
from blake3 import blake3

from eventlog import durable
from eventlog.collection import collection_paused
from eventlog.errors import CorruptError
from eventlog.image import Entry, ImageTree
from eventlog.reader import BEGINNING, Position, Reader, StoredEvent
from eventlog.values import Epoch, Seq, StreamId
from recovery.call_list import CallList
from recovery.mode_state import ModeState, Taken
from recovery.state import CallState, SessionState
from recovery.workspace.profile import Profile, profile_of

Known = tuple[SessionState, list[str]]
"""A session's verified, folded state, and the hash (hex) of every event by seq - 1."""
FOLD_VERSION = 1
"""Raised by whoever makes the fold say something else of the same events (a test over golden histories shows it): then what an older
version kept is not taken."""
PAGE_EVENTS = 1024
LEAST_EVENTS = 1024
MOST_SHARE = 32
"""It is written once LEAST_EVENTS and one part in MOST_SHARE of all events have come since: writing stays a small part of appending them,
and what is left to be folded at a start a small part of the history."""
STEP = "fold.cache"
_MAGIC = b"CWFOLD\0\1"
_DIGEST = 32


class Binding(msgspec.Struct, frozen=True, array_like=True):
    """What a state was folded from: the log's rows of one stream up to an event, by this fold."""

    fold: str
    log_id: str
    stream: str
    seq: int
    digest: bytes


class _Apart(msgspec.Struct, array_like=True):
    """The parts of a state that are kept in another shape than they have: the image as pairs, the calls as a list, the checkpoints named
    oldest first (each knows the one before it, deeper than any encoder goes), and of the profile what the first event does not say."""

    image: dict[bytes, Entry]
    calls: list[CallState]
    modes: ModeState
    taken: list[Taken]
    left_out: list[bytes]


_APART = frozenset({"image", "calls", "modes", "profile"})
_PLAIN = tuple(name for name in SessionState.__struct_fields__ if name not in _APART)
_encoder = msgspec.msgpack.Encoder()


@functools.cache  # made when they are needed: most drivers have no long log, and every driver imports this
def _bound() -> msgspec.msgpack.Decoder[tuple[Binding, msgspec.Raw]]:
    return msgspec.msgpack.Decoder(tuple[Binding, msgspec.Raw])


@functools.cache
def _decoder() -> msgspec.msgpack.Decoder[Any]:
    hints = typing.get_type_hints(SessionState)
    plain: Any = tuple.__class_getitem__(tuple(hints[name] for name in _PLAIN))
    return msgspec.msgpack.Decoder(tuple.__class_getitem__((plain, _Apart)))


@functools.cache
def name_fold() -> str:
    """Which fold makes a state: its version, and the names and types of what a state has, and of what is in that."""
    shapes: dict[str, str] = {}
    waiting: list[Any] = [SessionState, _Apart]
    while waiting:
        kind = waiting.pop()
        waiting += typing.get_args(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            name = f"{kind.__module__}.{kind.__qualname__}"
            if name not in shapes:
                hints = {} if kind is Profile else typing.get_type_hints(kind)  # that is made from the first event, and not kept
                shapes[name] = repr(hints)
                waiting += hints.values()
    return f"{FOLD_VERSION} {blake3(repr(sorted(shapes.items())).encode()).hexdigest()}"


class FoldCache:
    """The kept fold of one session's log. One process writes it: the session's driver.

    `_page` is how far the log's rows are known here, to the end of a page, and their digest; `_saved` the event that the file is good for.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._page: tuple[Position, bytes] | None = None
        self._saved = 0

    def load(self, reader: Reader, stream: StreamId) -> Known | None:
        """The state that was kept, and the hashes up to its head, where the log has the same rows still; None where there is none."""
        with collection_paused():
            try:
                with open(self._path, "rb") as file:
                    data = file.read()
                body = memoryview(data)[len(_MAGIC) + _DIGEST :]
                if data[: len(_MAGIC)] != _MAGIC or blake3(body).digest() != data[len(_MAGIC) : len(_MAGIC) + _DIGEST]:
                    return None
                bound, kept = _bound().decode(body)
                if (bound.fold, bound.log_id, bound.stream) != (name_fold(), reader.log_id, stream):
                    return None
                hashes = self._compare(reader, bound)
                if hashes is None:
                    return None
                state = decode_state(kept)
            except (OSError, CorruptError, msgspec.MsgspecError, ValueError):
                self._page = None
                return None  # whatever is wrong with the log is said by whoever reads it from its beginning
        self._saved = bound.seq
        return state, hashes

    def _compare(self, reader: Reader, bound: Binding) -> list[str] | None:
        """The hashes of the events up to a binding's, where their rows have its digest."""
        hashes: list[Any] = []
        digest, stream = _first_digest(reader, StreamId(bound.stream)), StreamId(bound.stream)
        page = BEGINNING, digest
        for after in range(0, bound.seq, PAGE_EVENTS):
            rows = reader.raw_rows(stream, after, min(after + PAGE_EVENTS, bound.seq))
            digest = _next_digest(digest, rows)
            hashes += [row[0] for row in rows[0]]
            if rows[0] and len(rows[0]) == PAGE_EVENTS:
                page = _position(rows[0][-1]), digest
        if digest != bound.digest:
            return None
        self._page = page
        return list(map(bytes.hex, hashes))

    def follow(self, reader: Reader, stored: StoredEvent, stream: StreamId) -> None:
        """Take in that an event was verified now, those before it having been taken in too."""
        if self._page is None and stored.seq == 1:
            self._page = BEGINNING, _first_digest(reader, stream)
        if self._page is not None and stored.seq == self._page[0].seq + PAGE_EVENTS:
            rows = reader.raw_rows(stream, self._page[0].seq, stored.seq)
            self._page = Position(stored.seq, stored.hash, stored.epoch), _next_digest(self._page[1], rows)

    def offer(self, reader: Reader, stream: StreamId, state: SessionState) -> None:
        """Write the state at the log's head down, if that is worth it: what stands in the log since the last page is verified for it.

        Raises what reading the log does; a file that cannot be written is none."""
        if state.head_seq - self._saved < max(LEAST_EVENTS, state.head_seq // MOST_SHARE):
            return
        position, head = BEGINNING if self._page is None else self._page[0], 0
        for stored in reader.events(stream, position):
            self.follow(reader, stored, stream)
            head = stored.seq
        if head != state.head_seq or self._page is None:
            return  # somebody appends beside us: the next time, then
        page, digest = self._page
        if page.seq < head:
            digest = _next_digest(digest, reader.raw_rows(stream, page.seq, head))
        self._saved = head
        with contextlib.suppress(msgspec.MsgspecError, ValueError, TypeError, OverflowError):  # a number that MessagePack does not hold
            self._write(_encoder.encode((Binding(name_fold(), reader.log_id, stream, head, digest), msgspec.Raw(encode_state(state)))))

    def _write(self, body: bytes) -> None:
        temporary = f"{self._path}.new"  # one name, so that killed writers leave one file at most
        with contextlib.suppress(OSError):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                durable.write_all(descriptor, _MAGIC + blake3(body).digest() + body, STEP)
            except OSError:
                durable.unlink(temporary, STEP)
                raise
            finally:
                os.close(descriptor)
            durable.rename(temporary, self._path, STEP)


def _first_digest(reader: Reader, stream: StreamId) -> bytes:
    return blake3(_encoder.encode((reader.log_id, stream))).digest()


def _next_digest(before: bytes, rows: tuple[list[tuple[object, ...]], list[tuple[object, ...]]]) -> bytes:
    return blake3(before + _encoder.encode(rows)).digest()


def _position(row: tuple[object, ...]) -> Position:
    """The position of an event in a raw row. It is not used before the digest of its page was found to be right."""
    digest, seq, _, epoch, *_ = row
    if not (isinstance(digest, bytes) and isinstance(seq, int) and isinstance(epoch, int)):
        raise CorruptError("a column has the wrong type")
    return Position(Seq(seq), digest, Epoch(epoch))


def encode_state(state: SessionState) -> bytes:
    """The bytes of a state. Raises what encoding does for a number that is too large."""
    taken = list(reversed(state.modes.list_taken()))
    bare = [msgspec.structs.replace(one, previous=None) for one in taken]
    apart = _Apart(
        dict(state.image.items()), list(state.calls), msgspec.structs.replace(state.modes, newest=None), bare,
        sorted(state.profile.left_out),
    )
    return _encoder.encode((tuple(getattr(state, name) for name in _PLAIN), apart))


def decode_state(data: bytes | msgspec.Raw) -> SessionState:
    """The state in its bytes. Raises msgspec's errors, CorruptError."""
    values, apart = _decoder().decode(data)
    plain = dict(zip(_PLAIN, values, strict=True))
    newest: Taken | None = None
    for one in apart.taken:
        newest = msgspec.structs.replace(one, previous=newest)
    profile = msgspec.structs.replace(profile_of(plain["opened"]), left_out=frozenset(apart.left_out))
    modes = msgspec.structs.replace(apart.modes, newest=newest)
    return SessionState(**plain, image=ImageTree.of(apart.image), calls=CallList(apart.calls), modes=modes, profile=profile)
