"""Oracle `order`: calls and attempts count without holes, one call at a time, each settled once, none begun again on what an attempt
before it left, the script in its order."""

from collections.abc import Callable

from .calls import Call, calls_of
from .evidence import Evidence
from .laundering import is_end_by_person
from .request import JudgeRequest
from .values import Event, Finding, Stream, failed, name_event, passed, unknown

VOIDED = "void_and_run"
UNKNOWN_ENDS = frozenset({"ran_by_person"})
"""Labels of calls that are finished though nobody knows how they ended."""
Rule = Callable[[JudgeRequest, Stream, list[Call]], Finding | None]


def judge_order(evidence: Evidence) -> Finding:
    """The events of calls stand in the only order a session can have made them in."""
    stream = evidence.stream()
    calls = calls_of(stream)
    for rule in RULES:
        finding = rule(evidence.request, stream, calls)
        if finding is not None:
            return finding
    return passed(f"{len(calls)} calls in order") if calls else unknown("the stream has no calls")


def check_numbers(request: JudgeRequest, stream: Stream, calls: list[Call]) -> Finding | None:
    """Calls are numbered 1, 2, 3 ..., attempts of a call too."""
    for place, call in enumerate(calls, 1):
        if call.number != place:
            return failed(f"call {call.number} comes where call {place} must", event=first_event(call))
        for attempt, event in enumerate(call.attempts, 1):
            if event.payload["attempt"] != attempt:
                return at(event, f"attempt {event.payload['attempt']} comes where attempt {attempt} must")
            if event.payload["script_index"] != call.script_index():
                return at(event, f"attempts of call {call.number} have different script indexes")
    return None


def check_settlements(request: JudgeRequest, stream: Stream, calls: list[Call]) -> Finding | None:
    """A call is settled at most once (exactly once in a session that must have finished), after its attempts."""
    for call in calls:
        if len(call.settlements) > 1:
            return at(call.settlements[1], f"call {call.number} is settled twice")
        if not call.settlements:
            if request.expect_finished:
                return failed(f"call {call.number} is not settled", event=first_event(call))
            continue
        problem = settlement_problem(call, call.settlements[0])
        if problem is not None:
            return at(call.settlements[0], problem)
    return None


def settlement_problem(call: Call, settled: Event) -> str | None:
    """What is wrong with the one settlement of a call."""
    if any(event.seq > settled.seq for event in call.attempts):
        return f"call {call.number} starts an attempt after it was settled"
    if settled.payload["ended"] == "interrupted":
        return None
    if settled.payload["label"] in UNKNOWN_ENDS and settled.payload["exit"] is not None:
        return f"call {call.number} finished on a person's word, and its exit, which nobody knows, is told"
    newest = call.attempts[-1].payload["attempt"] if call.attempts else None
    if newest is None or settled.payload["attempt"] != newest:
        return f"call {call.number} finished attempt {settled.payload['attempt']}, its newest is {newest}"
    return None


def check_repeats(request: JudgeRequest, stream: Stream, calls: list[Call]) -> Finding | None:
    """Between two attempts of a call stands a finished restore, or the decision that the one before never started."""
    for call in calls:
        for before, after in zip(call.attempts, call.attempts[1:], strict=False):
            between = stream.events[before.seq : after.seq - 1]
            if not any(event.kind == "restore_finished" or is_void(event) for event in between):
                return at(after, f"call {call.number} begins again though its attempt before was neither restored nor voided")
    return None


def is_void(event: Event) -> bool:
    """Whether this is the decision that an attempt never started."""
    return event.kind == "recovery_decided" and event.payload["label"] == VOIDED


def check_one_at_a_time(request: JudgeRequest, stream: Stream, calls: list[Call]) -> Finding | None:
    """The next call's first event comes after the call before it was settled."""
    for before, after in zip(calls, calls[1:], strict=False):
        first = (after.attempts + after.settlements)[0]
        if not before.settlements or before.settlements[0].seq > first.seq:
            return at(first, f"call {after.number} begins before call {before.number} was settled")
    return None


def check_end(request: JudgeRequest, stream: Stream, calls: list[Call]) -> Finding | None:
    """`session_finished` is unique and last, and there when it must be."""
    ends = stream.of_kind("session_finished")
    if len(ends) > 1:
        return at(ends[1], "session_finished twice")
    if ends and ends[0] is not stream.events[-1]:
        return at(stream.events[ends[0].seq], "an event after session_finished")
    if not ends and request.expect_finished:
        return failed("the session did not finish", expected="session_finished", found=name_event(stream.events[-1]))
    return None


