"""The scripted agent: which call comes next, from the folded state alone."""

import pytest

from eventlog.errors import CorruptError
from recovery.agent import AskPerson, Next, RunNext, ScriptDone, choose_next
from recovery.script import OnInterrupted
from tests.recovery.histories import History


def at(*ends: str) -> History:
    """A history of three scripted calls, of which some have ended."""
    history = History(calls=3)
    for index, end in enumerate(ends):
        history.attempt(script_index=index)
        if end == "finished":
            history.settle()
        else:
            history.restore("restore_and_interrupt")
            history.settle("interrupted")
    return history


@pytest.mark.parametrize(
    ("ends", "choice", "expected"),
    [
        ((), "stop", RunNext(0)),
        (("finished",), "stop", RunNext(1)),
        (("finished", "finished", "finished"), "stop", ScriptDone()),
        (("finished", "interrupted"), "stop", AskPerson(2, 1)),
        (("finished", "interrupted"), "reissue", RunNext(1)),
        (("finished", "interrupted"), "continue", RunNext(2)),
        (("finished", "finished", "interrupted"), "reissue", RunNext(2)),
        (("finished", "finished", "interrupted"), "continue", ScriptDone()),
    ],
)
def test_the_next_call(ends: tuple[str, ...], choice: OnInterrupted, expected: Next) -> None:
    assert choose_next(at(*ends).state(), choice) == expected


def test_a_reissued_call_that_finished_is_behind() -> None:
    """The new call carries the index of the one it repeats."""
    history = at("interrupted")
    history.attempt(script_index=0)
    history.settle()
    assert choose_next(history.state(), "reissue") == RunNext(1)


def test_calls_outside_the_script_do_not_count() -> None:
    history = at("finished")
    history.attempt(script_index=None)
    history.settle()
    assert choose_next(history.state(), "stop") == RunNext(1)


@pytest.mark.parametrize(
    ("choice", "expected"), [("stop", AskPerson(3, 2, 9, 1, (2, 3))), ("reissue", RunNext(1)), ("continue", ScriptDone())]
)
def test_calls_that_a_person_took_back_are_asked_about_from_the_first_of_them(choice: OnInterrupted, expected: Next) -> None:
    history = at("finished", "finished", "finished")
    history.restore("restore_by_person", call=None)
    history.undo(2)
    history.undo(3)
    assert choose_next(history.state(), choice) == expected


@pytest.mark.parametrize(
    ("choice", "expected"), [("stop", AskPerson(3, 2, 8, 1, (2,))), ("reissue", RunNext(1)), ("continue", ScriptDone())]
)
@pytest.mark.parametrize("end", ["interrupted", "finished"])
def test_calls_undone_while_the_last_one_was_open_are_run_again_with_it(choice: OnInterrupted, expected: Next, end: str) -> None:
    """An older checkpoint stood in while call 3 was open: whatever became of that, call 2 is not passed over."""
    history = at("finished", "finished")
    history.attempt(script_index=2)
    history.restore("root_lost")
    history.undo(2)
    history.settle(end)
    assert choose_next(history.state(), choice) == expected


def test_calls_taken_back_by_two_restores_are_run_again_from_the_first_of_all() -> None:
    history = at("finished", "finished", "finished")
    for call in (3, 2):
        history.restore("restore_by_person", call=None)
        history.undo(call)
    assert choose_next(history.state(), "reissue") == RunNext(1)


@pytest.mark.parametrize("calls", [(2, 2), (9,)])
def test_rule_C3_a_finished_call_is_undone_once_and_no_other_is(calls: tuple[int, ...]) -> None:
    history = at("finished", "finished")
    history.restore("restore_by_person", call=None)
    for call in calls:
        history.undo(call)
    with pytest.raises(CorruptError, match="is not a finished call that still stands"):
        history.state()
