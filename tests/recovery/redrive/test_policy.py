"""When the next driver starts, judged from made-up facts alone."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.process_identity import ProcessIdentity
from recovery.redrive.policy import (
    Ended,
    Finish,
    LeaveAlone,
    Limits,
    Park,
    Seen,
    Silence,
    Start,
    StayParked,
    choose_delay,
    choose_next,
    count_since_progress,
)
from recovery.redrive.progress import Progress
from recovery.redrive.record import Attempt, Parked, RedriveRecord
from tests.recovery.histories import History

WHO = ProcessIdentity(7, 1, "boot", 1)
LIMITS = Limits(attempts=3, backoff_secs=2.0, most_secs=10.0)
OPEN = Seen(9, 4, is_finished=False, is_paused=False, driven_seq=9)
DONE = Seen(9, 9, is_finished=True, is_paused=False, driven_seq=9)
CRASH = Ended("killed", 9)


def record_of(*progress: int, parked: Parked | None = None, retried: bool = False) -> RedriveRecord:
    attempts = [Attempt(number, number, 0, "", 0, seq, WHO) for number, seq in enumerate(progress, 1)]
    return RedriveRecord(epoch=len(attempts), attempts=attempts, parked=parked, is_retried=retried)


@pytest.mark.parametrize("ended", [None, CRASH, Ended("exited", 0), Ended("exited", 78, "no"), Ended("stalled", 120), Ended("unknown")])
@pytest.mark.parametrize("living", [None, WHO])
def test_a_finished_session_is_never_begun_again_whatever_is_told_of_it(ended: Ended | None, living: ProcessIdentity | None) -> None:
    parked = Parked(0, "poison", "x", 1)
    for record in (record_of(), record_of(4, 4, 4, 4), record_of(4, parked=parked)):
        assert choose_next(record, DONE, ended, living, LIMITS, 0.5) == Finish()


def test_a_driver_that_lives_is_left_alone_before_anything_else_is_judged() -> None:
    for record in (record_of(), record_of(4, 4, 4), record_of(4, parked=Parked(0, "person", "x", 9))):
        assert choose_next(record, OPEN, Ended("exited", 75), WHO, LIMITS, 0.5) == LeaveAlone(WHO)


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (None, Start(0.0, "first start")),
        (CRASH, Start(0.0, "killed by signal 9")),
        (Ended("exited", 75), Start(0.0, "exit 75")),
        (Ended("exited", 78, "a call waits"), Park("person", "a call waits")),
        (Ended("exited", 78), Park("person", "the driver needs a person")),
    ],
)
def test_each_end_leads_where_the_contract_says(ended: Ended | None, expected: object) -> None:
    assert choose_next(record_of(), OPEN, ended, None, LIMITS, 0.5) == expected


def test_a_session_is_parked_when_its_starts_without_progress_are_used_up() -> None:
    assert isinstance(choose_next(record_of(4, 4), OPEN, CRASH, None, LIMITS, 0.5), Start)
    found = choose_next(record_of(4, 4, 4), OPEN, Ended("killed", 9, "last words"), None, LIMITS, 0.5)
    assert found == Park("poison", "3 drivers were started and none committed progress; the last: killed by signal 9: last words")


def test_only_committed_progress_resets_the_count() -> None:
    """However many starts, and however long each ran, what counts is where the log's progress stood when it was begun."""
    assert count_since_progress(record_of(1, 1, 4, 4).attempts, OPEN) == 2
    assert count_since_progress(record_of(4, 4, 4).attempts, OPEN) == 3
    assert count_since_progress(record_of(1, 1, 1).attempts, OPEN) == 0
    forgiven = [msgspec.structs.replace(one, is_forgiven=True) for one in record_of(4, 4).attempts]
    assert count_since_progress(forgiven, OPEN) == 0


@pytest.mark.parametrize(
    ("kind", "later", "is_lifted"),
    [
        ("person", OPEN, False),
        ("person", Seen(10, 4, False, False, 9), True),
        ("poison", Seen(10, 4, False, False, 9), False),
        ("poison", Seen(11, 11, False, False, 9), True),
        ("paused", Seen(9, 4, False, True, 9), False),
        ("paused", Seen(10, 4, False, False, 9), True),
    ],
)
def test_what_is_parked_stays_so_until_what_parked_it_is_over(kind: str, later: Seen, is_lifted: bool) -> None:
    parked = Parked(0, kind, "why", 9)  # type: ignore[arg-type]
    found = choose_next(record_of(4, parked=parked), later, None, None, LIMITS, 0.5)
    assert isinstance(found, Start) if is_lifted else found == StayParked(parked)


