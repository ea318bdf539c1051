"""The excludes of a stream: pattern lines, which its first event fixes for good and which are a part of the name of its images."""

from eventlog import events
from eventlog.errors import CorruptError
from eventlog.reader import Reader, StoredEvent
from eventlog.show import decode_bytes
from eventlog.values import StreamId


def excludes_of(first: events.SessionOpened | events.SessionForked) -> tuple[str, ...]:
    """The pattern lines of a first event, in its order; bytes that are not UTF-8 as surrogate escapes. Raises CorruptError."""
    try:
        return tuple(decode_bytes(line).decode("utf-8", "surrogateescape") for line in first.excludes)
    except ValueError as error:
        raise CorruptError(f"{first.kind}: an exclude is neither text nor base64: {error}") from error


def first_excludes(event: events.Event) -> tuple[str, ...] | None:
    """`excludes_of` for a first event, None for any other."""
    return excludes_of(event) if isinstance(event, events.SessionOpened | events.SessionForked) else None


def stream_excludes(reader: Reader, stream: StreamId) -> tuple[str, ...]:
    """The excludes of a stream of a log, from its first event. Raises CorruptError."""
    first: StoredEvent | None = next(iter(reader.events(stream)), None)
    return () if first is None else first_excludes(first.event) or ()
