"""Reading a bundle, which is hostile input until all of it was checked. Nothing is written here.

Ordering invariants. No length is believed before it was compared with its bound, nothing is allocated for what was only announced, and
expansion stops where the limits say (`bundle_format`; `most_bytes` of a walk). What a walk yields was checked up to that point: an event
with its place in the chain, under the names of its origin, its image and its root; a piece of a content only within the size that was
announced. The whole is believed when `finish` has returned.
"""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import zstandard
from blake3 import blake3

from eventlog import bundle_format as form
from eventlog import codec, events
from eventlog.errors import CorruptError, FullError, MisuseError
from eventlog.excludes import excludes_of
from eventlog.image import Change, Entry, changes_digest, check_image, fold_into, is_identity_change, root_hash
from eventlog.reader import StoredEvent, VerbatimEvent
from eventlog.show import show_text
from eventlog.values import ZERO_HASH, ContentId, Epoch, Seq
from eventlog.verify import claimed_root

_READ_BYTES = 1 << 18
_FEED_BYTES = 1 << 10
"""Compressed bytes given to the decompressor at a time: at least 4 make a block of 128 KiB, so that they expand to 32 MiB at most."""
_SPENT_BYTES = 1 << 20


class Bundle:
    """An open bundle file whose first line was read. Every walk begins anew, on the same open file."""

    def __init__(self, file: str) -> None:
        """Raises MisuseError for what is no bundle or one of a newer format."""
        self.name = show_text(file)
        try:
            # Not blocking: a FIFO must be refused, not waited for.
            self.descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise MisuseError(f"{self.name}: cannot be opened ({getattr(error, 'strerror', error)}); name a bundle") from error
        try:
            self.size = self._checked_size()
            self.magic = self._read_magic()
        except BaseException:
            os.close(self.descriptor)
            raise

    @property
    def is_moved(self) -> bool:
        """Whether it was made by `export --move`. The first line says so, which no digest covers: it is a word for people."""
        return self.magic == form.MOVED_MAGIC

    def close(self) -> None:
        os.close(self.descriptor)

    @contextmanager
    def naming(self, where: str = "its events") -> Iterator[None]:
        """What is found to be damaged inside says which bundle it was, and what to do."""
        try:
            yield
        except CorruptError as error:
            if str(error).startswith(f"{self.name}: "):
                raise
            raise CorruptError(f"{self.name}: {where}: {error}; the bundle was refused, have the session exported again") from error

    def walk(self, most_bytes: int) -> "Walk":
        """Begin at the beginning; at most `most_bytes` of uncompressed events and contents are taken."""
        return Walk(self, most_bytes)

    def _checked_size(self) -> int:
        status = os.fstat(self.descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise MisuseError(f"{self.name}: not a regular file; a bundle is read more than once, so put it into a file")
        return status.st_size

    def _read_magic(self) -> bytes:
        begun = os.pread(self.descriptor, form.MAGIC_BYTES, 0)
        line = begun[: begun.find(b"\n") + 1]
        if line in (form.PLAIN_MAGIC, form.MOVED_MAGIC):
            return line
        version = line[len(form.MAGIC_WORDS) : -1].split(b" ")[0]
        if line.startswith(form.MAGIC_WORDS) and version.isdigit() and version != b"%d" % form.FORMAT:
            raise MisuseError(
                f"{self.name}: bundle format {version.decode()} is not known here (this version reads {form.FORMAT}); "
                "use the version that wrote it"
            )
        raise MisuseError(f"{self.name}: not a bundle; name a file that `eventlog export` made")


class Walk:
    """One reading of a bundle, from its beginning: `header`, then `events`, then `contents`, then `finish`."""

    def __init__(self, bundle: Bundle, most_bytes: int) -> None:
        self._bundle = bundle
        self._records = _Records(bundle)
        self._most_bytes = most_bytes
        self._total = 0
        self._meta_bytes = 0
        self._most_meta_bytes = form.EVENTS_ALLOWANCE + form.EVENTS_RATIO * bundle.size
        self._wanted: dict[ContentId, int] = {}
        self._last_content = b""
        self.given_up: list[form.GivenUp] = []
        self.counts = form.Counts()
        self.digest = b""
        with self._bundle.naming("its header"):
            self.header = form.decode_header(self._take_meta(form.HEADER))

    def events(self) -> Iterator[VerbatimEvent]:
        """Every event, checked with all before it. Raises CorruptError, FullError."""
        check = _StreamCheck(self.header)
        while check.seq < self.header.head_seq:
            with self._bundle.naming(f"seq {check.seq + 1}"):
                found = form.decode_event(self._take_meta(form.EVENT))
                changes = tuple(self._take_change(index) for index in range(found.changes))
                verbatim = check.take(found, changes)
                form.want_contents(self._wanted, verbatim.stored)
            self.counts = msgspec.structs.replace(self.counts, events=self.counts.events + 1, changes=self.counts.changes + len(changes))
            yield verbatim
        with self._bundle.naming(f"seq {check.seq}"):
            check.finish()

    def contents(self) -> Iterator[tuple[ContentId, int, Iterator[bytes]]]:
        """Every content: its id, its size, its pieces. Whoever takes the next one has taken all pieces of the one before.

        The whole content is checked before its pieces end. Raises CorruptError, FullError.
        """
        while True:
            with self._bundle.naming("its contents"):
                kind = self._records.next_kind()
                if kind == form.GIVEN_UP:
                    self._take_given_up()
                    continue
                if kind != form.CONTENT:
                    return
                content, size = form.decode_content(self._take_meta(form.CONTENT))
                self._check_announced(content, size)
                self._count_total(size)
                counts = self.counts
                self.counts = msgspec.structs.replace(counts, contents=counts.contents + 1, content_bytes=counts.content_bytes + size)
            yield content, size, self._pieces(content, size)

    def finish(self) -> None:
        """Check the trailer, that nothing is missing and that nothing follows. Raises CorruptError."""
        with self._bundle.naming("its end"):
            if self._wanted:
                content = min(self._wanted)
                raise CorruptError(f"{len(self._wanted)} contents that events refer to are not in it, the first of them {content.hex()}")
            self.digest = self._records.digest()
            counts, digest = form.decode_trailer(self._records.take(form.TRAILER))
            if digest != self.digest:
                raise CorruptError("its records do not hash to the digest at its end")
            if counts != self.counts:
                raise CorruptError("the numbers in its trailer are not those of what it holds")
            self._records.end()

    def _take_meta(self, kind: int) -> bytes:
        """The next record, which is not a piece of content: what it may expand to depends on the size of the file."""
        size = self._records.next_size(kind)
        self._meta_bytes += size
        if self._meta_bytes > self._most_meta_bytes:
            raise CorruptError(f"its events expand to more than {self._most_meta_bytes} bytes, the most for a file of this size")
        self._count_total(size)
        return self._records.take(kind)

    def _take_change(self, index: int) -> Change:
        return form.decode_change(self._take_meta(form.CHANGE), f"change {index}")

    def _count_total(self, size: int) -> None:
        self._total += size
        if self._total > self._most_bytes:
            raise FullError(
                f"{self._bundle.name}: it holds more than {self._most_bytes} bytes, which is all the room there is for the log; nothing "
                "was imported, make room and run the same command again"
            )

    def _take_given_up(self) -> None:
        given_up = form.decode_given_up(self._take_meta(form.GIVEN_UP))
        self._check_announced(given_up.content, given_up.size)
        self.given_up.append(given_up)
        self.counts = msgspec.structs.replace(self.counts, given_up=self.counts.given_up + 1)

    def _check_announced(self, content: ContentId, size: int) -> None:
        if content <= self._last_content:
            raise CorruptError(f"content {content.hex()} is not in byte order")
        self._last_content = content
        wanted = self._wanted.pop(content, None)
        if wanted is None:
            raise CorruptError(f"content {content.hex()} is one that no event refers to")
        if size != wanted:
            raise CorruptError(f"content {content.hex()} has {size} bytes where events state {wanted}")

    def _pieces(self, content: ContentId, size: int) -> Iterator[bytes]:
        hasher, left = blake3(), size
        while left:
            with self._bundle.naming(f"content {content.hex()}"):
                if self._records.next_size(form.PIECE) != min(left, form.PIECE_BYTES):
                    raise CorruptError("a piece has another length than its place")
                piece = self._records.take(form.PIECE)
                hasher.update(piece)
                left -= len(piece)
                if not left and hasher.digest() != content:
                    raise CorruptError("its bytes do not hash to its name")
            yield piece
        with self._bundle.naming(f"content {content.hex()}"):
            if not size and hasher.digest() != content:
                raise CorruptError("its bytes do not hash to its name")


class _StreamCheck:
    """The events of one stream, each checked against all before it."""

    def __init__(self, header: form.Header) -> None:
        self._header = header
        self._domain = codec.event_domain(header.origin.log_id, header.origin.stream)
        self._image: dict[bytes, Entry] = {}
        self._excludes: tuple[str, ...] = ()
        self._root: str | None = None
        self._ids: set[bytes] = set()
        self._requests: set[str] = set()
        self._hash, self._floor, self._kind = ZERO_HASH, Epoch(0), ""
        self.seq = Seq(0)

    def take(self, found: form.EventFields, changes: tuple[Change, ...]) -> VerbatimEvent:
        """The next event. Raises CorruptError."""
        if found.seq != self.seq + 1:
            raise CorruptError(f"the event there has seq {found.seq}")
        if self._kind == events.SessionMoved.kind:
            raise CorruptError("an event follows session_moved")
        kind, changed = found.kind.encode(), changes_digest(changes)
        digest = codec.hash_event(
            self._domain, found.seq, found.id, found.epoch, kind, found.version, found.payload, changed, self._hash
        )  # fmt: skip
        if digest != found.hash:
            raise CorruptError("its hash does not fit its content and the event before it")
        try:
            found.payload.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptError("its payload is not UTF-8") from error
        event = events.decode(found.kind, found.version, found.payload, "its event")
        if misplaced := events.find_misplacement(found.kind, found.seq, found.epoch, self._floor):
            raise CorruptError(misplaced)
        if contradiction := events.find_contradiction(event, found.seq):
            raise CorruptError(contradiction)
        if found.id in self._ids:
            raise CorruptError("its id is that of an event before it")
        self._ids.add(found.id)
        self._check_request(event, found.payload)
        self._check_image(event, changes)
        self.seq, self._hash, self._floor, self._kind = Seq(found.seq), digest, Epoch(found.epoch), found.kind
        stored = StoredEvent(self.seq, found.id, self._floor, digest, event, changes)
        return VerbatimEvent(stored, found.kind, found.version, found.payload)

    def finish(self) -> None:
        """Raises CorruptError unless the header's head was reached."""
        if (self.seq, self._hash, self._floor) != (self._header.head_seq, self._header.head_hash, self._header.floor):
            raise CorruptError("its header states another head than its events have")
        self._name_image()

    def _check_request(self, event: events.Event, payload: bytes) -> None:
        if isinstance(event, events.InputAdmitted):
            # SQLite reads the first of two equal keys and msgspec the last: what is unique for one must be so for the other.
            try:
                json.loads(payload, object_pairs_hook=_check_keys)
            except RecursionError as error:
                raise CorruptError("its payload is nested too deeply") from error
            if event.request_id in self._requests:
                raise CorruptError(f"request {event.request_id[:80]!r} was admitted twice")
            self._requests.add(event.request_id)

    def _check_image(self, event: events.Event, changes: tuple[Change, ...]) -> None:
        if isinstance(event, events.SessionOpened | events.SessionForked):
            self._excludes = excludes_of(event)
        fold_into(self._image, changes)
        if is_identity_change(changes):
            self._root = None
        claimed = claimed_root(event)
        if claimed is not None and claimed != self._name_image():
            raise CorruptError(f"root {show_text(claimed[:80])} is claimed, but the image there has root {self._root}")

    def _name_image(self) -> str:
        """The root of the image, computed once for each image."""
        if self._root is None:
            check_image(self._image)
            self._root = root_hash(self._image, self._excludes).hex()
        return self._root


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise CorruptError("its payload has a key twice")


class _Records:
    """The records of a bundle, decompressed as they are asked for; at most one record and one feed are held."""

    def __init__(self, bundle: Bundle) -> None:
        self._descriptor = bundle.descriptor
        self._offset = len(bundle.magic)
        self._compressed = memoryview(b"")
        self._stream = zstandard.ZstdDecompressor(max_window_size=form.WINDOW_BYTES).decompressobj()
        self._held = bytearray()
        self._at = 0
        self._hasher = blake3()

    def next_kind(self) -> int:
        """The kind of the next record."""
        self._fill(form.RECORD_HEAD.size)
        return self._held[self._at]

    def next_size(self, kind: int) -> int:
        """The length of the next record's body, which must be of `kind` and within the bound of its kind."""
        self._fill(form.RECORD_HEAD.size)
        found, size = form.RECORD_HEAD.unpack_from(self._held, self._at)
        if found != kind:
            raise CorruptError(f"a record {found:#04x} where {chr(kind)!r} belongs")
        if size > form.MOST_BYTES[kind]:
            raise CorruptError(f"a record {chr(kind)!r} states {size} bytes, where {form.MOST_BYTES[kind]} are the most")
        return int(size)

    def take(self, kind: int) -> bytes:
        """The body of the next record, which is of `kind`."""
        whole = form.RECORD_HEAD.size + self.next_size(kind)
        self._fill(whole)
        record = bytes(self._held[self._at : self._at + whole])
        self._at += whole
        if self._at >= _SPENT_BYTES:
            del self._held[: self._at]
            self._at = 0
        self._hasher.update(record)
        return record[form.RECORD_HEAD.size :]

    def digest(self) -> bytes:
        """That of all records taken."""
        return self._hasher.digest()

    def end(self) -> None:
        """Raises CorruptError unless the stream ends here, and the file with it."""
        while len(self._held) == self._at and not self._stream.eof:
            if not self._feed():
                raise CorruptError("its compressed stream has no end")
        if len(self._held) != self._at:
            raise CorruptError("something follows its last record")
        if self._stream.unused_data or self._compressed or os.pread(self._descriptor, 1, self._offset):
            raise CorruptError("something follows its compressed stream")

    def _fill(self, count: int) -> None:
        while len(self._held) - self._at < count:
            if self._stream.eof or not self._feed():
                raise CorruptError("it ends inside a record: a part of it is missing")

    def _feed(self) -> bool:
        """Decompress a little more; False at the end of the file."""
        if not self._compressed:
            self._compressed = memoryview(os.pread(self._descriptor, _READ_BYTES, self._offset))
            self._offset += len(self._compressed)
        piece, self._compressed = self._compressed[:_FEED_BYTES], self._compressed[_FEED_BYTES:]
        if not piece:
            return False
        try:
            self._held += self._stream.decompress(piece)
        except zstandard.ZstdError as error:
            raise CorruptError(f"its compressed stream is damaged, or needs more memory than it may ({error})") from error
        return True
