"""Drawn histories: two writing handles, two streams, any order of acts, compared with a model that is a floor and a list."""

import random
from dataclasses import dataclass, field

import pytest

from eventlog import events
from eventlog.conformance.formula import check_chain
from eventlog.conformance.samples import OTHER, STREAM, begin, note, opened, read, started
from eventlog.errors import CrashworthyError, InternalError
from eventlog.ports import RandomIds
from eventlog.store import Store, WritingHandle
from eventlog.values import Epoch, StreamId

SEEDS = range(12)
ACTS = 60


@dataclass(slots=True)
class Modelled:
    """A stream, as the rules say it must be."""

    floor: int = 0
    accepted: list[tuple[int, str]] = field(default_factory=list)
    requests: dict[str, tuple[int, str]] = field(default_factory=dict)
    sent: dict[bytes, int] = field(default_factory=dict)

    def take(self, epoch: int, text: str) -> int:
        """Accept an event; its seq, the stream's first event being 1."""
        self.accepted.append((epoch, text))
        return len(self.accepted) + 1


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that a handle does to a stream. `key` is which event id or request id it uses."""

    what: str
    stream: StreamId
    epoch: int
    text: str
    key: int


def draw_act(draw: random.Random, number: int, floor: int) -> Act:
    """An act under an epoch near the floor."""
    what = draw.choice(("raise", "append", "append", "append", "repeat", "unfenced", "admit"))
    epoch = max(0, floor + draw.choice((-2, -1, 0, 0, 0, 1)) + (what == "raise"))
    return Act(what, draw.choice((STREAM, OTHER)), epoch, f"{number}", draw.randrange(6))


def expect(model: dict[StreamId, Modelled], act: Act) -> str:
    """The answer that an act must get; the model is then as the log must be."""
    stream = model[act.stream]
    match act.what:
        case "raise" if act.epoch < stream.floor:
            return "StaleEpochError"
        case "raise" if act.epoch == stream.floor:
            return "EpochTakenError"
        case "raise":
            stream.floor = act.epoch
            return f"{stream.take(act.epoch, act.text)}"
        case "repeat" if any(_event_id(act.key) in other.sent for name, other in model.items() if name != act.stream):
            return "MisuseError"
        case "repeat" if _event_id(act.key) in stream.sent:
            return f"{stream.sent[_event_id(act.key)]}"
        case "unfenced":
            return f"{stream.take(stream.floor, act.text)}"
        case "admit":
            return expect_admitted(stream, act)
        case _ if act.epoch < stream.floor:
            return "StaleEpochError"
        case _ if act.epoch > stream.floor:
            return "InternalError"
        case "repeat":
            stream.sent[_event_id(act.key)] = stream.take(act.epoch, f"repeat {act.key}")
            return f"{stream.sent[_event_id(act.key)]}"
        case _:
            return f"{stream.take(act.epoch, act.text)}"


def expect_admitted(stream: Modelled, act: Act) -> str:
    """An admission: sent again with the same input it is answered, with another it is refused."""
    given = f"input {act.epoch % 2}"
    seq, before = stream.requests.get(f"r{act.key}", (0, given))
    if before != given:
        return "MisuseError"
    if not seq:
        seq = stream.take(stream.floor, f"r{act.key}")
        stream.requests[f"r{act.key}"] = (seq, given)
    return f"{seq}"


def perform(handle: WritingHandle, act: Act) -> str:
    """Do an act; the seq it was answered with, or the name of the error."""
    try:
        match act.what:
            case "raise":
                return f"{handle.raise_floor(act.stream, Epoch(act.epoch), started(act.text)).seq}"
            case "append":
                return f"{handle.append(act.stream, Epoch(act.epoch), [note(act.text)], (), 'note')[0].seq}"
            case "repeat":
                record = note(f"repeat {act.key}", _event_id(act.key))
                return f"{handle.append(act.stream, Epoch(act.epoch), [record], (), 'note')[0].seq}"
            case "unfenced":
                return f"{handle.append_unfenced(act.stream, [note(act.text)], 'note')[0].seq}"
            case _:
                return f"{handle.admit(act.stream, f'r{act.key}', {'say': f'input {act.epoch % 2}'}, 1).appended.seq}"
    except (CrashworthyError, InternalError) as error:
        return type(error).__name__


def _event_id(key: int) -> bytes:
    return (1000 + key).to_bytes(16, "big")


def name_of(event: events.Event) -> str:
    """What the model knows of an event."""
    match event:
        case events.Noted():
            return event.text
        case events.DriverStarted():
            return event.identity.nonce
        case events.InputAdmitted():
            return event.request_id
        case _:
            raise AssertionError(f"nobody appended {event}")


@pytest.mark.parametrize("seed", SEEDS)
def test_rule_I5_any_history_of_two_handles_is_what_the_model_says(store: Store, seed: int) -> None:
    draw = random.Random(seed)
    begin(store)
    handles = [store.open_writing(RandomIds()) for _ in range(2)]
    handles[0].open_stream(OTHER, opened("other"), "fork")
    reader = store.open_reading()
    model = {STREAM: Modelled(), OTHER: Modelled()}
    for number in range(ACTS):
        who = draw.randrange(2)
        act = draw_act(draw, number, model[draw.choice((STREAM, OTHER))].floor)
        assert perform(handles[who], act) == expect(model, act), f"act {number} of seed {seed}: {act}"
        assert reader.floor(act.stream) == model[act.stream].floor
        if draw.random() < 0.1:
            handles[who].close()
            handles[who] = store.open_writing(RandomIds())
    for stream, modelled in model.items():
        stored = read(reader, stream)
        assert [(one.epoch, name_of(one.event)) for one in stored[1:]] == modelled.accepted
        check_chain(reader.log_id, stream, stored)
