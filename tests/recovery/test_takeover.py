"""Rule T2: which attempts a takeover claims, which it condemns. Pure; the kills are tested in tests/recovery/space."""

import pytest

from recovery.space.advance import claimed_keys
from recovery.space.records import Condemn, Record
from recovery.takeover import choose_fates
from tests.recovery.histories import History
from tests.recovery.test_facts import KEY, advance, leave, ledger, prepare, start


def fates(history: History, *records: Record, alive: bool = True) -> dict[str, str]:
    state = ledger(*records)
    return dict(choose_fates(state, history.state(), set(state.attempts) if alive else set()))


def running() -> History:
    history = History()
    history.attempt()
    return history


def test_rule_T2_the_running_command_of_the_open_call_is_claimed() -> None:
    assert fates(running(), prepare(KEY), start(KEY)) == {KEY: "claimed"}


def test_rule_T2_a_claim_passes_to_the_next_epoch() -> None:
    assert fates(running(), prepare(KEY), start(KEY), advance(2, **{KEY: "claimed"})) == {KEY: "claimed"}


def test_rule_T2_condemned_attempt_is_never_claimed() -> None:
    """Condemned is final, by a takeover as well as after a failed handshake."""
    assert fates(running(), prepare(KEY), start(KEY), advance(2, **{KEY: "condemned"})) == {KEY: "condemned"}
    assert fates(running(), prepare(KEY), start(KEY), advance(2, **{KEY: "claimed"}), Condemn(2, [KEY])) == {KEY: "condemned"}


def test_rule_T2_a_shim_that_is_not_alive_is_condemned() -> None:
    assert fates(running(), prepare(KEY), start(KEY), alive=False) == {KEY: "condemned"}


def test_rule_T2_a_shim_not_yet_running_is_condemned() -> None:
    """Without a starting mark the floor keeps it from ever starting."""
    assert fates(running(), prepare(KEY)) == {KEY: "condemned"}


@pytest.mark.parametrize("kind", ["file", "work"])
def test_rule_T2_a_file_workers_attempt_is_never_claimed(kind: str) -> None:
    assert fates(running(), prepare(KEY, kind=kind), start(KEY)) == {KEY: "condemned"}


def test_rule_T2_an_attempt_under_a_restore_decision_is_never_claimed() -> None:
    history = running()
    history.decide("restore_and_interrupt", obligation=True)
    assert fates(history, prepare(KEY), start(KEY)) == {KEY: "condemned"}


def test_rule_T2_a_restored_attempt_is_never_claimed() -> None:
    history = running()
    history.restore("restore_and_rerun")
    assert fates(history, prepare(KEY), start(KEY)) == {KEY: "condemned"}


def test_rule_T2_a_voided_attempt_is_never_claimed() -> None:
    history = running()
    history.decide("void_and_run")
    assert fates(history, prepare(KEY), start(KEY)) == {KEY: "condemned"}


def test_rule_T2_only_the_newest_attempt_is_claimed() -> None:
    history = running()
    history.restore("restore_and_rerun")
    second = history.attempt(1, 2)
    assert fates(history, prepare(KEY), start(KEY), prepare(second), start(second)) == {KEY: "condemned", second: "claimed"}


def test_rule_T2_a_kept_process_of_a_settled_call_is_condemned() -> None:
    history = running()
    history.settle()
    assert fates(history, prepare(KEY), start(KEY)) == {KEY: "condemned"}


def test_rule_T2_an_attempt_the_log_does_not_know_is_condemned() -> None:
    assert fates(running(), prepare("log/n/2/1/1", call=2), start("log/n/2/1/1")) == {"log/n/2/1/1": "condemned"}


def test_an_attempt_with_an_exit_gets_no_fate() -> None:
    assert fates(running(), prepare(KEY), start(KEY), leave(KEY)) == {}


def test_claimed_keys_are_those_without_an_exit() -> None:
    claimed = (prepare(KEY), start(KEY), advance(2, **{KEY: "claimed"}))
    assert claimed_keys(ledger(*claimed)) == [KEY]
    assert claimed_keys(ledger(*claimed, leave(KEY))) == []
    assert claimed_keys(ledger(*claimed, Condemn(2, [KEY]))) == []
