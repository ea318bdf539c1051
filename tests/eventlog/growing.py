"""Logs that grow by calls, for the tests of compaction: every image and output that ever was is remembered beside the log."""

import os
from collections.abc import Iterable, Sequence

from eventlog import codec, events
from eventlog.blobs import encode_content
from eventlog.image import Entry, diff, root_hash
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import ContentId, Epoch, Seq, StreamId
from eventlog.writer import Writer
from tests.eventlog import support

EMPTY: dict[bytes, Entry] = {b"": Entry("d", 0o755, mtime_ns=1)}


def noise(number: int, size: int = 20_000) -> bytes:
    """Bytes that do not compress, other ones for each number, and the same for the same."""
    return b"".join(codec.content_id(b"%d %d" % (number, at)) for at in range(-(-size // 32)))[:size]


class Session:
    """One stream, and its image after each event."""

    def __init__(self, writer: Writer, stream: StreamId, image: dict[bytes, Entry], seq: int, epoch: int = 1) -> None:
        self.writer = writer
        self.stream = stream
        self.image = dict(image)
        self.images: dict[int, dict[bytes, Entry]] = {seq: dict(image)}
        self.calls = 0
        self.epoch = Epoch(epoch)
        writer.raise_floor(stream, self.epoch, support.started(f"{stream} {epoch}"))

    def begin(self) -> None:
        """The intent of the next call."""
        self.calls += 1
        self._append([support.attempt(self.calls)])

    def settle(self, files: dict[bytes, bytes | None], output: bytes = b"") -> int:
        """The outcome of the open call: files written, or removed where the content is None; its seq."""
        after = change(self.image, files)
        data = [content for content in files.values() if content is not None]
        told = events.Output(len(output), len(output), False, codec.content_id(output).hex())
        root = root_hash(after).hex()
        event = events.CallSettled(5, self.calls, 1, "finished", "live", "", events.Exit("exited", code=0), told, root, [])
        record = Record(event, diff(self.image, after))
        self.image = after
        return self._append([record], [*data, output])

    def call(self, files: dict[bytes, bytes | None], output: bytes = b"") -> int:
        """A whole call; the seq of its outcome."""
        self.begin()
        return self.settle(files, output)

    def decide(self, target: int) -> None:
        """A restore that begins and does not end."""
        root = root_hash(self.images[target]).hex()
        self._append([Record(events.RecoveryDecided(6, "restore_and_interrupt", self.calls, 1, True, target, root, "transactional", {}))])

    def fork(self, name: str, seq: int) -> "Session":
        """A session that goes on from an event of this one."""
        image = dict(self.writer.reader.image(self.stream, Seq(seq)))
        root = root_hash(image).hex()
        ((parent_hash,),) = self.writer.reader.rows("SELECT hash FROM event WHERE stream = ? AND seq = ?", (self.stream, seq))
        assert isinstance(parent_hash, bytes)
        forked = events.SessionForked(
            7, name, "forked", self.writer.log_id, self.stream, seq, parent_hash.hex(), "transactional", "stop", [], [], root, [], [], [],
            None, None, [],
        )  # fmt: skip
        self.writer.open_stream(StreamId(name), Record(forked, diff({}, image)), "fork", self.stream, Seq(seq))
        return Session(self.writer, StreamId(name), image, 1)

    def _append(self, records: Sequence[Record], contents: Iterable[bytes] = ()) -> int:
        blobs = [blob for data in contents for blob in encode_content([data])]
        seq = self.writer.append(self.stream, self.epoch, records, blobs, "growing")[-1].seq
        self.images[seq] = dict(self.image)
        return seq


def change(image: dict[bytes, Entry], files: dict[bytes, bytes | None]) -> dict[bytes, Entry]:
    """The image with some files written or removed."""
    after = dict(image)
    for path, content in files.items():
        if content is None:
            after.pop(path, None)
        else:
            after[path] = Entry("f", 0o644, codec.content_id(content), len(content), mtime_ns=9)
    return after


def contents_of(image: dict[bytes, Entry]) -> set[ContentId]:
    """The contents of an image's files."""
    return {ContentId(entry.content) for entry in image.values() if entry.content is not None}


def read_whole(reader: Reader, image: dict[bytes, Entry]) -> None:
    """Read every file of an image; raises when one is away or spoilt."""
    for entry in image.values():
        if entry.content is not None:
            assert sum(len(piece) for piece in reader.content(ContentId(entry.content))) == entry.size


def begin(path: str) -> Session:
    """The first driver of a log made by `support.create_small`."""
    writer = support.open_writer(path, first_id=int.from_bytes(os.urandom(6), "big") << 32, busy_ms=5000)
    return Session(writer, support.STREAM, EMPTY, 1)
