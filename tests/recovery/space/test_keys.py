"""Keys asked for again, and epochs (rules S3, S4): attach, replay, refuse; never run twice."""

import os
from pathlib import Path

import pytest

from eventlog.errors import (
    CrashworthyError,
    EpochTakenError,
    InternalError,
    KeySpentError,
    MisuseError,
    RequestMismatchError,
    StaleEpochError,
)
from eventlog.ports import SystemClock
from eventlog.values import HIGHEST_EPOCH, HIGHEST_GIVEN_EPOCH
from recovery.space.epochs import LARGEST_STEP, check_advance, check_at_floor
from recovery.space.keys import Attach, New, Replay, announce, prepare
from recovery.space.ledger import Ledger, append_fenced
from recovery.space.records import Advance, Collect, Condemn, Prepare, Sealed, Void
from tests.recovery.space.ledgers import end_key, fork, make_ledger, prepare_key, start_key, view

REQUEST = "aaaaaaaaaaaaaaaa"
OTHER = "bbbbbbbbbbbbbbbb"


def test_rule_S4_a_new_key_is_announced_once(tmp_path: Path) -> None:
    made = make_ledger(tmp_path)
    record = prepare_key("k", digest=REQUEST)
    assert prepare(made, record) == New()
    size = os.path.getsize(made.path)
    assert prepare(made, record) == Attach(made.state.attempts["k"])
    assert os.path.getsize(made.path) == size, "attaching writes nothing"


def test_rule_S4_the_same_key_and_request_is_attached_to_then_replayed_never_run_again(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, prepare_key("k", digest=REQUEST), start_key("k"))
    running = prepare(made, prepare_key("k", digest=REQUEST))
    assert isinstance(running, Attach) and running.attempt.start == start_key("k")
    append_fenced(made, 1, end_key("k"))
    ended = prepare(made, prepare_key("k", digest=REQUEST))
    assert isinstance(ended, Replay) and ended.attempt.exit == end_key("k")


@pytest.mark.parametrize(
    "records",
    [(), (start_key("k"),), (start_key("k"), end_key("k")), (Void("k", 1),)],
    ids=["prepared", "running", "ended", "void"],
)
def test_rule_S4_the_same_key_with_another_command_is_refused_by_both_digests(tmp_path: Path, records: tuple[object, ...]) -> None:
    """In whatever state it is: silently replaying another command's output is the failure."""
    made = make_ledger(tmp_path, prepare_key("k", digest=REQUEST), *records)  # type: ignore[arg-type]
    data = Path(made.path).read_bytes()
    says = "stands for the request aaaaaaaaaaaa, not for bbbbbbbbbbbb; nothing was started"
    with pytest.raises(RequestMismatchError, match=says) as caught:
        prepare(made, prepare_key("k", digest=OTHER))
    assert (caught.value.known, caught.value.given, caught.value.exit_code) == (REQUEST, OTHER, 78)
    assert Path(made.path).read_bytes() == data


def test_rule_S3_a_collected_key_is_told_from_one_that_never_started(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, prepare_key("k", 4), start_key("k"), end_key("k"), Collect(1, 4, 9, "h"))
    assert "k" not in made.state.attempts
    with pytest.raises(KeySpentError, match="key k is spent: its outcome is in the log, and the ledger collected everything up to call 4"):
        prepare(made, prepare_key("k", 4))
    with pytest.raises(KeySpentError, match="up to call 4"):
        prepare(made, prepare_key("never seen", 3))
    assert prepare(made, prepare_key("next", 5)) == New()


def test_rule_S3_work_for_a_collected_decision_is_spent(tmp_path: Path) -> None:
    def work(key: str) -> Prepare:
        return Prepare(key, "work", 1, None, 1, "root", "mark", None, 7, "h7")

    made = make_ledger(tmp_path, work("log/n/d7/1"), start_key("log/n/d7/1"), end_key("log/n/d7/1"), Collect(1, 0, 9, "h"))
    with pytest.raises(KeySpentError, match="collected all work for decisions up to seq 7"):
        prepare(made, work("log/n/d7/1"))
    assert prepare(made, work("log/n/d8/1")) == New()


def test_rule_S3_a_key_by_hand_is_never_dropped(tmp_path: Path) -> None:
    """It has no call that a log could settle: run again after a few thousand newer ones, it would run twice."""
    made = make_ledger(tmp_path, prepare_key("k"), start_key("k"), end_key("k"))
    for call in range(1, 4):
        key = f"c{call}"
        for record in (prepare_key(key, call), start_key(key), end_key(key), Collect(1, call, call, "h")):
            append_fenced(made, 1, record)
    assert isinstance(prepare(made, prepare_key("k")), Replay) and not made.state.attempts


def test_rule_T2_a_condemned_key_is_spent_whatever_is_asked(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, prepare_key("never"), prepare_key("ran"), start_key("ran"), Condemn(1, ["never", "ran"]))
    with pytest.raises(KeySpentError, match="epoch 1 condemned it, and it had not started"):
        prepare(made, prepare_key("never"))
    with pytest.raises(KeySpentError, match="epoch 1 condemned it, and it has no exit on record"):
        prepare(made, prepare_key("ran"))


