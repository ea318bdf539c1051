"""Which contents a log keeps. Pure: from what stands in the log and a policy to names; who gives them up is `compact`.

A content is kept when a kept image or a kept output needs it; a chunk, when a list that is kept needs it. Kept are, of each stream,

- the image at its head, and the newest images back to `Policy.images` distinct ones;
- every image from the newest settled point on: while a call or a restore is open, its driver may have to go back there, and the
  target of every restore that is open;
- the image at every pinned event, and at every event where a fork of the same log begins;
- the first image of a fork, which its first event carries whole;
- the outputs of all calls, or of the newest `Policy.outputs`;
- everything, of a stream that was moved away: until its bundle has its name, the same bundle must come again from here (L8).

Imported streams follow the same policy. Events are never given up, and with them the records of quarantines: they name paths, no
contents.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from eventlog import events
from eventlog.errors import CorruptError
from eventlog.reader import StoredEvent, StreamRow
from eventlog.values import ContentId, Seq, StreamId
from eventlog.verify import claimed_root

DEFAULT_IMAGES = 10


class Policy(msgspec.Struct, frozen=True):
    """How many distinct images, and outputs (None: all), of each stream are kept beside what is always kept."""

    images: int = DEFAULT_IMAGES
    outputs: int | None = None


class ImageStep(msgspec.Struct, frozen=True):
    """An event with image changes: its seq, and the root it states (None: it states none, and counts as an image of its own)."""

    seq: Seq
    root: str | None


class Outline(msgspec.Struct, frozen=True):
    """A stream as the policy sees it. `settled` is the newest event after which neither a call nor a restore was open; `targets` are
    those of open restores; `outputs` the contents of the calls' outputs, in order."""

    stream: StreamId
    head: Seq
    parent: StreamId | None
    forked_at: Seq | None
    is_fork: bool
    images: tuple[ImageStep, ...]
    settled: Seq
    targets: frozenset[Seq]
    outputs: tuple[tuple[ContentId, int], ...]
    is_moved: bool = False


Pins = frozenset[tuple[StreamId, Seq]]
ContentStep = tuple[Seq, bytes, ContentId | None]
"""A seq, a path, and what the path's content is from there on (None: none any more)."""


def outline_stream(row: StreamRow, stored: Iterable[StoredEvent], name: str) -> Outline:
    """One stream of the log `name`, read once from its beginning to its head. Raises CorruptError for an output that names no blob."""
    images: list[ImageStep] = []
    outputs: list[tuple[ContentId, int]] = []
    calls: set[int] = set()
    restores: dict[int, Seq | None] = {}
    head, settled, is_fork, is_moved = Seq(0), Seq(0), False, False
    for one in stored:
        head = one.seq
        if one.changes:
            images.append(ImageStep(one.seq, claimed_root(one.event)))
        match one.event:
            case events.SessionForked():
                is_fork = True
            case events.SessionMoved():
                is_moved = True
            case events.AttemptStarted():
                calls.add(one.event.call)
            case events.CallSettled():
                calls.discard(one.event.call)
                if one.event.output is not None:
                    outputs.append(_read_output(one.event.output, f"{name}: stream {row.id} seq {one.seq}"))
            case events.RecoveryDecided() if one.event.obligation:
                restores[one.seq] = None if one.event.target_seq is None else Seq(one.event.target_seq)
            case events.RestoreFinished():
                restores.pop(one.event.decision_seq, None)
            case _:
                pass
        if not calls and not restores:
            settled = one.seq
    targets = frozenset(seq for seq in restores.values() if seq is not None)
    return Outline(row.id, head, row.parent, row.forked_at, is_fork, tuple(images), settled, targets, tuple(outputs), is_moved)


def _read_output(output: events.Output, where: str) -> tuple[ContentId, int]:
    try:
        return ContentId(bytes.fromhex(output.blob)), output.kept
    except ValueError as error:
        raise CorruptError(f"{where}: output names no blob ({output.blob!r}); run `eventlog verify` on the log") from error


def choose_points(outlines: Sequence[Outline], pins: Pins, policy: Policy) -> dict[StreamId, frozenset[Seq]]:
    """For each stream, the events whose image is kept."""
    forked = frozenset((one.parent, one.forked_at) for one in outlines if one.parent is not None)
    return {one.stream: _points_of(one, pins | forked, policy) for one in outlines}


def _points_of(one: Outline, marked: frozenset[tuple[StreamId | None, Seq | None]], policy: Policy) -> frozenset[Seq]:
    if one.is_moved:
        return frozenset(step.seq for step in one.images)
    points = {one.head, one.settled, *one.targets}
    points |= {step.seq for step in one.images if step.seq > one.settled}
    points |= {seq for stream, seq in marked if stream == one.stream and seq is not None}
    points |= _newest_images(one.images, policy.images)
    if one.is_fork:
        points.add(Seq(1))
    return frozenset(points)


def _newest_images(images: Sequence[ImageStep], count: int) -> set[Seq]:
    """The newest event of each of the newest `count` distinct images. Equal roots have equal contents."""
    seen: set[str | None] = set()
    found: set[Seq] = set()
    for step in reversed(images):
        if len(found) >= count:
            break
        if step.root is None or step.root not in seen:
            seen.add(step.root)
            found.add(step.seq)
    return found


def keep_outputs(one: Outline, policy: Policy) -> frozenset[ContentId]:
    """The output contents of a stream that are kept."""
    count = len(one.outputs) if policy.outputs is None or one.is_moved else min(policy.outputs, len(one.outputs))
    newest = one.outputs[len(one.outputs) - count :]
    return frozenset(content for content, _ in newest)


def keep_contents(steps: Iterable[ContentStep], points: Iterable[Seq]) -> frozenset[ContentId]:
    """The contents of the images at `points`, from a stream's steps in order."""
    kept: set[ContentId] = set()
    image: dict[bytes, ContentId] = {}
    waiting = sorted(points, reverse=True)
    for seq, path, content in steps:
        while waiting and waiting[-1] < seq:
            waiting.pop()
            kept.update(image.values())
        if content is None:
            image.pop(path, None)
        else:
            image[path] = content
    if waiting:
        kept.update(image.values())
    return frozenset(kept)


class GivenUp(msgspec.Struct, frozen=True):
    """What goes: contents that events name, chunks that only lists among them need, and blobs that nothing names."""

    contents: frozenset[ContentId]
    chunks: frozenset[ContentId]
    orphans: frozenset[ContentId]


def choose_given_up(
    stored: frozenset[ContentId],
    lists: Mapping[ContentId, Sequence[ContentId]],
    named: frozenset[ContentId],
    kept: frozenset[ContentId],
    *,
    takes_orphans: bool,
) -> GivenUp:
    """Divide the blobs that are stored. `lists` are the chunk lists among them. Without `takes_orphans`, what nothing names stays, and
    what it needs: a writer at work may be about to name it."""
    unnamed_lists = frozenset(name for name in lists if name not in named)
    roots = (kept & stored) | (frozenset() if takes_orphans else unnamed_lists)
    needed = frozenset(chunk for name in roots for chunk in lists.get(name, ()))
    contents = (named & stored) - kept - needed
    chunks = frozenset(chunk for name in contents for chunk in lists.get(name, ())) & stored
    chunks -= needed | named
    orphans = stored - named - needed - chunks
    return GivenUp(contents, chunks, orphans if takes_orphans else frozenset())
