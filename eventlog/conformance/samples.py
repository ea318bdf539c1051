"""Records to append, and a log to append them to."""

from collections.abc import Mapping

from eventlog import events
from eventlog.codec import Blob, content_id, encode_blob
from eventlog.image import Change, Entry, diff, root_hash
from eventlog.ports import Ids, RandomIds
from eventlog.reader import StoredEvent
from eventlog.records import Appended, Record
from eventlog.store import ReadingHandle, Store, WritingHandle
from eventlog.values import Epoch, Seq, StreamId

STREAM = StreamId("nightly")
OTHER = StreamId("caf\u00e9 \u202e")
"""A second stream, with a name that not every encoding keeps."""
HELLO = b"hello\n" * 50

EMPTY: Mapping[bytes, Entry] = {b"": Entry("d", 0o755, mtime_ns=1)}
FIRST: Mapping[bytes, Entry] = {
    **EMPTY,
    b"a": Entry("f", 0o644, content_id(HELLO), len(HELLO), link=b"a", mtime_ns=2),
    b"b": Entry("f", 0o644, content_id(HELLO), len(HELLO), link=b"a", mtime_ns=2),
    b"caf\xe9\n": Entry("d", 0o2770, xattrs=b"\0\0\0\6user.a\0\0\0\1v", mtime_ns=-3),
    b"caf\xe9\n/l": Entry("l", 0o777, target=b"../a", mtime_ns=4),
    b"p": Entry("p", 0o600, mtime_ns=5),
}
SECOND: Mapping[bytes, Entry] = {
    **{path: entry for path, entry in FIRST.items() if path not in (b"a", b"b", b"p")},
    b"a": Entry("f", 0o600, content_id(b""), 0, mtime_ns=6),
    b"p": Entry("p", 0o600, mtime_ns=77),
    b"z": Entry("d", 0o700, mtime_ns=8),
}
BLOBS = (encode_blob(HELLO), encode_blob(b""))
"""Every content that the images name."""


def opened(name: str = "nightly", image: Mapping[bytes, Entry] = FIRST) -> Record:
    """A session's first event, with its first image."""
    identity = events.RootIdentity("root-1", 7, None, "ef53")
    root = root_hash(image).hex()
    event = events.SessionOpened(
        1, name, {"b64": "Y2Fm6Q=="}, "transactional", "reissue", [{"tool": "bash", "run": "true"}], root, identity, "ledger-1", 1,
        [], [], [], None, None,
    )  # fmt: skip
    return Record(event, diff({}, image))


def forked(parent: StreamId, at: StoredEvent, log_id: str) -> Record:
    """The first event of a stream that goes on from an event of another one."""
    event = events.SessionForked(
        2, "fork", "forked", log_id, parent, at.seq, at.hash.hex(), "transactional", "stop", [], [], root_hash(FIRST).hex(), [], [], [],
        None, None,
    )  # fmt: skip
    return Record(event, diff({}, FIRST))


def started(nonce: str = "n1") -> events.DriverStarted:
    """What a driver writes first."""
    return events.DriverStarted(3, events.DriverIdentity(nonce, 41, 99, "boot-1", 1), "ledger-1", 1, "cgroup")


def note(text: str, event_id: bytes | None = None, changes: tuple[Change, ...] = ()) -> Record:
    """An event that says only `text`."""
    return Record(events.Noted(4, text), changes, event_id)


def attempt(given: dict[str, object]) -> Record:
    """The intent of a call with this input."""
    return Record(events.AttemptStarted(5, 1, 1, 0, "bash", given, "never", "log/nightly/1/1/1", "d" * 64, redacted=False))


def begin(store: Store, image: Mapping[bytes, Entry] = FIRST, blobs: tuple[Blob, ...] = BLOBS, ids: Ids | None = None) -> None:
    """Make the log, with its first event only; its image may become any of this module."""
    store.create(STREAM, opened(image=image), blobs, ids or RandomIds())


def drive(store: Store, epoch: int = 1) -> WritingHandle:
    """A handle whose driver has raised the floor of the stream to `epoch`."""
    handle = store.open_writing(RandomIds())
    handle.raise_floor(STREAM, Epoch(epoch), started(f"n{epoch}"))
    return handle


def add(handle: WritingHandle, epoch: int, *texts: str, stream: StreamId = STREAM) -> list[Appended]:
    """Append notes."""
    return handle.append(stream, Epoch(epoch), [note(text) for text in texts], (), "note")


def read(handle: ReadingHandle, stream: StreamId = STREAM) -> list[StoredEvent]:
    """All events of a stream."""
    return list(handle.events(stream))


def read_texts(handle: ReadingHandle, stream: StreamId = STREAM) -> list[str]:
    """The notes of a stream, in order."""
    return [stored.event.text for stored in handle.events(stream) if isinstance(stored.event, events.Noted)]


def head(handle: ReadingHandle, stream: StreamId = STREAM) -> tuple[Seq, Epoch]:
    """Head and floor of a stream that is there."""
    row = handle.stream(stream)
    assert row is not None, f"there is no stream {stream}"
    return row.head_seq, row.floor
