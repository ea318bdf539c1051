"""The fold of the ledger: what stands once stays, and what no sound ledger holds is damage."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.errors import CorruptError
from eventlog.process_identity import ProcessIdentity
from recovery.space.records import Collect, Condemn, Header, LedgerState, ProvedDead, Record, Register, ScanFailed, Void, fold_record
from tests.recovery.test_facts import KEY, advance, leave, ledger, prepare, start

OTHER = "log/n/2/1/1"


def test_rule_T2_an_exit_after_a_condemnation_is_cut_for_ever() -> None:
    """No later claim, exit or epoch makes it clean again."""
    state = ledger(prepare(KEY), start(KEY), advance(2, **{KEY: "condemned"}), leave(KEY), advance(3))
    assert state.attempts[KEY].cut
    state = ledger(prepare(KEY), start(KEY), advance(2, **{KEY: "claimed"}), Condemn(2, [KEY]), leave(KEY))
    assert state.attempts[KEY].cut


def test_rule_T2_an_exit_before_a_condemnation_stays_clean() -> None:
    state = ledger(prepare(KEY), start(KEY), leave(KEY), Condemn(1, [KEY]))
    assert not state.attempts[KEY].cut


def test_rule_T2_a_claim_may_become_a_condemnation_never_the_reverse() -> None:
    claimed = advance(2, **{KEY: "claimed"})
    assert ledger(prepare(KEY), start(KEY), claimed).attempts[KEY].fate == "claimed"
    assert ledger(prepare(KEY), start(KEY), claimed, advance(3, **{KEY: "condemned"})).attempts[KEY].fate == "condemned"
    state = ledger(prepare(KEY), start(KEY), advance(2, **{KEY: "condemned"}), advance(3, **{KEY: "claimed"}))
    assert (state.attempts[KEY].fate, state.attempts[KEY].epoch) == ("condemned", 1)


def test_a_claim_makes_the_attempt_the_new_epochs() -> None:
    assert ledger(prepare(KEY), start(KEY), advance(7, **{KEY: "claimed"})).attempts[KEY].epoch == 7


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ((prepare(KEY), prepare(KEY)), "is prepared twice"),
        ((prepare(KEY), start(KEY), start(KEY)), "starts after it was started"),
        ((prepare(KEY), start(KEY), leave(KEY), leave(KEY)), "exits twice"),
        ((prepare(KEY), leave(KEY)), "exits without a start"),
        ((prepare(KEY), Void(KEY, 1), start(KEY)), "starts after it was voided"),
        ((prepare(KEY), start(KEY), Void(KEY, 1)), "is voided after it started"),
        ((start(KEY),), "was never prepared"),
        ((leave(KEY),), "was never prepared"),
        ((Void(KEY, 1),), "was never prepared"),
        ((Condemn(1, [KEY]),), "was never prepared"),
        ((advance(2, **{KEY: "condemned"}),), "was never prepared"),
        ((ProvedDead(1, [KEY], []),), "was never prepared"),
        ((advance(1),), "floor 1 would fall or stay at 1"),
        ((advance(3), advance(2)), "floor 3 would fall or stay at 2"),
        ((Header(1, "ledger", 1),), "begins with its header and has one only"),
    ],
)
def test_what_no_sound_ledger_holds_is_damage(records: tuple[Record, ...], says: str) -> None:
    """Invariant I4 and I5 in the ledger: a key is prepared, started, ended once; the floor never falls."""
    ledger(*records[:-1])
    with pytest.raises(CorruptError, match=says):
        ledger(*records)


def test_a_ledger_without_a_header_is_damage() -> None:
    with pytest.raises(CorruptError, match="begins with its header"):
        fold_record(LedgerState(), advance(1), "ledger")


def test_rule_S3_collecting_drops_what_is_resolved_and_keeps_what_is_not() -> None:
    """Unresolved keys are never evicted: a running attempt of a settled call is still to be killed."""
    state = ledger(prepare(KEY), start(KEY), prepare(OTHER, call=2), Collect(1, 1, 9, "hash"))
    assert set(state.attempts) == {KEY, OTHER}
    state = ledger(prepare(KEY), start(KEY), leave(KEY), prepare(OTHER, call=2), Collect(1, 1, 9, "hash"))
    assert set(state.attempts) == {OTHER}
    assert (state.collected, state.highest_call, state.log_seq, state.log_hash) == (1, 2, 9, "hash")


def test_a_condemned_attempt_is_collected_once_it_is_proved_dead() -> None:
    condemned = (prepare(KEY), start(KEY), advance(2, **{KEY: "condemned"}))
    assert set(ledger(*condemned, Collect(2, 1, 9, "h")).attempts) == {KEY}
    assert not ledger(*condemned, ProvedDead(2, [KEY], []), Collect(2, 1, 9, "h")).attempts


def test_rule_S3_an_attempt_whose_processes_were_kept_alive_is_not_dropped_before_they_are_proved_dead() -> None:
    """A takeover has to find their mark; collected with its call, they would live on under nobody's eyes."""
    kept = (prepare(KEY), start(KEY), msgspec.structs.replace(leave(KEY), left=2), Collect(1, 1, 9, "h"))
    assert set(ledger(*kept).attempts) == {KEY}
    state = ledger(*kept, Condemn(1, [KEY]), ProvedDead(1, [KEY], []), Collect(1, 1, 9, "h"))
    assert not state.attempts and not state.keys_by_call


