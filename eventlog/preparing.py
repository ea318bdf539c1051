"""What is computed of a record before any lock is taken: redaction, encoding, digests. Pure but for new ids."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from eventlog import events
from eventlog.errors import CorruptError, InternalError, MisuseError
from eventlog.image import NO_CHANGES, Change, changes_digest, check_entry, check_path
from eventlog.ports import Ids
from eventlog.records import Record, Redact
from eventlog.values import ContentId

MOST_NESTED = 100


class Prepared(msgspec.Struct, frozen=True):
    """A record with everything computed that needs no lock. A Struct: one is made for every event that is appended."""

    id: bytes
    kind: str
    version: int
    payload: bytes
    changes: tuple[Change, ...]
    digest: bytes
    is_repeatable: bool
    output: ContentId | None


def prepare(records: Sequence[Record], ids: Ids, redact: Redact | None, name: str) -> list[Prepared]:
    """Records, redacted, encoded and hashed. Raises MisuseError for ids that do not fit together, and for what could not be read again."""
    for record in records:
        if record.id is not None:
            _check_ids(records, name)
            break
    return [_prepare_one(record, ids, redact, name) for record in records]


def _check_ids(records: Sequence[Record], name: str) -> None:
    given = [record.id for record in records if record.id is not None]
    if len(set(given)) != len(records) or any(len(one) != 16 for one in given):
        raise MisuseError(f"{name}: the records of one append have an id of 16 bytes each, all different, or none has one")


def _prepare_one(record: Record, ids: Ids, redact: Redact | None, name: str) -> Prepared:
    event = record.event if redact is None else redact_event(record.event, redact, name)
    is_given = record.id is not None
    event_id = record.id if record.id is not None else ids.new_id()
    payload = encode_checked(event, record.changes, name)
    digest = changes_digest(record.changes) if record.changes else NO_CHANGES
    return Prepared(event_id, event.kind, event.version, payload, record.changes, digest, is_given, output_content(event))


def redact_event(event: events.E, redact: Redact | None, name: str) -> events.E:
    """The event as it may be written. A call whose recorded input was redacted says so: it cannot be replayed from the log."""
    if redact is None:
        return event
    redacted = redact(event)
    if type(redacted) is not type(event):
        raise InternalError(f"{name}: the redaction made {type(redacted).__name__} of {event.kind}")
    if isinstance(redacted, events.AttemptStarted) and isinstance(event, events.AttemptStarted) and redacted.input != event.input:
        return msgspec.structs.replace(redacted, redacted=True)
    return redacted


def encode_checked(event: events.Event, changes: Iterable[Change], name: str) -> bytes:
    """The payload of an event that can be read again, whose changes are ones that an image can have.

    Raises MisuseError for a field of another type and for an impossible path or entry: an append-only log would keep what no reader takes.
    """
    try:
        payload = events.encode(event)
        check_nesting(payload)
        if isinstance(event, events.InputAdmitted):
            check_numbers(event.input)
        events.READ_NEWEST[event.kind](payload)
        if contradiction := events.find_contradiction(event, events.HIGHEST):
            raise ValueError(contradiction)
        for change in changes:
            check_path(change.path)
            if change.entry is not None:
                check_entry(change.path, change.entry)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, CorruptError) as error:
        raise MisuseError(f"{name}: {event.kind} cannot be written: {error}") from error
    return payload


def check_nesting(payload: bytes) -> None:
    """Raise ValueError for JSON nested deeper than MOST_NESTED: whoever reads it recurses, and must not have to fear for its stack."""
    if payload.count(b"{") + payload.count(b"[") <= MOST_NESTED:
        return
    level = [msgspec.json.decode(payload)]
    for _ in range(MOST_NESTED):
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {MOST_NESTED} levels")


def check_numbers(value: object) -> None:
    """Raise ValueError for NaN and the infinities, which JSON does not have: null would be kept in their place. `value` can be encoded."""
    level = [value]
    while level:
        if any(isinstance(one, float) and not math.isfinite(one) for one in level):
            raise ValueError("NaN and Infinity are no numbers of JSON")
        level = [item for one in level for item in _items(one)]


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple | set | frozenset) else ()


def output_content(event: events.Event) -> ContentId | None:
    """The content of the output that an event names, or None."""
    if not isinstance(event, events.CallSettled) or event.output is None:
        return None
    try:
        return ContentId(bytes.fromhex(event.output.blob))
    except ValueError:
        return None  # it names nothing that could be missing; `verify` says that it names nothing
