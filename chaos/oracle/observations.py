"""What a `workspace_observed` may say when it is known who edited what: the rule of `laundering` about outside changes.

Everything else it could record is what a call left behind, and recording that is how recovery would make workspace and log equal without
undoing anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .paths import ancestors_of
from .request_items import Edit
from .values import Change, Event, Finding, Stream, failed, name_event

Image = Mapping[bytes, Change]


def check_observation(stream: Stream, event: Event, edits: Iterable[Edit]) -> Finding | None:
    """A failure when an observation records what no edit explains, its first such path named."""
    edits = tuple(edits)
    if not edits:
        return failed("an outside change is recorded though nobody edited", event=name_event(event))
    before = image_before(stream, event.seq)
    for change in event.changes:
        if change.op != "times" and not any(explains(edit, change, before) for edit in edits):
            wanted = [edit.content.hex() if edit.content else "a removal" for edit in edits if edit.path == change.path]
            found = change.content.hex() if change.content else f"{change.op} {change.kind}".strip()
            detail = "an outside change is recorded that nobody made"
            return failed(detail, path=change.path, expected=" or ".join(wanted) or None, found=found, event=name_event(event))
    return None


def image_before(stream: Stream, seq: int) -> Image:
    """The image just before an event."""
    image: dict[bytes, Change] = {}
    for event in stream.events[: seq - 1]:
        for change in event.changes:
            if change.op == "put":
                image[change.path] = change
            elif change.op == "del":
                image.pop(change.path, None)
    return image


def explains(edit: Edit, change: Change, before: Image) -> bool:
    """Whether an edit can have made a change: its file written or removed (with what is below it), a directory made on the way to it, or
    another name of the same file, whose link group and content go with it."""
    old = before.get(change.path)
    if change.op == "del":
        return edit.is_removal and edit.path in (change.path, *ancestors_of(change.path))
    if not edit.is_removal and change.kind == "d" and change.path in ancestors_of(edit.path):
        return old is None or old.kind != "d"
    if edit.kind != "f":
        return (change.path, change.kind, change.target) == (edit.path, edit.kind, edit.target)
    is_name = change.path == edit.path or is_linked(edit, old, before)
    is_written = change.kind == "f" and edit.content is not None and change.content == edit.content
    return is_name and (is_written or is_regrouped(change, old))


def is_linked(edit: Edit, old: Change | None, before: Image) -> bool:
    """Whether a path shared its file with the edited one."""
    edited = before.get(edit.path)
    return old is not None and edited is not None and old.link is not None and old.link == edited.link


def is_regrouped(change: Change, old: Change | None) -> bool:
    """Whether nothing but the link group (and the time) changed."""
    return old is not None and replace(old, link=change.link, mtime_ns=change.mtime_ns) == change