def check_script(request: JudgeRequest, stream: Stream, calls: list[Call]) -> Finding | None:
    """Script calls finish in the script's order, each at most once."""
    standing: list[Call] = []
    rejected = rejected_indexes(stream)
    undone = {event.payload["call"]: event.seq for event in stream.of_kind("call_undone")}
    for call in calls:
        finish, index = call.finish(), call.script_index()
        if finish is None or index is None:
            continue
        standing = [one for one in standing if not undone.get(one.number, finish.seq) < finish.seq]
        previous = index_of(standing)
        if not previous < index < request.script_length:
            return at(finish, f"script call {index} finished after script call {previous} of {request.script_length}")
        if request.on_interrupted == "reissue" and not rejected.issuperset(range(previous + 1, index)):
            return at(finish, f"script call {index} finished, script call {previous + 1} did not")
        standing.append(call)
    previous = index_of([one for one in standing if one.number not in undone])
    left = range(previous + 1, request.script_length)
    if request.on_interrupted == "reissue" and request.expect_finished and not rejected.issuperset(left):
        return failed(f"script call {previous + 1} of {request.script_length} did not finish")
    return None


def rejected_indexes(stream: Stream) -> set[int]:
    """The script indexes of which a person's answer was that they do not run."""
    asked = {event.seq: event.payload["script_index"] for event in stream.of_kind("approval_asked")}
    answers = stream.of_kind("approval_answered")
    found = {asked.get(event.payload["asked_seq"]) for event in answers if event.payload["answer"] == "rejected"}
    return {index for index in found if index is not None}


def index_of(standing: list[Call]) -> int:
    """The script index of the newest call that stands; -1 when none does."""
    index = standing[-1].script_index() if standing else None
    return -1 if index is None else index


def check_undone(request: JudgeRequest, stream: Stream, calls: list[Call]) -> Finding | None:
    """A person's restore undoes, each once, exactly the finished calls after its target that stand (C3). Where an older checkpoint stands
    in (C7), calls after it may be undone, those that are not done again: how many, `lost-work` judges. Nothing else undoes any."""
    finishes = {call.number: finish.seq for call in calls if (finish := call.finish()) is not None}
    undone: set[int] = set()
    owed: set[int] = set()
    behind: set[int] = set()
    for event in stream.events:
        if event.kind == "recovery_decided" and "fallback_checkpoint" in event.payload["facts"]:
            target = event.payload["target_seq"]
            behind = {number for number, seq in finishes.items() if target < seq < event.seq} - undone
        elif event.kind == "restore_finished":
            decision = stream.event_at(event.payload["decision_seq"])
            if decision is not None and is_end_by_person(stream, event):
                target = decision.payload["target_seq"]
                owed = {number for number, seq in finishes.items() if target < seq < event.seq} - undone
        elif event.kind == "call_undone":
            number = event.payload["call"]
            if number not in owed | behind:
                return at(event, f"call {number} is undone and no restore before it undid it")
            owed.discard(number)
            behind.discard(number)
            undone.add(number)
        elif owed and event.kind in ("driver_started", "attempt_started", "session_finished"):
            return at(event, f"call {min(owed)} was undone by a restore and no call_undone says so")
    return failed(f"call {min(owed)} was undone by a restore and no call_undone says so") if owed else None


def check_coverage(request: JudgeRequest, stream: Stream, calls: list[Call]) -> Finding | None:
    """With `continue`, every script call of a finished session was a call, finished or interrupted: none is skipped. A call
    settled without an intent does not say which it was and counts for any one."""
    if request.on_interrupted != "continue" or not request.expect_finished:
        return None
    missing = sorted(set(range(request.script_length)) - {call.script_index() for call in calls})
    nameless = sum(not call.attempts for call in calls)
    return failed(f"script call {missing[0]} was never started") if len(missing) > nameless else None


def first_event(call: Call) -> str | None:
    """The name of a call's first event."""
    return name_event((call.attempts + call.settlements)[0])


def at(event: Event, detail: str) -> Finding:
    """A failure at an event."""
    return failed(detail, event=name_event(event))


RULES: tuple[Rule, ...] = (
    check_numbers,
    check_settlements,
    check_repeats,
    check_one_at_a_time,
    check_end,
    check_script,
    check_undone,
    check_coverage,
)