def test_rule_S3_a_command_by_hand_is_kept_as_its_bytes_once_it_is_resolved_and_found_again() -> None:
    by_hand = prepare(KEY, call=None)
    state = ledger(by_hand, start(KEY), leave(KEY), Collect(1, 1, 9, "h"))
    assert not state.attempts and set(state.ended) == {KEY}
    found = state.find(KEY)
    assert found is not None and (found.prepared, found.start, found.exit) == (by_hand, start(KEY), leave(KEY))
    assert list(state.every()) == [found]
    for late in (prepare(KEY, call=None), start(KEY), leave(KEY), Void(KEY, 1)):
        with pytest.raises(CorruptError, match="twice|after it"):
            ledger(by_hand, start(KEY), leave(KEY), late)


@pytest.mark.parametrize("late", [(), (leave(KEY),)], ids=["no exit", "a late exit"])
def test_a_cut_command_by_hand_stays_in_sight_until_it_is_proved_dead(late: tuple[Record, ...]) -> None:
    cut = (prepare(KEY, call=None), start(KEY), advance(2, **{KEY: "condemned"}), *late)
    assert set(ledger(*cut).attempts) == {KEY}
    state = ledger(*cut, ProvedDead(2, [KEY], []))
    found = state.find(KEY)
    assert not state.attempts and found is not None and found.is_proved_dead and found.cut == bool(late)


def test_a_collected_key_may_not_be_used_again_by_the_engine() -> None:
    """The high-water mark and the highest call number stay, whatever is dropped."""
    state = ledger(prepare(KEY), start(KEY), leave(KEY), Collect(1, 1, 9, "h"), Collect(1, 0, 3, "older"))
    assert (state.collected, state.highest_call, state.log_seq) == (1, 1, 9)


def test_helpers_are_condemned_by_the_next_takeover_and_forgotten_when_dead() -> None:
    worker = Register("worker", 1, "mark", ProcessIdentity(1, 1, "b", 1))
    state = ledger(worker)
    fold_record(state, advance(2).__class__(2, "log", 2, "h", {}, ["mark"]), "ledger")
    assert state.helpers["mark"].condemned
    fold_record(state, ProvedDead(2, [], ["mark"]), "ledger")
    assert not state.helpers


def test_rule_C5_failed_scans_are_counted_per_call() -> None:
    assert ledger(ScanFailed(1, 1, "x"), ScanFailed(2, 1, "x"), ScanFailed(1, 2, "y")).scan_failures == {1: 2, 2: 1}


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                prepare(KEY),
                start(KEY),
                leave(KEY),
                Void(KEY, 1),
                Condemn(1, [KEY]),
                advance(2, **{KEY: "claimed"}),
                advance(3, **{KEY: "condemned"}),
                advance(4),
            ]
        ),
        max_size=8,
    )
)
def test_whatever_the_order_the_floor_never_falls_and_condemned_stays(records: list[Record]) -> None:
    state, floor, condemned = ledger(), 1, False
    for record in records:
        try:
            fold_record(state, record, "ledger")
        except CorruptError:
            continue
        assert state.floor >= floor
        floor = state.floor
        attempt = state.attempts.get(KEY)
        assert not condemned or (attempt is not None and attempt.fate == "condemned")
        condemned = attempt is not None and attempt.fate == "condemned"
        assert attempt is None or not (attempt.void and attempt.start)
