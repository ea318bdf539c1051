"""The fold: every history a driver writes folds; every event that none writes there is damage by name."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog import events
from eventlog.errors import CorruptError
from eventlog.image import Entry, put_change
from recovery.labels import OBLIGATIONS, Label
from recovery.state import fold_stream
from tests.recovery.histories import History

FILE = put_change(b"a", Entry("f", 0o644, bytes(32), 0))


@st.composite
def legal_histories(draw: st.DrawFn) -> History:
    """Any order of what drivers do: new drivers anywhere, outside changes between calls, calls with every kind of end."""
    history = History(calls=9)
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            history.driver(draw(st.sampled_from(["boot-1", "boot-2"])))
        match draw(st.sampled_from(["observe", "note", "restore", "call"])):
            case "observe":
                history.observe()
            case "note":
                history.add(events.Noted(0, "a person's word"))
            case "restore":
                history.decide(Label.RESTORE_UNSYNCED_HEAD.value, obligation=True, call=None)
                if draw(st.booleans()):
                    history.driver()
                history.finish_restore()
            case _:
                draw_call(draw, history)
    if draw(st.booleans()):
        history.end()
    return history


def draw_call(draw: st.DrawFn, history: History) -> None:
    history.attempt(script_index=draw(st.none() | st.integers(0, 8)))
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            history.driver()
        match draw(st.sampled_from(["void", "rerun", "adopt"])):
            case "void":
                history.decide(Label.VOID_AND_RUN.value)
                history.attempt(history.call, history.attempt_number + 1)
            case "rerun":
                history.restore(Label.RESTORE_AND_RERUN.value)
                history.decide(Label.RERUN_RESTORED.value)
                if draw(st.booleans()):
                    history.observe()
                history.attempt(history.call, history.attempt_number + 1)
            case _:
                history.decide(Label.ADOPT_EXIT.value)
    if draw(st.booleans()):
        history.restore(Label.RESTORE_AND_INTERRUPT.value)
        history.settle("interrupted")
    else:
        history.settle("finished")


@settings(deadline=None)
@given(legal_histories())
def test_every_legal_history_folds(history: History) -> None:
    """Total, and every prefix too (a crash may fall between any two commits); at most one call and one obligation are open."""
    for length in range(1, len(history.stored) + 1):
        state = fold_stream(history.stored[:length], "log")
        assert state.head_seq == length
        assert all(call.ended for call in state.calls[:-1])
    final = history.state()
    assert final.open_call is None and final.obligation is None and final.floor == history.floor


def open_obligation() -> History:
    history = History()
    history.attempt()
    history.decide(Label.RESTORE_AND_RERUN.value, obligation=True)
    return history


def with_call() -> History:
    history = History()
    history.attempt()
    return history


def with_void() -> History:
    history = with_call()
    history.decide("void_and_run")
    return history


def settled() -> History:
    history = with_call()
    history.settle()
    return history


def settle_other(history: History) -> None:
    history.attempt_number = 2
    history.settle()


def finish_other(history: History) -> None:
    history.decision = 99
    history.finish_restore()


ILLEGAL: dict[str, tuple[Callable[[], History], Callable[[History], object], str]] = {
    "a second session_opened": (History, lambda history: history.add(history.stored[0].event), "a second session_opened"),
    "a call that is not the next": (History, lambda history: history.attempt(2), "begins where call 1 attempt 1 belongs"),
    "a first attempt that is not 1": (History, lambda history: history.attempt(1, 2), "begins where call 1 attempt 1 belongs"),
    "a call while another is open": (with_call, lambda history: history.attempt(2), "neither restored nor void"),
    "an outside change while a call is open": (with_call, History.observe, "neither restored nor void"),
    "attempt 2 of a cut attempt 1": (with_call, lambda history: history.attempt(1, 2), "neither restored nor void"),
    "attempt 3 after attempt 1": (with_void, lambda one: one.attempt(1, 3), "while call 1 attempt 1 is open"),
    "an end of no call": (History, History.settle, "is settled and is not open"),
    "a second end of a call": (settled, History.settle, "is settled and is not open"),
    "an end of another attempt": (with_call, settle_other, "call 1 attempt 2 is settled and is not open"),
    "an obligation beside another": (open_obligation, lambda history: history.decide("restore_and_rerun", True), "beside another"),
    "a restore_finished of nothing": (History, History.finish_restore, "restore_finished for decision 0, which is not open"),
    "a restore_finished of another decision": (open_obligation, finish_other, "restore_finished for decision 99, which is not open"),
    "an end under an obligation": (open_obligation, History.settle, "call_settled while the restore decided at seq 4 is open"),
    "an attempt under an obligation": (open_obligation, lambda one: one.attempt(1, 2), "while the restore decided at seq 4 is open"),
    "an outside change under an obligation": (open_obligation, History.observe, "while the restore decided at seq 4 is open"),
    "the session's end under an obligation": (open_obligation, History.end, "while the restore decided at seq 4 is open"),
    "the session's end while a call is open": (with_call, History.end, "session_finished while call 1 is open"),
    "a void of no call": (History, lambda one: one.decide("void_and_run", call=1), "decides on call 1 attempt 0, which is not open"),
    "changes that do not fit": (History, lambda history: history.observe((put_change(b"a/b", FILE.entry or Entry("d", 0)),)), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_event_is_damage(name: str) -> None:
    """Each names the log and the seq; the history before it folds."""
    make, act, says = ILLEGAL[name]
    history = make()
    history.state()
    before = len(history.stored)
    act(history)
    with pytest.raises(CorruptError) as caught:
        history.state()
    assert says in str(caught.value)
    if says:
        assert f"log seq {before + (2 if 'restore_finished' in says else 1)}" in str(caught.value)


def test_a_stream_that_does_not_begin_with_session_opened_is_damage() -> None:
    for stored in ([], History().stored[1:]):
        with pytest.raises(CorruptError, match="the session does not begin with session_opened"):
            fold_stream(stored, "log")


@pytest.mark.parametrize("label", sorted(OBLIGATIONS))
def test_rule_R1_a_restored_attempt_stays_restored(label: Label) -> None:
    """An attempt once decided restored is never adopted, whoever drives next."""
    history = with_call()
    history.restore(label.value)
    history.driver()
    call = history.state().open_call
    assert call is not None and call.last.is_restored and call.last.is_void == (label is Label.NOT_RUN_BY_PERSON)


def test_the_image_belongs_to_the_boot_that_wrote_it() -> None:
    history = with_call()
    history.settle(changes=(FILE,))
    history.driver("boot-2")
    state = history.state()
    assert (state.image_boot, state.boot_id, state.image_seq) == ("boot-1", "boot-2", 4)
    assert b"a" in state.image


def test_just_restored_is_of_this_epoch_only() -> None:
    history = with_call()
    history.restore("restore_and_rerun")
    assert history.state().is_restored_this_epoch
    history.driver()
    assert not history.state().is_restored_this_epoch
