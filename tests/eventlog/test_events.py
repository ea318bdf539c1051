"""Every kind of event goes into bytes and comes back; what is newer or unknown is refused by name."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.oracle.payloads import SHAPES, decode_payload
from eventlog import events
from eventlog.errors import CorruptError

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "ab" * 32
IDENTITY = events.DriverIdentity("n", 4, 5, "boot", 6)
UNTRACKED = [events.Untracked({"b64": "/w=="}, "socket"), events.Untracked("link", "outside link")]
EXITS = [
    None,
    events.Exit("exited", code=137),
    events.Exit("signaled", signal=9),
    events.Exit("timed_out", signal=15),
    events.Exit("timed_out", code=5),
    events.Exit("start_failed", error="no such file"),
]
OUTPUT = events.Output(10, 4, True, DIGEST)
SETTLED = [events.CallSettled(5, 1, 1, "finished", "adopt", "", ended, OUTPUT, DIGEST, UNTRACKED) for ended in EXITS]

EXAMPLES: list[events.Event] = [
    events.SessionOpened(
        1, "n", {"b64": "/w=="}, "transactional", "stop", [{"tool": "bash", "run": "x"}], DIGEST,
        events.RootIdentity("id", 1, None, "ef53"), "l", 1, UNTRACKED, ["node_modules/", {"b64": "/w=="}], ["owners", "acls"], None, None,
    ),
    events.SessionOpened(
        1, "\u00e9", "w", "transactional", "continue", [], DIGEST, events.RootIdentity("", 1, 2, ""), "l", 2, [], [], [], None, None
    ),
    events.DriverStarted(2, IDENTITY, "l", 1, "environment"),
    events.WorkspaceObserved(3, DIGEST, UNTRACKED),
    events.AttemptStarted(4, 1, 2, None, "write", {"path": {"b64": "/w=="}}, "after-restore", "k", DIGEST, True, ""),
    events.AttemptStarted(4, 1, 2, 0, "bash", {}, "ask", "k", DIGEST, False, "step 3"),
    *SETTLED,
    events.CallSettled(
        5, 1, 1, "finished", "adopt", "", EXITS[1],
        events.Output(14, 8, True, DIGEST, DIGEST, events.Stderr(4, 4, False, DIGEST), True, "ENOSPC: no room"), DIGEST, [],
    ),
    events.CallSettled(5, 1, 2, "interrupted", "restore", "killed", None, None, DIGEST, []),
    events.RecoveryDecided(6, "restore-and-rerun", 1, 1, True, 3, DIGEST, "transactional", {"exit": "unknown"}),
    events.RecoveryDecided(6, "nothing", None, None, False, None, None, "transactional", {}),
    events.Quarantined(7, 6, "log-6", ["a", {"b64": "/w=="}]),
    events.RestoreFinished(8, 6, DIGEST, 1, 2, 3, 1, 0, accepted=False),
    events.Synced(9, DIGEST, "boot"),
    events.SessionFinished(10, DIGEST),
    events.SessionForked(
        12, "f", "moved", "l" * 32, "n", 4, DIGEST, "transactional", "continue", [{"tool": "bash", "run": "x"}],
        [events.ForkedCall(1, None, "bash", "finished", DIGEST, "step 1", DIGEST, EXITS[2], OUTPUT)], DIGEST, UNTRACKED, ["*.o"], ["acls"],
        None, None, [events.ForkedInput("request 1", {"say": "hello"})],
    ),
    events.SessionPlaced(12, {"b64": "/w=="}, events.RootIdentity("i", 0, None, ""), "l", 1, "s"),
    events.InputAdmitted(13, "request 1", {"say": "hello"}),
    events.CallUndone(14, 1, "its root was lost", 6),
    events.CallReplayed(15, 1, 2, DIGEST),
    events.SessionOpened(
        1, "n", "w", "checkpoint", "stop", [], DIGEST, events.RootIdentity("", 1, 2, ""), "l", 2, [], [], [],
        events.Limits(None, 5, 6), events.Checkpoints({"b64": "/w=="}, 3, DIGEST),
    ),
    events.SessionForked(
        12, "f", "forked", "l" * 32, "n", 4, DIGEST, "auto", "stop", [], [], DIGEST, [], [], [], events.Limits(4, None, None),
        events.Checkpoints("/s", 0, ""), [],
    ),
    events.CheckpointTaken(16, DIGEST, DIGEST, 12),
    events.ModeSwitched(17, "checkpoint", "the workspace grew above 2 GiB", DIGEST),
    events.PauseRequested(18, "the machine is needed"),
    events.ApprovalAsked(18, 3, None, "bash", {"run": "x"}, "key", "digest"),
    events.ApprovalAnswered(18, 9, "approved", None, ""),
    events.ApprovalAnswered(18, 9, "edited", {"tool": "bash", "run": "y"}, "not x"),
    events.SessionPaused(18, DIGEST, "asked"),
    events.SessionResumed(19),
    events.SessionMoved(20, DIGEST),
    events.SessionFailed(21, DIGEST, "no room"),
    events.RootRecorded(22, "rebuilt", events.RootIdentity("i", 5, None, "f")),
    events.Noted(11, "two\nlines \u202e"),
]  # fmt: skip


def name_example(event: events.Event) -> str:
    return event.kind


@pytest.mark.parametrize("event", EXAMPLES, ids=name_example)
def test_an_event_comes_back_from_its_bytes(event: events.Event) -> None:
    payload = events.encode(event)
    assert events.decode(event.kind, event.version, payload, "here") == event
    assert json.loads(payload)["at_ms"] == event.at_ms


@pytest.mark.parametrize("event", EXAMPLES, ids=name_example)
def test_an_event_has_the_shape_that_the_format_page_gives_its_kind(event: events.Event) -> None:
    found = decode_payload(event.kind, event.version, events.encode(event))
    assert set(found) == {"at_ms", *SHAPES[event.kind]}


def test_the_examples_the_union_and_the_format_page_name_the_same_kinds() -> None:
    kinds = {event.kind for event in EXAMPLES}
    assert kinds == {event.kind for event in events.EVENT_TYPES} == set(SHAPES)
    page = (ROOT / "eventlog" / "README.md").read_text("utf-8")
    assert all(f"| `{kind}` |" in page for kind in kinds)


@pytest.mark.parametrize("event", EXAMPLES, ids=name_example)
def test_a_newer_version_is_refused_by_name(event: events.Event) -> None:
    with pytest.raises(CorruptError, match=rf"the place: event kind {event.kind} version {event.version + 1} .*upgrade"):
        events.decode(event.kind, event.version + 1, events.encode(event), "the place")


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(CorruptError, match="the place: unknown event kind 'session_teleported'"):
        events.decode("session_teleported", 1, b"{}", "the place")


FREE = {"script", "input", "facts"}
"""Fields that hold whatever JSON somebody else put there."""


def with_each_number(value: Any, instead: object) -> Iterator[Any]:
    """The value once for each whole number in it, `instead` in its place."""
    match value:
        case bool():
            return
        case int():
            yield instead
        case dict():
            for name in value.keys() - FREE:
                yield from ({**value, name: other} for other in with_each_number(value[name], instead))
        case list():
            for at, item in enumerate(value):
                yield from ([*value[:at], other, *value[at + 1 :]] for other in with_each_number(item, instead))


@pytest.mark.parametrize("instead", [1 << 64, 1 << 70, -(1 << 63) - 1, 1.5, "1", True], ids=str)
@pytest.mark.parametrize("event", EXAMPLES, ids=name_example)
def test_a_number_that_no_log_can_hold_is_damage(event: events.Event, instead: object) -> None:
    made = list(with_each_number(json.loads(events.encode(event)), instead))
    assert len(made) >= 1
    for payload in made:
        with pytest.raises(CorruptError, match=f"the place: payload of {event.kind}"):
            events.decode(event.kind, event.version, json.dumps(payload).encode(), "the place")


@pytest.mark.parametrize("event", EXAMPLES, ids=name_example)
def test_nothing_but_an_instant_and_an_exit_code_is_below_zero(event: events.Event) -> None:
    fields = json.loads(events.encode(event))
    for below in with_each_number({**fields, "at_ms": "", "exit": None, "root_identity": None}, -1):
        payload = json.dumps({**below, **{name: fields[name] for name in ("at_ms", "exit", "root_identity") if name in fields}}).encode()
        with pytest.raises(CorruptError, match=f"the place: payload of {event.kind}"):
            events.decode(event.kind, event.version, payload, "the place")


CONTRADICTIONS: dict[str, tuple[events.Event, str]] = {
    "kept": (replace(SETTLED[1], output=events.Output(3, 4, False, DIGEST)), "more of its output is kept"),
    "kept apart": (replace(SETTLED[1], output=events.Output(9, 9, False, DIGEST, "", events.Stderr(1, 2, False, DIGEST))), "is kept"),
    "apart": (replace(SETTLED[1], output=events.Output(9, 9, False, DIGEST, "", events.Stderr(10, 2, False, DIGEST))), "standard error"),
    "apart kept": (replace(SETTLED[1], output=events.Output(9, 1, True, DIGEST, "", events.Stderr(9, 2, False, DIGEST))), "standard error"),
    "undone": (events.CallUndone(14, 1, "lost", 6), "the decision at seq 6"),
    "quarantined": (events.Quarantined(7, 6, "log-6", []), "the decision at seq 6"),
    "restored": (events.RestoreFinished(8, 7, DIGEST, 1, 2, 3, 1, 0, accepted=False), "the decision at seq 7"),
    "decided": (events.RecoveryDecided(6, "restore", 1, 1, True, 6, DIGEST, "transactional", {}), "goes back to seq 6"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_numbers_that_contradict_each_other_are_told(name: str) -> None:
    event, words = CONTRADICTIONS[name]
    assert words in events.find_contradiction(event, 6)
    assert all(events.find_contradiction(example, 100) == "" for example in EXAMPLES)


@pytest.mark.parametrize("event", EXAMPLES, ids=name_example)
def test_a_payload_that_lacks_a_field_is_damage(event: events.Event) -> None:
    fields = json.loads(events.encode(event))
    for field in fields:
        cut = json.dumps({name: value for name, value in fields.items() if name != field}).encode()
        with pytest.raises(CorruptError, match=f"the place: payload of {event.kind}"):
            events.decode(event.kind, event.version, cut, "the place")


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"null", b'{"at_ms": 1', b'{"at_ms": 1, "text": "\xff"}', b'{"at_ms": "1", "text": "x"}', b"[" * 100_000]
)
def test_a_payload_that_is_not_one_is_damage(payload: bytes) -> None:
    with pytest.raises(CorruptError, match="the place: payload of noted"):
        events.decode("noted", 1, payload, "the place")


def test_an_outcome_of_version_1_says_what_it_said_and_no_more() -> None:
    """What is called like a later field there is nothing, to the engine and to the oracle."""
    old = {"at_ms": 5, "call": 1, "attempt": 1, "ended": "finished", "label": "live", "reason": "", "exit": {"kind": "exited", "code": 0}}
    output = {"total": 10, "kept": 4, "cut": True, "blob": DIGEST, "held": "what", "stderr": 7, "missing": 3, "digest": []}
    payload = json.dumps(old | {"output": output, "root": DIGEST, "untracked": []}).encode()
    settled = events.decode("call_settled", 1, payload, "here")
    assert isinstance(settled, events.CallSettled) and settled.output == OUTPUT
    assert decode_payload("call_settled", 1, payload)["output"] == {"total": 10, "kept": 4, "cut": True, "blob": DIGEST}
    for read in (lambda: events.decode("call_settled", 2, payload, "here"), lambda: decode_payload("call_settled", 2, payload)):
        with pytest.raises((CorruptError, ValueError)):
            read()
    assert json.loads(events.encode(settled))["output"] == {"total": 10, "kept": 4, "cut": True, "blob": DIGEST}, "nothing is added"


@pytest.mark.parametrize(
    ("kind", "seq", "epoch", "floor", "word"),
    [
        ("session_opened", 1, 0, 0, ""),
        ("session_opened", 2, 0, 0, "first event"),
        ("noted", 1, 0, 0, "first event"),
        ("session_opened", 1, 1, 0, "epoch 1"),
        ("driver_started", 2, 1, 0, ""),
        ("driver_started", 2, 9, 3, ""),
        ("driver_started", 2, 3, 3, "not above"),
        ("driver_started", 2, 2, 3, "not above"),
        ("noted", 2, 0, 0, ""),
        ("noted", 2, 3, 3, ""),
        ("noted", 2, 2, 3, "epoch 2"),
        ("noted", 2, 4, 3, "epoch 4"),
    ],
)
def test_what_may_stand_where(kind: str, seq: int, epoch: int, floor: int, word: str) -> None:
    found = events.find_misplacement(kind, seq, epoch, floor)
    assert word in found and bool(word) == bool(found)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "exited"},
        {"kind": "exited", "signal": 9},
        {"kind": "exited", "code": 137, "signal": 9},
        {"kind": "signaled", "code": 137},
        {"kind": "signaled"},
        {"kind": "timed_out"},
        {"kind": "timed_out", "signal": 15, "code": 0},
        {"kind": "start_failed", "code": 127},
    ],
    ids=json.dumps,
)
def test_rule_I8_an_exit_that_mixes_code_and_signal_is_neither_made_nor_read(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"an exit {fields['kind']} has"):
        events.Exit(**fields)
    payload = json.loads(events.encode(SETTLED[1])) | {"exit": fields}
    with pytest.raises(CorruptError):
        events.decode("call_settled", 1, json.dumps(payload).encode(), "here")
    with pytest.raises(ValueError, match="wrong 'exit'"):
        decode_payload("call_settled", 1, json.dumps(payload).encode())
