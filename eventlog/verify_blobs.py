"""The blobs' part of verify: every blob is whole, every content that an event needs is there, what no event needs is counted.

Memory does not grow with contents: pages of rows, batches of at most BATCH_BYTES, and two bits for each blob. A chunk is decompressed
once and hashed twice: under its own name, and in the content that it is a part of. Neither can be left out: nothing but the hash of the
whole proves the list of chunks, and nothing but its own proves a chunk that is also the whole content of another file.
"""

import contextlib
from collections.abc import Iterator, Sequence

import msgspec
from blake3 import blake3

from eventlog import codec
from eventlog.errors import CorruptError
from eventlog.findings import Finding
from eventlog.reader import Reader
from eventlog.rowset import RowSet
from eventlog.show import advise_verify
from eventlog.values import CHUNK_BYTES, ContentId, Seq, StreamId

PAGE_ROWS = 512
PAGE_CHANGES = 4096
BATCH_BYTES = 8 << 20
NAMED_PLACES = 100
"""How many damaged contents are told with the event that needs them: each costs a walk over all changes."""

_CONTENTS = (
    "SELECT change.seq, change.idx, change.content, change.size, blob.rowid, blob.size FROM image_change AS change"
    " LEFT JOIN blob ON blob.hash = change.content WHERE change.stream = ? AND (change.seq, change.idx) > (?, ?) AND change.seq <= ?"
    " AND change.content IS NOT NULL ORDER BY change.seq, change.idx LIMIT ?"
)
_HEADS = "SELECT rowid, hash, codec, size, length(bytes) FROM blob WHERE rowid > ? ORDER BY rowid LIMIT ?"
_BODIES = "SELECT rowid, hash, codec, size, bytes FROM blob WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
_BODY = "SELECT rowid, hash, codec, size, bytes FROM blob WHERE hash = ?"


class BlobMark(msgspec.Struct, frozen=True):
    """The newest blob that was there: its row and its name."""

    row: int
    content: ContentId


class BlobWalk(msgspec.Struct):
    """What is known of contents and blobs so far. `sound_bytes` are unpacked bytes, each counted once: a list of chunks adds none."""

    needed: RowSet = msgspec.field(default_factory=RowSet)
    checked: RowSet = msgspec.field(default_factory=RowSet)
    missing: set[ContentId] = msgspec.field(default_factory=set)
    given_up: set[ContentId] = msgspec.field(default_factory=set)
    sound: int = 0
    sound_bytes: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    newest: BlobMark | None = None
    places_named: int = 0


class _Row(msgspec.Struct, frozen=True):
    row: int
    blob: codec.Blob


def check_contents(reader: Reader, stream: StreamId, after: Seq, upto: Seq, walk: BlobWalk) -> Iterator[Finding]:
    """Each content that the image changes of the events after `after` name has a blob of the size they state, or was given up on record."""
    seq, index = int(after), 1 << 62
    while rows := reader.rows(_CONTENTS, (stream, seq, index, upto, PAGE_CHANGES)):
        for found_seq, found_index, content, stated, row, size in rows:
            if not (isinstance(found_seq, int) and isinstance(found_index, int) and isinstance(content, bytes)):
                raise CorruptError(f"{reader.name}: stream {stream}: an image change has a column of the wrong type")
            seq, index = found_seq, found_index
            where = f"stream {stream} seq {seq}"
            yield from check_content(reader, ContentId(content), stated, row, size, where, stream, Seq(seq), walk)


def check_output(reader: Reader, content: ContentId, stated: int, stream: StreamId, seq: Seq, walk: BlobWalk) -> Iterator[Finding]:
    """The same for the kept output of a call."""
    found = reader.rows("SELECT rowid, size FROM blob WHERE hash = ?", (content,))
    row, size = found[0] if found else (None, None)
    yield from check_content(reader, content, stated, row, size, f"stream {stream} seq {seq}", stream, seq, walk)