def test_case_22_a_torn_key_is_not_said_to_have_not_started(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, prepare_key("k"), Sealed(3, "ab"), Condemn(1, ["k"]))
    with pytest.raises(KeySpentError, match="it has no exit on record"):
        prepare(made, prepare_key("k"))


def test_a_void_key_is_spent(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, prepare_key("k"), Void("k", 1))
    with pytest.raises(KeySpentError, match="declared void: it never started and never will"):
        prepare(made, prepare_key("k"))


def test_a_driver_that_announces_a_known_key_is_a_bug(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, prepare_key("k"))
    with pytest.raises(InternalError, match="key k was announced before"):
        announce(made, prepare_key("k"))


def test_rule_S4_of_many_that_announce_one_key_at_once_one_is_new(tmp_path: Path) -> None:
    made = make_ledger(tmp_path)
    told, tell = os.pipe()

    def work() -> None:
        answer = prepare(Ledger(made.path, SystemClock()), prepare_key("k"))
        os.write(tell, type(answer).__name__[:1].encode())

    children = [fork(work) for _ in range(8)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 8
    assert sorted(os.read(told, 100).decode()) == ["A"] * 7 + ["N"]
    os.close(told)
    os.close(tell)


NO_EPOCHS = [None, 0, -1, True, 1.0, "1", HIGHEST_EPOCH + 1]


@pytest.mark.parametrize("epoch", NO_EPOCHS, ids=repr)
def test_a_request_without_an_epoch_starts_nothing(tmp_path: Path, epoch: int) -> None:
    """Epoch 0 and no epoch are nobody's: they bypass no fence."""
    made = make_ledger(tmp_path)
    data = Path(made.path).read_bytes()
    says = "the request has no epoch" if epoch is None else "is not a number from 1 to 9007199254740991"
    with pytest.raises(MisuseError, match=says):
        prepare(made, prepare_key("k", epoch=epoch))
    with pytest.raises(MisuseError, match=says):
        append_fenced(made, epoch, prepare_key("k"))
    with pytest.raises(MisuseError, match=says):
        check_advance(epoch, 1, "ledger", log_epoch=epoch)
    assert Path(made.path).read_bytes() == data


def test_rule_S4_below_the_floor_a_start_is_refused_and_above_it_too(tmp_path: Path) -> None:
    """A start that raised the floor on its own would pass by the takeover's kills."""
    made = make_ledger(tmp_path, Advance(5, "log", 1, "hash", {}, []))
    with pytest.raises(StaleEpochError, match="epoch 4 is below the ledger's floor 5"):
        prepare(made, prepare_key("k", epoch=4))
    with pytest.raises(MisuseError, match="epoch 6 is above the ledger's floor 5; advance the space to it first"):
        prepare(made, prepare_key("k", epoch=6))
    assert prepare(made, prepare_key("k", epoch=5)) == New() and view(made.path).floor == 5


@pytest.mark.parametrize(
    ("epoch", "floor", "log_epoch", "raises"),
    [
        (1, 0, None, None),
        (2, 1, None, None),
        (1 + LARGEST_STEP, 1, None, None),
        (2 + LARGEST_STEP, 1, None, MisuseError),
        (2 + LARGEST_STEP, 1, 2 + LARGEST_STEP, None),
        (2 + LARGEST_STEP, 1, 3, MisuseError),
        (HIGHEST_EPOCH, 1, None, MisuseError),
        (HIGHEST_EPOCH, 1, HIGHEST_EPOCH, None),
        (HIGHEST_GIVEN_EPOCH, HIGHEST_GIVEN_EPOCH - 1, None, None),
        (HIGHEST_GIVEN_EPOCH + 1, HIGHEST_GIVEN_EPOCH, None, MisuseError),
        (HIGHEST_GIVEN_EPOCH + 1, HIGHEST_GIVEN_EPOCH, HIGHEST_GIVEN_EPOCH + 1, None),
        (1, 1, None, EpochTakenError),
        (1, 2, None, StaleEpochError),
        (1, 2, 1, StaleEpochError),
    ],
)
def test_one_client_does_not_take_the_highest_epoch_from_all_who_come_after(
    epoch: int, floor: int, log_epoch: int | None, raises: type[CrashworthyError] | None
) -> None:
    if raises is None:
        check_advance(epoch, floor, "ledger", log_epoch)
        return
    with pytest.raises(raises):
        check_advance(epoch, floor, "ledger", log_epoch)


def test_drivers_go_on_one_by_one_after_the_highest_epoch_that_may_be_asked_for() -> None:
    """Whoever drives without asking for an epoch takes the next one; what lies above what may be asked for is left to them."""
    assert HIGHEST_EPOCH - HIGHEST_GIVEN_EPOCH == LARGEST_STEP
    check_at_floor(HIGHEST_GIVEN_EPOCH, HIGHEST_GIVEN_EPOCH, "ledger")
    check_advance(HIGHEST_GIVEN_EPOCH + 1, HIGHEST_GIVEN_EPOCH, "ledger", HIGHEST_GIVEN_EPOCH + 1)
