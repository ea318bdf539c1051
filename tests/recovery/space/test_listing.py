"""The rows of a ledger for people: one word for every combination that can be, and every word has one."""

from collections import Counter
from itertools import product

import pytest

from eventlog.errors import InternalError
from eventlog.events import Exit
from recovery.space.listing import AttemptWord, find_contradiction, list_attempts, word_of
from recovery.space.records import Advance, Attempt, Collect, Condemn, Exited, ProvedDead, Record, Sealed, Void
from tests.recovery.space.ledgers import EXITED, ME, end_key, prepare_key, start_key
from tests.recovery.test_facts import ledger

STARTED = start_key("k")
LEFT = Exited("k", Exit("exited", code=0), "boot", left=2)


def combinations() -> list[tuple[Attempt, bool]]:
    """The whole product of what an attempt can hold, with and without a living shim."""
    return [
        (Attempt(prepare_key("k"), 1, start, exit_, fate, cut, void, torn, proved, condemned_by, lost), alive)  # type: ignore[arg-type]
        for start, exit_, fate, cut, void, torn, proved, condemned_by, lost, alive in product(
            (None, STARTED), (None, EXITED, LEFT), (None, "claimed", "condemned"), (False, True), (False, True), (False, True),
            (False, True), (0, 2), (False, True), (False, True),
        )
    ]  # fmt: skip


def test_every_combination_has_one_word_or_a_reason_why_it_cannot_be() -> None:
    words: Counter[AttemptWord] = Counter()
    for attempt, alive in combinations():
        if find_contradiction(attempt):
            with pytest.raises(InternalError):
                word_of(attempt, alive)
            continue
        words[word_of(attempt, alive)] += 1
    assert set(words) == set(AttemptWord)


def test_no_word_says_more_than_is_known() -> None:
    """I8, over all combinations: never an exit that does not stand, never "did not run" of what may have run."""
    for attempt, alive in combinations():
        if find_contradiction(attempt):
            continue
        word = word_of(attempt, alive)
        if word in (AttemptWord.EXITED, AttemptWord.KEPT):
            assert attempt.exit is not None and not attempt.cut
            assert (attempt.exit.left > 0 and not attempt.is_proved_dead) == (word is AttemptWord.KEPT)
        if word in (AttemptWord.VOID, AttemptWord.PREPARED):
            assert attempt.start is None and (attempt.void or not attempt.torn)
        if word is AttemptWord.RUNNING:
            assert alive and attempt.start is not None and attempt.exit is None and attempt.fate != "condemned"
        if word is AttemptWord.CUT:
            assert attempt.fate == "condemned" and attempt.start is not None
        if word in (AttemptWord.LOST, AttemptWord.TORN):
            assert attempt.exit is None


@pytest.mark.parametrize(
    ("records", "alive", "word", "cut_by"),
    [
        ([], False, AttemptWord.PREPARED, 0),
        ([STARTED], True, AttemptWord.RUNNING, 0),
        ([STARTED], False, AttemptWord.LOST, 0),
        ([STARTED, EXITED], False, AttemptWord.EXITED, 0),
        ([STARTED, LEFT], False, AttemptWord.KEPT, 0),
        ([STARTED, LEFT, Condemn(2, ["k"])], False, AttemptWord.KEPT, 0),
        ([STARTED, LEFT, Condemn(2, ["k"]), ProvedDead(2, ["k"], [])], False, AttemptWord.EXITED, 0),
        ([STARTED, Condemn(2, ["k"]), EXITED], False, AttemptWord.CUT, 2),
        ([STARTED, Condemn(2, ["k"])], False, AttemptWord.CUT, 2),
        ([STARTED, Condemn(2, ["k"]), Condemn(3, ["k"])], False, AttemptWord.CUT, 2),
        ([STARTED, EXITED, Condemn(2, ["k"])], False, AttemptWord.EXITED, 0),
        ([STARTED, Advance(2, "log", 2, "h", {"k": "condemned"}, [], ["k"])], False, AttemptWord.LOST, 2),
        ([STARTED, Advance(2, "log", 2, "h", {"k": "claimed"}, [])], True, AttemptWord.RUNNING, 0),
        ([Void("k", 1)], False, AttemptWord.VOID, 0),
        ([Condemn(2, ["k"])], False, AttemptWord.VOID, 2),
        ([Sealed(3, "ab")], False, AttemptWord.TORN, 0),
        ([Sealed(3, "ab"), Condemn(2, ["k"])], False, AttemptWord.TORN, 2),
        ([Sealed(3, "ab"), STARTED], True, AttemptWord.RUNNING, 0),
        ([Sealed(3, "ab"), Void("k", 1)], False, AttemptWord.VOID, 0),
    ],
)
def test_cut_lost_and_never_started_are_told_apart(records: list[Record], alive: bool, word: AttemptWord, cut_by: int) -> None:
    state = ledger(prepare_key("k"), *records)
    row = list_attempts(state, {"k"} if alive else set())[0]
    assert (row.word, row.cut_by) == (word, cut_by)


def test_a_row_has_what_stands_in_the_records() -> None:
    end = Exited("k", Exit("signaled", signal=9), "boot", 11, 7, 2, "", None, "d", 5, 3, "e", 1, True, 2_000)
    state = ledger(prepare_key("k", 4), start_at(1_000), end, prepare_key("next", 5))
    row, following = list_attempts(state, set())
    assert (row.key, row.kind, row.call, row.attempt, row.digest, row.epoch, row.mark) == (
        "k", "command", 4, 1, "digest", 1, "environment:id/k",
    )  # fmt: skip
    assert (row.started_ms, row.ended_ms, row.exit, row.shim) == (1_000, 2_000, Exit("signaled", signal=9), ME)
    assert (row.output_total, row.output_kept, row.stderr_total, row.stderr_kept) == (11, 7, 5, 3)
    assert (row.survivors, row.left, row.held_output) == (2, 1, True)
    assert (following.key, following.exit, following.shim, following.started_ms) == ("next", None, None, 0)


def start_at(at_ms: int) -> Record:
    return type(STARTED)("k", ME, "", at_ms)


def test_what_was_collected_is_listed_no_more() -> None:
    state = ledger(prepare_key("k", 1), STARTED, end_key("k"), Collect(1, 1, 5, "h"))
    assert list_attempts(state, set()) == []
