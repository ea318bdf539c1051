"""Oracle `laundering`: recovery did not make workspace and log equal by recording what it found.

Only three kinds may change the image, and the end of a restore that a person asked for, which moves the head to its target. A restore
reaches the root it was decided to reach; an interrupted call leaves the image that was there before its first attempt.
"""

from collections.abc import Callable
from dataclasses import replace

from .calls import calls_of
from .evidence import Evidence
from .excludes import excludes_of
from .image import ImageFold
from .observations import check_observation
from .paths import ancestors_of, bytes_of
from .request import JudgeRequest
from .stale import ends_staleness
from .values import Event, Finding, Stream, failed, hex_of, name_event, passed, unknown

BY_PERSON = "restore_by_person"
LEFT_OUT = "exclude_by_person"
MAY_CHANGE = frozenset({"session_opened", "workspace_observed", "call_settled", "call_replayed"})
NOT_WHILE_OPEN = frozenset({"attempt_started", "workspace_observed"})
Rule = Callable[[JudgeRequest, Stream], Finding | None]


def judge_laundering(evidence: Evidence) -> Finding:
    """Image changes come from calls that finished, and from outside only what somebody was meant to edit."""
    stream = evidence.stream()
    for rule in RULES:
        finding = rule(evidence.request, stream)
        if finding is not None:
            return finding
    if len(stream.events) == 1:
        return unknown("nothing happened after the session was opened")
    return passed(f"{len(obligations(stream))} restores decided, {len(stream.of_kind('workspace_observed'))} outside changes")


def check_observations(request: JudgeRequest, stream: Stream) -> Finding | None:
    """Without planned outside edits nothing was observed; when it is told who edited what, nothing else was."""
    observed = [event for event in stream.of_kind("workspace_observed") if not ends_staleness(stream, event)]
    if request.edits is not None:
        found = (check_observation(stream, event, request.edits) for event in observed)
        return next((finding for finding in found if finding is not None), None)
    if observed and not request.outside_edits:
        return at(observed[0], "an outside change is recorded though nobody edited")
    return None


def check_carriers(request: JudgeRequest, stream: Stream) -> Finding | None:
    """No other kind carries changes, nor does an interrupted call."""
    for event in stream.events:
        interrupted = event.kind == "call_settled" and event.payload["ended"] == "interrupted"
        if event.changes and (interrupted or event.kind not in MAY_CHANGE) and not moves_head(stream, event):
            return failed("image changes where none may be", path=event.changes[0].path, event=name_event(event))
    return None


def check_replays(request: JudgeRequest, stream: Stream) -> Finding | None:
    """A finished call that is done again after a restore from an older checkpoint reaches the root that it had (C7)."""
    reached = {event.payload["call"]: event.payload["root"] for event in stream.of_kind("call_settled")}
    for event in stream.of_kind("call_replayed"):
        wanted = reached.get(event.payload["call"])
        if event.payload["root"] != wanted:
            return at(event, "a call that was done again reached another image", wanted, event.payload["root"])
    return None


def check_decisions(request: JudgeRequest, stream: Stream) -> Finding | None:
    """An obligation aims at an image the log has."""
    for decision in obligations(stream):
        target_seq, target_root = decision.payload["target_seq"], decision.payload["target_root"]
        folded = hex_of(root_aimed_at(stream, decision))
        if target_seq >= decision.seq or folded != target_root:
            return at(decision, f"target_root is not the image at seq {target_seq}", folded, target_root)
    return None


def check_restores(request: JudgeRequest, stream: Stream) -> Finding | None:
    """A finished restore closes an open obligation and reached its target; while one is open no call goes on."""
    unfinished: dict[int, Event] = {}
    for event in stream.events:
        if event.kind == "recovery_decided" and event.payload["obligation"]:
            unfinished[event.seq] = event
        elif event.kind == "restore_finished":
            decision = unfinished.pop(event.payload["decision_seq"], None)
            if decision is None:
                return at(event, f"no open obligation at seq {event.payload['decision_seq']}")
            if event.payload["root"] != decision.payload["target_root"]:
                return at(event, "the restore did not reach its target", decision.payload["target_root"], event.payload["root"])
        elif unfinished and (event.kind in NOT_WHILE_OPEN or is_finish(event)):
            return at(event, f"{event.kind} while the obligation of seq {min(unfinished)} is open")
    if unfinished and request.expect_finished:
        return at(unfinished[min(unfinished)], "the obligation was never closed")
    return None


def check_interrupted(request: JudgeRequest, stream: Stream) -> Finding | None:
    """An interrupted call's root is the image before its first attempt (or after an outside change recorded since)."""
    for call in calls_of(stream):
        for settled in call.settlements:
            if settled.payload["ended"] == "finished" or not call.attempts:
                continue
            first = call.attempts[0].seq
            observed = [event.seq for event in stream.events[first : settled.seq] if event.kind == "workspace_observed"]
            restored = [event.seq for event in stream.events[first : settled.seq] if is_end_by_person(stream, event)]
            before = hex_of(stream.root_at(max([first, *observed, *restored])))
            if settled.payload["root"] != before:
                return at(settled, f"call {call.number} was interrupted and left something behind", before, settled.payload["root"])
    return None


def is_end_by_person(stream: Stream, event: Event) -> bool:
    """Whether a restore that a person asked for ended here."""
    decision = stream.event_at(event.payload["decision_seq"]) if event.kind == "restore_finished" else None
    return decision is not None and decision.kind == "recovery_decided" and decision.payload["label"] == BY_PERSON


def root_aimed_at(stream: Stream, decision: Event) -> bytes | None:
    """The root of the image at a decision's target, without the paths that a person left out before the decision."""
    before = stream.events[: decision.seq - 1]
    excluded = [event.payload["facts"]["excluded"] for event in before if event.payload.get("label") == LEFT_OUT]
    target = decision.payload["target_seq"]
    if not excluded or target >= decision.seq:
        return stream.root_at(target)
    image = ImageFold(excludes_of(stream))
    for event in stream.events[:target]:
        image.apply(event.changes)
    gone = {bytes_of(path) for path in excluded}
    image.apply(tuple(replace(one, op="del") for path, one in sorted(image.entries.items()) if gone & {path, *ancestors_of(path)}))
    for leader, members in list(image.groups.items()):
        first = min(members) if len(members) > 1 else None
        image.apply(tuple(replace(image.entries[path], link=first) for path in sorted(members) if leader != first))
    return image.root()


def moves_head(stream: Stream, event: Event) -> bool:
    """Whether a restore ended here that goes back behind the head image: a person's, or one from an older checkpoint."""
    if event.kind != "restore_finished" or not stream.events[0].payload.get("checkpoints"):
        return is_end_by_person(stream, event)
    decision = stream.event_at(event.payload["decision_seq"])
    return is_end_by_person(stream, event) or (decision is not None and "fallback_checkpoint" in decision.payload["facts"])


def obligations(stream: Stream) -> list[Event]:
    """The decisions that opened an obligation."""
    return [event for event in stream.of_kind("recovery_decided") if event.payload["obligation"]]


def is_finish(event: Event) -> bool:
    """Whether a call finished here."""
    return event.kind == "call_settled" and event.payload["ended"] == "finished"


def at(event: Event, detail: str, expected: str | None = None, found: str | None = None) -> Finding:
    """A failure at an event."""
    return failed(detail, expected=expected, found=found, event=name_event(event))


RULES: tuple[Rule, ...] = (check_observations, check_carriers, check_decisions, check_replays, check_restores, check_interrupted)