def check_content(
    reader: Reader, content: ContentId, stated: object, row: object, size: object, where: str, stream: StreamId, seq: Seq, walk: BlobWalk
) -> Iterator[Finding]:
    """One content that an event needs; each missing one is told once."""
    if isinstance(row, int):
        walk.needed.add(row)
        if size != stated:
            yield Finding(where, f"blob {content.hex()} has {size} bytes, {stated} are stated", "content", stream, seq, content)
        return
    if content in walk.missing or content in walk.given_up:
        return
    reason = reader.dropped_reason(content)
    if reason is not None:
        walk.given_up.add(content)
        return
    walk.missing.add(content)
    yield Finding(where, f"blob {content.hex()} is missing", "content", stream, seq, content)


def check_blobs(reader: Reader, walk: BlobWalk, after: int) -> Iterator[Finding]:
    """Every blob whose row follows `after` is whole; `walk` learns how many, and which of them no event needs."""
    yield from _check_lists(reader, walk, after)
    yield from _check_plain(reader, walk, after)


def _heads(reader: Reader, after: int) -> Iterator[list[tuple[int, bytes, object, object, int]]]:
    """Rows without their bytes, page by page, typed."""
    row = after
    while rows := reader.rows(_HEADS, (row, PAGE_ROWS)):
        page: list[tuple[int, bytes, object, object, int]] = []
        for found, name, kind, size, length in rows:
            if not (isinstance(found, int) and isinstance(name, bytes) and isinstance(length, int)):
                raise CorruptError(f"{reader.name}: blob row {found} has a column of the wrong type; {advise_verify(reader.name)}")
            page.append((found, name, kind, size, length))
        yield page
        row = page[-1][0]


def _check_lists(reader: Reader, walk: BlobWalk, after: int) -> Iterator[Finding]:
    """Contents in chunks first: their chunks are then checked already, and are needed when they are."""
    for page in _heads(reader, after):
        for row, name, kind, _, _ in page:
            if kind != "chunks":
                continue
            walk.checked.add(row)
            try:
                _check_list(reader, ContentId(name), row, walk)
            except CorruptError as error:
                if reader.has_blob(ContentId(name)):  # else a compaction beside us has taken it away meanwhile, on record
                    yield _damaged(reader, ContentId(name), str(error), walk)
            else:
                walk.sound += 1  # no bytes of its own: those of its chunks are counted, each once


def _check_list(reader: Reader, name: ContentId, row: int, walk: BlobWalk) -> None:
    whole, total, needed = blake3(), 0, row in walk.needed
    listed = _read_one(reader, name).blob
    for chunk_name in codec.decode_chunk_list(listed):
        try:
            chunk = _read_one(reader, chunk_name)
            piece = codec.decode_blob(chunk.blob)
        except CorruptError as error:
            raise CorruptError(f"{reader.name}: blob {name.hex()}: a chunk of it: {error}") from error
        if needed:
            walk.needed.add(chunk.row)
        if chunk.row not in walk.checked:
            walk.checked.add(chunk.row)
            walk.sound += 1
            walk.sound_bytes += len(piece)
        whole.update(piece)
        total += len(piece)
    if total != listed.size or whole.digest() != name:
        raise CorruptError(f"{reader.name}: blob {name.hex()}: its chunks do not make up its content")


def _check_plain(reader: Reader, walk: BlobWalk, after: int) -> Iterator[Finding]:
    for page in _heads(reader, after):
        for row, name, kind, _, length in page:
            walk.newest = BlobMark(row, ContentId(name))
            if row not in walk.needed:
                walk.orphans += 1
                walk.orphan_bytes += length
            if length > CHUNK_BYTES and kind != "chunks":
                walk.checked.add(row)
                yield _damaged(reader, ContentId(name), f"blob {name.hex()}: {length} bytes are stored, more than a chunk has", walk)
        for first, last in _batches([(row, length, row in walk.checked) for row, _, _, _, length in page]):
            yield from _check_batch(reader, walk, first, last)


