"""Oracle `edits`: what somebody else changed in the workspace is lost nowhere (I10, I11, rule C2).

An edit outside calls is recorded as `workspace_observed`; one during a call belongs to the call, and is recorded with its outcome or goes
into quarantine with what the call left. Whoever made the edits (the runner) says so in the request; the engine is not asked.
"""

from .differences import describe, entry_of
from .evidence import Evidence, known
from .kept import is_whole, puts_at, victims_of
from .request_items import Edit
from .values import Finding, Stream, failed, name_event, passed

RECORDERS = ("workspace_observed", "call_settled")


def judge_edits(evidence: Evidence) -> Finding | None:
    """Each edit's content is in the head image, in a change that was recorded at its path, or in quarantine under its path, and whole;
    each removal was recorded or undone. Left out when nothing was edited."""
    edits = last_of_each(evidence.request.edits or ())
    if not edits:
        return None
    for edit in edits:
        finding = check_removal(evidence.stream(), edit) if edit.is_removal else check_made(evidence, edit)
        if finding is not None:
            return finding
    removals = sum(edit.is_removal for edit in edits)
    return passed(f"{len(edits) - removals} contents and {removals} removals are where they must be")


def last_of_each(edits: tuple[Edit, ...]) -> list[Edit]:
    """The edits without those that the next edit of the same path overwrote at the same head of the log: nobody else can have seen them."""
    return list({(edit.path, edit.head): edit for edit in edits}.values())


def check_made(evidence: Evidence, edit: Edit) -> Finding | None:
    """A failure when what an edit made of a path can be found nowhere."""
    if edit.content is not None:
        return check_content(evidence, edit, edit.content)
    stream = evidence.stream()
    head = stream.fold.image.get(edit.path)
    recorded = [entry_of(change) for event, change in puts_at(stream, edit.path) if event.kind in RECORDERS]
    places = [*recorded, *([] if head is None else [entry_of(head)]), *victims_of(evidence).get(edit.path, ())]
    if any((entry.kind, entry.target) == (edit.kind, edit.target) for entry in places):
        return None
    return report(stream, edit, "an edit is lost: what it made is neither in the log at its path nor in quarantine", edit.kind)


def check_content(evidence: Evidence, edit: Edit, content: bytes) -> Finding | None:
    """A failure when the bytes that an edit wrote can be found nowhere."""
    if is_recorded(evidence, edit, content) or content in [entry.content for entry in victims_of(evidence).get(edit.path, ())]:
        return None
    detail = "an edit is lost: its content is neither in the log at its path nor in quarantine"
    return report(evidence.stream(), edit, detail, content.hex())


def is_recorded(evidence: Evidence, edit: Edit, content: bytes) -> bool:
    """Whether the head image has the content at the edit's path, or a call or an observation recorded it there; and it is whole."""
    stream = evidence.stream()
    head = stream.fold.image.get(edit.path)
    contents = {change.content for event, change in puts_at(stream, edit.path) if event.kind in RECORDERS}
    contents.add(None if head is None else head.content)
    return content in contents and is_whole(known(evidence.log).blobs, content)


def check_removal(stream: Stream, edit: Edit) -> Finding | None:
    """A failure when a path that was tracked is gone though no event says so, or back though no restore put it there.

    With the head known at which it was removed, a call that made the path anew accounts for it; without, that might have been before.
    """
    since = 0 if edit.head is None else edit.head
    accounts = {"del"} if edit.head is None else {"del", "put"}
    rows = [change for event in stream.events[since:] if event.kind in RECORDERS for change in event.changes]
    is_recorded_so = any(change.path == edit.path and change.op in accounts for change in rows)
    if is_recorded_so or is_undone(stream, edit.path, since) or not stood_before(stream, edit):
        return None
    return report(stream, edit, "the removal of a path was neither recorded nor undone by a restore", "a removal")


def stood_before(stream: Stream, edit: Edit) -> bool:
    """Whether an image had the path when it was removed; with the head unknown, whether any ever had."""
    return any(True for _ in puts_at(stream, edit.path)) if edit.head is None else stands_at(stream, edit.path, edit.head)


def is_undone(stream: Stream, path: bytes, since: int) -> bool:
    """Whether a restore to an image that has the path was finished after `since`."""
    finished = [event for event in stream.events[since:] if event.kind == "restore_finished"]
    decisions = [stream.event_at(event.payload["decision_seq"]) for event in finished]
    return any(stands_at(stream, path, one.payload.get("target_seq") or 0) for one in decisions if one is not None)


def stands_at(stream: Stream, path: bytes, seq: int) -> bool:
    """Whether the image after `seq` has the path."""
    ops = [change.op for event in stream.events[:seq] for change in event.changes if change.path == path and change.op != "times"]
    return ops[-1:] == ["put"]


def report(stream: Stream, edit: Edit, detail: str, expected: str) -> Finding:
    """The failure for one edit: what stands at its path in the head image, and which event put it there."""
    head = stream.fold.image.get(edit.path)
    event = stream.event_at(stream.fold.origins.get(edit.path, 0))
    found = describe(None if head is None else entry_of(head))
    return failed(detail, path=edit.path, expected=expected, found=found, event=name_event(event))
