"""Oracle `witness`: what the commands themselves noted outside the workspace. The log cannot talk this one round.

Each witnessed command appends `<key> start` and `<key> end`, one O_APPEND write each.
"""

from .calls import Call, calls_of
from .evidence import Evidence, known
from .values import Finding, Stream, failed, name_event, passed, unknown

REPEATABLE = ("safe", "after-restore")


class WitnessProblem(Exception):
    """What the witness file shows must not be."""


def judge_witness(evidence: Evidence) -> Finding | None:
    """No attempt starts twice; what started had an intent; a finished call's adopted attempt started and ended; a second attempt
    started only after a restore and only for a repeatable call. Left out when no script call is witnessed."""
    noted = known(evidence.witness)
    if noted is None or not evidence.request.witnessed:
        return None
    stream = evidence.stream()
    calls = calls_of(stream)
    try:
        starts, ends = read_notes(noted)
        check_keys(calls, starts, replaying(stream))
        for call in calls:
            check_finish(evidence.request.witnessed, call, starts, ends)
            check_repeats(stream, call, starts)
    except WitnessProblem as problem:
        return failed(str(problem))
    return passed(f"{len(starts)} starts, {len(ends)} ends") if starts else unknown("no witnessed command started or finished")


def read_notes(noted: bytes) -> tuple[set[str], set[str]]:
    """The keys that started and those that ended. Raises WitnessProblem on a torn line or one that occurs twice."""
    *lines, torn = noted.split(b"\n")
    if torn:
        raise WitnessProblem(f"torn last line {torn!r:.80}")
    keys: dict[str, set[str]] = {"start": set(), "end": set()}
    for line in lines:
        key, _, word = line.decode("utf-8", "backslashreplace").rpartition(" ")
        if not key or word not in keys:
            raise WitnessProblem(f"torn line {line!r:.80}")
        if key in keys[word]:
            raise WitnessProblem(f"key {key} has two {word} lines")
        keys[word].add(key)
    if keys["end"] - keys["start"]:
        raise WitnessProblem(f"key {min(keys['end'] - keys['start'])} ended without a start")
    return keys["start"], keys["end"]


def check_keys(calls: list[Call], starts: set[str], replays: frozenset[int]) -> None:
    """A key belongs to one attempt, and what started had its intent in the log."""
    keys = [event.payload["key"] for call in calls for event in call.attempts]
    if len(set(keys)) != len(keys):
        raise WitnessProblem("two attempts have the same key")
    strangers = {key for key in starts - set(keys) if key.split("/")[2:3] != [f"d{seq_of(key)}"] or seq_of(key) not in replays}
    if strangers:
        raise WitnessProblem(f"key {min(strangers)} started without an attempt_started")


def seq_of(key: str) -> int:
    """The decision that a key of work inside a restore names; 0 for none."""
    parts = key.split("/")
    return int(parts[2][1:]) if len(parts) > 2 and parts[2][:1] == "d" and parts[2][1:].isdigit() else 0


def replaying(stream: Stream) -> frozenset[int]:
    """The decisions to restore from a checkpoint older than the head: finished calls that may be done again are, under their keys."""
    decided = stream.of_kind("recovery_decided")
    return frozenset(one.seq for one in decided if one.payload["obligation"] and stream.events[0].payload.get("checkpoints"))


def check_finish(witnessed: frozenset[int], call: Call, starts: set[str], ends: set[str]) -> None:
    """The attempt a witnessed call finished by has both lines."""
    finish = call.finish()
    if finish is None or call.script_index() not in witnessed:
        return
    attempt = call.finished_attempt()
    key = attempt.payload["key"] if attempt else None
    if key not in starts or key not in ends:
        lines = f"{'a' if key in starts else 'no'} start and {'an' if key in ends else 'no'} end"
        raise WitnessProblem(f"{name_event(finish)} finished by key {key}, which has {lines}")


def check_repeats(stream: Stream, call: Call, starts: set[str]) -> None:
    """Between two attempts of a call that both started stands a finished restore, and the call may be repeated."""
    started = [event for event in call.attempts if event.payload["key"] in starts]
    for before, after in zip(started, started[1:], strict=False):
        if after.payload["policy"] not in REPEATABLE or before.payload["policy"] not in REPEATABLE:
            raise WitnessProblem(f"{name_event(after)} started again under policy {after.payload['policy']}")
        restores = [event for event in stream.events[before.seq : after.seq] if event.kind == "restore_finished"]
        if not restores:
            raise WitnessProblem(f"{name_event(after)} started again without a restore since seq {before.seq}")
