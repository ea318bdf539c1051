"""The scripted agent: which call comes next, from the folded state alone."""

import pytest

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
