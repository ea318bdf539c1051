"""Bundles taken apart and put together by hand, from eventlog/README and without the code under test; and logs to compare."""

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import apsw
import zstandard
from blake3 import blake3

from eventlog import codec, events
from eventlog.bundle_export import Exported, export
from eventlog.bundle_import import Imported, import_bundle, import_into_new
from eventlog.image import Change, changes_digest, encode_change
from eventlog.ports import CountingIds, FakeClock
from eventlog.reader import Reader
from eventlog.values import Seq, StreamId
from eventlog.verify import verify
from tests.eventlog import support

MAGIC = b"crashworthy bundle 1\n"
Records = list[tuple[str, bytes]]
LOG_ID = "ab" * 16


def make(log: str, file: Path, stream: str = support.STREAM, upto: int | None = None) -> Exported:
    """Export a session."""
    reader = Reader.open(log)
    try:
        return export(reader, StreamId(stream), str(file), CountingIds(77), None if upto is None else Seq(upto))
    finally:
        reader.close()


def take(log: str, file: Path, name: str | None = None) -> Imported:
    """Import into a log. Every name has ids of its own."""
    return import_bundle(log, str(file), _ids(name), FakeClock(), name)


def take_new(log: str, file: Path, name: str | None = None) -> Imported:
    """Import into a new log."""
    return import_into_new(log, str(file), _ids(name), FakeClock(), name)


def _ids(name: str | None) -> CountingIds:
    return CountingIds((1 << 40) + (zlib.crc32((name or "").encode()) << 16))


def dump(log: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table of a log."""
    handle = apsw.Connection(log, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = [str(row[0]) for row in handle.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        return {table: sorted(handle.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in tables}
    finally:
        handle.close()


def assert_sound(log: str) -> None:
    """The whole log is valid."""
    reader = Reader.open(log)
    try:
        assert verify(reader).findings == ()
    finally:
        reader.close()


def unpack(file: Path, magic: bytes = MAGIC) -> Records:
    """The records of a bundle."""
    data = file.read_bytes()
    assert data.startswith(magic)
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(data[len(magic) :])
    records, at = [], 0
    while at < len(plain):
        size = int.from_bytes(plain[at + 1 : at + 5], "big")
        records.append((chr(plain[at]), plain[at + 5 : at + 5 + size]))
        at += 5 + size
    assert at == len(plain)
    return records


def plain(records: Iterable[tuple[str, bytes]]) -> bytes:
    """The uncompressed bytes of records."""
    return b"".join(kind.encode() + struct.pack(">I", len(body)) + body for kind, body in records)


def pack(records: Iterable[tuple[str, bytes]], magic: bytes = MAGIC) -> bytes:
    """The file of records."""
    return magic + zstandard.ZstdCompressor(level=3).compress(plain(records))


def sealed(records: Records) -> Records:
    """Records with a trailer that fits them, as somebody writes who wants to be believed."""
    body = [record for record in records if record[0] != "T"]
    counts = [sum(kind == wanted for kind, _ in body) for wanted in "ECDG"]
    content_bytes = sum(int.from_bytes(data[32:40], "big") for kind, data in body if kind == "D" and len(data) == 40)
    digest = blake3(plain(body)).digest()
    return [*body, ("T", struct.pack(">5Q", counts[0], counts[1], counts[2], counts[3], content_bytes) + digest)]


Forged = tuple[events.Event, tuple[Change, ...]]


def forge(
    history: Iterable[Forged], contents: Iterable[bytes] = (), *, epochs: Iterable[int] = (), ids: Iterable[bytes] = (), floor: int = 0
) -> Records:
    """A bundle whose chain is right, whatever stands in its events: what a hostile author can make."""
    rows, previous, given_epochs, given_ids = [], bytes(32), iter(epochs), iter(ids)
    domain = codec.event_domain(LOG_ID, "evil")
    seq = 0
    for event, changes in history:
        seq += 1
        epoch, event_id = next(given_epochs, 0), next(given_ids, seq.to_bytes(16, "big"))
        payload = events.encode(event)
        digest = codec.hash_event(
            domain, seq, event_id, epoch, event.kind.encode(), event.version, payload, changes_digest(changes), previous
        )  # fmt: skip
        rows.append(("E", event_record(seq, event_id, epoch, event.kind, event.version, payload, digest, len(changes))))
        rows += [("C", encode_change(change)) for change in changes]
        previous = digest
    header = ("H", header_record("evil", seq, previous, floor))
    named = sorted((blake3(data).digest(), data) for data in contents)
    return sealed([header, *rows, *(record for name, data in named for record in content_records(name, data))])


def header_record(stream: str, seq: int, digest: bytes, floor: int = 0, log_id: str = LOG_ID, version: int = 1) -> bytes:
    names = codec.sized(log_id.encode()) + codec.sized(stream.encode())
    return struct.pack(">I", version) + names + struct.pack(">Q", seq) + digest + struct.pack(">Q", floor)


def event_record(seq: int, event_id: bytes, epoch: int, kind: str, version: int, payload: bytes, digest: bytes, changes: int) -> bytes:
    begun = struct.pack(">Q", seq) + event_id + struct.pack(">Q", epoch) + codec.sized(kind.encode()) + struct.pack(">I", version)
    return begun + codec.sized(payload) + digest + struct.pack(">I", changes)


def content_records(name: bytes, data: bytes) -> Records:
    pieces = [("P", data[at : at + (1 << 20)]) for at in range(0, len(data), 1 << 20)]
    return [("D", name + struct.pack(">Q", len(data))), *pieces]
