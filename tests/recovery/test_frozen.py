"""The list of calls and the folded state: values that are never changed, whoever makes others from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.call_list import CallList
from recovery.state import fold_event, fold_stream
from tests.recovery.histories import History


@given(st.lists(st.tuples(st.sampled_from(["append", "newest", "fork"]), st.integers(0, 99)), max_size=40))
def test_a_list_of_calls_is_a_value_whatever_is_made_from_it(acts: list[tuple[str, int]]) -> None:
    """Each kept one stays equal to the tuple that it was, also where two go on from the same one."""
    kept: list[tuple[CallList[int], tuple[int, ...]]] = [(CallList(), ())]
    for act, number in acts:
        calls, plain = kept[-1 if act != "fork" else number % len(kept)]
        if act == "newest" and plain:
            kept.append((calls.with_newest(number), (*plain[:-1], number)))
        else:
            kept.append((calls.append(number), (*plain, number)))
    for calls, plain in kept:
        assert calls == plain and tuple(calls) == plain and len(calls) == len(plain) and CallList(plain) == calls
        assert calls.newest == (plain[-1] if plain else None) and calls[1:3] == plain[1:3]
        assert [calls[place] for place in range(-len(plain), len(plain))] == [plain[place] for place in range(-len(plain), len(plain))]
        for wrong in (len(plain), -len(plain) - 1):
            with pytest.raises(IndexError):
                calls[wrong]


def test_the_newest_of_no_calls_cannot_be_changed() -> None:
    with pytest.raises(IndexError):
        CallList[int]().with_newest(1)
    assert repr(CallList([1, 2])) == "CallList([1, 2])" and CallList([1]) != [2] and CallList([1]) != 1


def test_a_state_that_stands_is_never_changed_by_what_is_folded_onto_it() -> None:
    """A whole stream is folded in place, a published state is not: event by event and at once come to the same, and each stays."""
    history = History(calls=3)
    for index in range(3):
        history.attempt(script_index=index)
        history.settle()
    history.restore("restore_by_person", call=None)
    history.undo(3)
    states = [fold_stream(history.stored[:2], "log")]
    for stored in history.stored[2:]:
        states.append(fold_event(states[-1], stored, "log"))
    for length, state in enumerate(states, 2):
        assert state == fold_stream(history.stored[:length], "log") and type(state) is type(states[0])
