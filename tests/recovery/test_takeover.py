"""Rule T2: which attempts a takeover claims, which it condemns. Pure; the kills are tested in tests/recovery/space."""

import msgspec
import pytest

from recovery.space.listing import AttemptWord, word_of
from recovery.space.records import Condemn, ProvedDead, Record
from recovery.takeover import choose_fates, claimed_keys, find_lost
from tests.helpers import kill_process, wait_until
from tests.recovery.histories import History
from tests.recovery.sessions import Sandbox, bash
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


def test_rule_T2_what_an_exited_attempt_left_alive_is_condemned_and_its_exit_stays_clean() -> None:
    """Kept by policy, of a settled call or of one whose outcome is not in the log yet: never claimed, and no second exit is waited for."""
    kept = (prepare(KEY), start(KEY), msgspec.structs.replace(leave(KEY), left=1))
    assert fates(running(), *kept) == {KEY: "condemned"}
    state = ledger(*kept, advance(2, **{KEY: "condemned"}))
    assert not state.attempts[KEY].cut and not state.attempts[KEY].is_resolved
    assert fates(running(), *kept, advance(2, **{KEY: "condemned"}), ProvedDead(2, [KEY], [])) == {}


def test_what_a_takeover_finds_lost_is_what_started_and_has_no_living_shim() -> None:
    """Told apart then, because afterwards the takeover itself has killed the others (I8)."""
    other = "log/n/2/1/1"
    state = ledger(prepare(KEY), start(KEY), prepare(other, call=2), start(other), prepare("waiting"))
    assert find_lost(state, {other}) == [KEY]
    assert find_lost(state, {KEY, other}) == []
    ended = ledger(prepare(KEY), start(KEY), leave(KEY))
    condemned = ledger(prepare(KEY), start(KEY), advance(2, **{KEY: "condemned"}))
    assert find_lost(ended, set()) == find_lost(condemned, set()) == []


def test_a_takeover_records_what_it_found_lost(sandbox: Sandbox) -> None:
    """A shim that died before its driver: the next driver finds it dead, and its ledger says so from then on."""
    driver = sandbox.start("run", sandbox.session(bash('echo $$ > "$WITNESS"; sleep 300')), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    shim = next(one.start.identity.pid for one in sandbox.ledger().attempts.values() if one.prepared.call and one.start)
    kill_process(shim)
    assert driver.end() == 1
    step = "driver@2:kill.before:1"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.wait(step, second)
    (found,) = [one for one in sandbox.ledger().attempts.values() if one.prepared.call]
    assert (found.is_lost, found.fate, found.condemned_by) == (True, "condemned", 2)
    assert word_of(found, False) is AttemptWord.LOST
    sandbox.steps.kill(step, second)


def test_claimed_keys_are_those_without_an_exit() -> None:
    claimed = (prepare(KEY), start(KEY), advance(2, **{KEY: "claimed"}))
    assert claimed_keys(ledger(*claimed)) == [KEY]
    assert claimed_keys(ledger(*claimed, leave(KEY))) == []
    assert claimed_keys(ledger(*claimed, Condemn(2, [KEY]))) == []
