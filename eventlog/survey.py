"""Reading a whole log for what keeps its contents: outlines, names and who needs them. Short transactions; the log may go on meanwhile.

What is appended after the survey is not in it: whoever acts on a survey takes `heads` and asks, under the lock, what came since.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from eventlog.codec import Blob, decode_chunk_list
from eventlog.errors import CorruptError
from eventlog.reader import Reader
from eventlog.retention import ContentStep, Outline, Pins, Policy, choose_points, keep_contents, keep_outputs, outline_stream
from eventlog.show import advise_verify
from eventlog.values import ContentId, Seq, StreamId

PAGE_ROWS = 4096
_NOBODY: frozenset[StreamId] = frozenset()
Owners = dict[ContentId, frozenset[StreamId]]
_CONTENT_PAGE = (
    "SELECT seq, idx, path, content FROM image_change WHERE stream = ? AND (seq, idx) > (?, ?) AND seq <= ? AND op <> 'times'"
    " ORDER BY seq, idx LIMIT ?"
)


class Survey(msgspec.Struct, frozen=True):
    """What stands in a log up to `heads` (the newest seq seen of each stream). `owners` has every content that an event names, with
    the streams that do. `kept` is what the policy keeps of them."""

    heads: dict[StreamId, Seq]
    pins: Pins
    owners: Owners
    kept: frozenset[ContentId]


class Blobs(msgspec.Struct, frozen=True):
    """What is stored: of each blob the size of its content and the bytes it takes, and the chunks of each list."""

    sizes: dict[ContentId, tuple[int, int]]
    lists: dict[ContentId, tuple[ContentId, ...]]

    @property
    def names(self) -> frozenset[ContentId]:
        return frozenset(self.sizes)

    def stored(self, names: Iterable[ContentId]) -> int:
        """The bytes that some blobs take."""
        return sum(self.sizes[name][1] for name in names)


def take_survey(reader: Reader, policy: Policy) -> Survey:
    """Read every stream, its chain checked. Raises CorruptError: nothing is given up of a log that is damaged."""
    pins = read_pins(reader)
    outlines = [outline_stream(row, reader.events(row.id), reader.name) for row in reader.streams()]
    points = choose_points(outlines, pins, policy)
    owners: Owners = {}
    kept: set[ContentId] = set()
    for one in outlines:
        for content, _ in one.outputs:
            _own(owners, content, one.stream)
        kept |= keep_outputs(one, policy)
        kept |= keep_contents(_noting(read_steps(reader, one), owners, one.stream), points[one.stream])
    return Survey({one.stream: one.head for one in outlines}, pins, owners, frozenset(kept))


def read_pins(reader: Reader) -> Pins:
    """The events whose images are pinned."""
    if not reader.is_beyond_1:
        return frozenset()
    return frozenset((StreamId(str(stream)), Seq(int(str(seq)))) for stream, seq in reader.rows("SELECT stream, seq FROM pin"))


def read_steps(reader: Reader, one: Outline) -> Iterator[ContentStep]:
    """What each change of a stream makes of its path's content, in order, up to the outline's head."""
    seq, index = 0, -1
    while found := reader.rows(_CONTENT_PAGE, (one.stream, seq, index, one.head, PAGE_ROWS)):
        for row in found:
            seq, index, step = _content_step(row, reader.name)
            yield step


def _content_step(row: tuple[object, ...], name: str) -> tuple[int, int, ContentStep]:
    seq, index, path, content = row
    if not (isinstance(seq, int) and isinstance(index, int) and isinstance(path, bytes) and isinstance(content, bytes | None)):
        raise CorruptError(f"{name}: an image change has a column of the wrong type; {advise_verify(name)}")
    return seq, index, (Seq(seq), path, None if content is None else ContentId(content))


def _noting(steps: Iterator[ContentStep], owners: Owners, stream: StreamId) -> Iterator[ContentStep]:
    for step in steps:
        if step[2] is not None:
            _own(owners, step[2], stream)
        yield step


def _own(owners: Owners, content: ContentId, stream: StreamId) -> None:
    before = owners.get(content, _NOBODY)
    if stream not in before:
        owners[content] = before | {stream}


def read_blobs(reader: Reader) -> Blobs:
    """All stored blobs, without their bytes. One read transaction each for sizes and lists."""
    sizes: dict[ContentId, tuple[int, int]] = {}
    for name, size, stored in reader.rows("SELECT hash, size, length(bytes) FROM blob"):
        if not (isinstance(name, bytes) and isinstance(size, int) and isinstance(stored, int)):
            raise CorruptError(f"{reader.name}: a blob has a column of the wrong type; {advise_verify(reader.name)}")
        sizes[ContentId(name)] = (size, stored)
    lists: dict[ContentId, tuple[ContentId, ...]] = {}
    for name, size, data in reader.rows("SELECT hash, size, bytes FROM blob WHERE codec = 'chunks'"):
        if isinstance(name, bytes) and isinstance(size, int) and isinstance(data, bytes):
            lists[ContentId(name)] = decode_chunk_list(Blob(ContentId(name), "chunks", size, data))
    return Blobs(sizes, lists)


def spread_owners(owners: Owners, lists: Mapping[ContentId, Sequence[ContentId]]) -> Owners:
    """The owners of blobs: a chunk belongs to whoever owns a content that it is part of. Pure."""
    spread = dict(owners)
    for content, chunks in lists.items():
        mine = owners.get(content, _NOBODY)
        for chunk in chunks if mine else ():
            spread[chunk] = spread.get(chunk, _NOBODY) | mine
    return spread