def _batches(rows: Sequence[tuple[int, int, bool]]) -> Iterator[tuple[int, int]]:
    """First and last row of runs of rows that are not checked yet, of at most BATCH_BYTES."""
    run: list[int] = []
    held = 0
    for row, length, checked in rows:
        if run and (checked or held + length > BATCH_BYTES):
            yield run[0], run[-1]
            run, held = [], 0
        if not checked:
            run.append(row)
            held += length
    if run:
        yield run[0], run[-1]


def _check_batch(reader: Reader, walk: BlobWalk, first: int, last: int) -> Iterator[Finding]:
    for values in reader.rows(_BODIES, (first, last)):
        try:
            size = len(codec.decode_blob(_typed(reader, values).blob))
        except CorruptError as error:
            yield _damaged(reader, ContentId(values[1]) if isinstance(values[1], bytes) else None, str(error), walk)
        else:
            walk.sound += 1
            walk.sound_bytes += size


def _read_one(reader: Reader, name: ContentId) -> _Row:
    found = reader.rows(_BODY, (name,))
    if not found:
        raise CorruptError(f"{reader.name}: blob {name.hex()} is missing; {advise_verify(reader.name)}")
    return _typed(reader, found[0])


def _typed(reader: Reader, values: tuple[object, ...]) -> _Row:
    match values:
        case (int(row), bytes(name), str(kind), int(size), bytes(data)):
            return _Row(row, codec.Blob(ContentId(name), kind, size, data))
        case _:
            raise CorruptError(f"{reader.name}: blob row {values[0]} has a column of the wrong type; {advise_verify(reader.name)}")


def _damaged(reader: Reader, content: ContentId | None, what: str, walk: BlobWalk) -> Finding:
    place = None
    named = content is not None and walk.places_named < NAMED_PLACES
    if content is not None and named:
        walk.places_named += 1
        with contextlib.suppress(CorruptError):  # the damage may be where the uses stand: it has findings of its own
            place = next(iter(find_uses(reader, content, 1)), None)
    if place is None:
        return Finding("a blob that no event needs" if named else "a blob", what, "content", content=content)
    return Finding(f"stream {place.stream} seq {place.seq}", what, "content", place.stream, place.seq, content)


class Use(msgspec.Struct, frozen=True):
    """Who needs a content: the path of an image change, or None for the output of a call."""

    stream: StreamId
    seq: Seq
    path: bytes | None


def find_uses(reader: Reader, content: ContentId, most: int) -> list[Use]:
    """Who names a content, directly or through a list of chunks that holds it; `most` of them. A walk over all changes."""
    names = [content, *(bytes(row[0]) for row in reader.rows(_LISTS, (content,)) if isinstance(row[0], bytes))]
    uses: list[Use] = []
    for name in names:
        uses += [_use(row) for row in reader.rows(_USES, (name, most))]
        uses += [_use((*row, None)) for row in reader.rows(_OUTPUTS, (name.hex(), most))]
    return uses[:most]


_LISTS = "SELECT hash FROM blob WHERE codec = 'chunks' AND instr(bytes, ?) > 0"
_USES = "SELECT stream, seq, path FROM image_change WHERE content = ? ORDER BY stream, seq, idx LIMIT ?"
_OUTPUTS = "SELECT stream, seq FROM event WHERE kind = 'call_settled' AND json_extract(payload, '$.output.blob') = ? LIMIT ?"


def _use(row: tuple[object, ...]) -> Use:
    stream, seq, path = row
    return Use(StreamId(str(stream)), Seq(int(str(seq))), path if isinstance(path, bytes) else None)


def find_mark(reader: Reader, mark: BlobMark | None) -> int:
    """The row after which blobs have not been verified: that of the mark while the same blob stands there, 0 otherwise."""
    if mark is None:
        return 0
    found = reader.rows("SELECT hash FROM blob WHERE rowid = ?", (mark.row,))
    return mark.row if found == [(mark.content,)] else 0