def test_a_paused_session_is_not_resumed_by_itself() -> None:
    paused = Seen(9, 9, False, is_paused=True, driven_seq=9)
    assert choose_next(record_of(4), paused, Ended("exited", 78, "paused"), None, LIMITS, 0.5) == Park("paused", "the session is paused")
    assert isinstance(choose_next(record_of(4, retried=True), paused, None, None, LIMITS, 0.5), Start)


@given(counted=st.integers(0, 2000), jitter=st.floats(0, 1), base=st.floats(0.001, 1e4), most=st.floats(0.001, 1e5))
def test_a_delay_is_never_negative_nor_above_the_cap_and_grows(counted: int, jitter: float, base: float, most: float) -> None:
    limits = Limits(backoff_secs=base, most_secs=most)
    delay = choose_delay(counted, limits, jitter)
    assert 0 <= delay <= most
    assert choose_delay(counted + 1, limits, jitter) >= delay
    assert (delay == 0) == (counted == 0)


def test_delays_double_up_to_the_cap_with_their_spread() -> None:
    assert [choose_delay(counted, LIMITS, 1.0) for counted in range(5)] == [0, 2, 4, 8, 10]
    assert [choose_delay(counted, LIMITS, 0.0) for counted in range(5)] == [0, 1, 2, 4, 5]


def progress_of(history: History) -> list[int]:
    """The events that are progress, by seq."""
    progress = Progress()
    return [stored.seq for stored in history.stored if progress.take(stored.event)]


def test_progress_is_a_call_that_finished_further_in_the_script_than_any_before() -> None:
    """One that a lost checkpoint took back and that runs again is none; one that a person took back is again."""
    history = History(calls=3)
    history.attempt(script_index=0)
    history.settle()
    first = len(history.stored)
    history.driver()
    history.attempt(script_index=0)
    history.settle()
    history.attempt(script_index=1)
    history.restore("restore_and_interrupt")
    history.settle("interrupted")
    history.attempt(script_index=1)
    history.settle()
    second = len(history.stored)
    wished = history.decide("restore_by_person", obligation=True, call=None)
    history.finish_restore()
    history.attempt(script_index=0)
    history.settle()
    assert progress_of(history) == [first, second, wished, len(history.stored)]


def test_of_calls_that_no_script_orders_each_that_finished_is_progress() -> None:
    history = History()
    for _ in range(2):
        history.attempt(script_index=None)
        history.settle()
    assert len(progress_of(history)) == 2


def silent_for(silence: Silence, seconds: int, grown: bool | None = False, begin: int = 0) -> int:
    for second in range(begin + 1, begin + seconds + 1):
        silence.listen(float(second), grown)
    return begin + seconds


def test_silence_is_a_stall_after_its_time_and_before_the_first_word_after_the_grace() -> None:
    limits = Limits(stall_secs=120, grace_secs=600)
    silence = Silence(0.0)
    now = silent_for(silence, 599)
    assert not silence.is_stall(limits)
    silent_for(silence, 1, begin=now)
    assert silence.is_stall(limits)
    spoken = Silence(0.0)
    now = silent_for(spoken, 1, grown=True)
    now = silent_for(spoken, 119, begin=now)
    assert not spoken.is_stall(limits)
    silent_for(spoken, 1, begin=now)
    assert spoken.is_stall(limits) and not spoken.is_stall(Limits(stall_secs=0))


def test_a_driver_that_cannot_be_looked_at_is_not_silent() -> None:
    """An unreachable host is not a stall."""
    silence = Silence(0.0, has_spoken=True)
    silent_for(silence, 100_000, grown=None)
    assert silence.secs == 0 and not silence.is_stall(Limits(stall_secs=120))


def test_a_redriver_that_did_not_run_itself_has_not_heard_a_silence() -> None:
    """A machine that slept, a redriver that was stopped: an hour passed, and neither could have spoken or listened."""
    silence = Silence(0.0, has_spoken=True)
    silence.listen(3600.0, False)
    assert silence.secs == 5 and not silence.is_stall(Limits(stall_secs=120))
    silence.listen(3599.0, False)
    assert silence.secs == 5, "time that runs backwards is no time"
