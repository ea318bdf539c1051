"""Things taken from a session behind its back: each is done and seen to be done, and one that was not is never believed."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from chaos.actions import parse_plan
from chaos.drivers import Place
from chaos.losses import LOSSES
from chaos.results import TrialResult, Verdict
from chaos.scenario import Modes, Scenario
from chaos.taking import TAKING, keep_log
from chaos.verbs.changes import SPACE
from chaos.zygote_client import ProcessZygote
from eventlog import events
from eventlog.errors import MisuseError
from recovery.script import BashCall
from tests.chaos.fakes import make_scenario
from tests.chaos.real import TWO_CALLS, open_zygote, play, read_events

README = (Path(__file__).resolve().parents[2] / "chaos" / "README.md").read_text("utf-8")
BETWEEN = "driver@1:intent.commit.before:2"
ANSWERED = make_scenario("answered", calls=TWO_CALLS.calls, witnessed=(0,), answers=(("root_replaced", "settle --rebuild"),))

CHECKPOINTED = make_scenario(
    "checkpointed", calls=(BashCall(b"echo one > one.txt", policy="safe"), BashCall(b"echo two >> one.txt", policy="safe")),
    modes=Modes("checkpoint", lost_work_bound=1),
)  # fmt: skip

Run = Callable[..., TrialResult]


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessZygote]:
    with open_zygote(tmp_path_factory.mktemp("zygote")) as zygote:
        yield zygote


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "trial")


@pytest.fixture
def run(zygote: ProcessZygote, place: Place) -> Run:
    def run(plan: str, scenario: Scenario = TWO_CALLS) -> TrialResult:
        return play(zygote, scenario, place.directory, plan)

    return run


@pytest.fixture
def staged(place: Place) -> Place:
    """A workspace with a file and a directory."""
    (place.work / "d").mkdir(parents=True)
    (place.work / "d" / "f").write_text("f")
    (place.work / "g").write_text("g")
    place.ledger.parent.mkdir(parents=True)
    previous, lines = b"", []
    for body in (b'{"op":"ledger","ledger_id":"%s"}' % (b"1" * 32), b'{"op":"advance"}', b'{"op":"collect"}'):
        previous = blake3(previous + body).hexdigest(16).encode()
        lines.append(previous + b" " + body + b"\n")
    place.ledger.write_bytes(b"".join(lines))
    for kind in ("manifests/owner", "contents/aa"):
        content = kind.encode()
        (place.checkpoints / kind).mkdir(parents=True)
        (place.checkpoints / kind / blake3(content).hexdigest()).write_bytes(b"\0" + len(content).to_bytes(8, "big") + content)
    (place.state / "log.sqlite").write_text("the first commit")
    keep_log(place)
    (place.state / "log.sqlite").write_text("the first commit and the second")
    (place.state / "log.sqlite-wal").write_text("the third")
    return place


def test_what_can_be_lost_can_be_taken_and_stands_in_the_readme() -> None:
    assert TAKING.keys() == LOSSES.keys() - {SPACE}, "the processes of a space are nothing on a disk"
    assert [name for name in LOSSES if f"`{name}`" not in README] == []


@pytest.mark.parametrize("name", [name for name in TAKING if name != "root unmounted"])
def test_each_loss_is_seen_when_it_is_done_and_not_before(name: str, staged: Place) -> None:
    assert not TAKING[name].is_done(staged)
    TAKING[name].carry_out(staged)
    assert TAKING[name].is_done(staged)


def test_an_empty_directory_in_its_place_is_another_one(staged: Place) -> None:
    before = os.stat(staged.work).st_ino
    TAKING["root emptied"].carry_out(staged)
    assert os.stat(staged.work).st_ino != before


def test_a_log_that_was_put_back_has_nothing_beside_it_that_is_newer(staged: Place) -> None:
    TAKING["log"].carry_out(staged)
    assert (staged.state / "log.sqlite").read_text() == "the first commit"
    assert not (staged.state / "log.sqlite-wal").exists()


def test_an_exchanged_ledger_verifies_and_is_another_one(staged: Place) -> None:
    before = staged.ledger.read_bytes()
    TAKING["ledger exchanged"].carry_out(staged)
    assert staged.ledger.read_bytes().count(b"\n") == before.count(b"\n") and not TAKING["ledger damaged"].is_done(staged)


@pytest.mark.parametrize(
    ("plan", "label"),
    [
        ('kill driver@1:outcome.commit.before:2; lose "ledger removed"', "ledger_lost"),
        ('kill driver@1:outcome.commit.before:2; lose "ledger damaged"', "ledger_damaged"),
        ('kill driver@1:outcome.commit.before:2; lose "ledger exchanged"', "ledger_exchanged"),
        ('kill driver@1:outcome.commit.before:2; lose "machine"', "ledger_lost"),
        ('keep driver@1:intent.commit.before:2 "log"; kill driver@1:outcome.commit.before:2; lose "log"', "log_behind_adopt"),
        ('keep driver@1:outcome.commit.before:1 "log"; kill driver@1:finish.commit.before:1; lose "log"', "log_behind_restore"),
    ],
)
def test_what_the_ledger_or_the_log_lost_leads_to_its_row(plan: str, label: str, run: Run) -> None:
    result = run(plan)
    assert result.verdict is Verdict.PASS, result.reason
    assert result.decisions[0] == label
    assert result.lost_calls == result.bound == (2 if label == "log_behind_restore" else 0) or label == "log_behind_adopt"


@pytest.mark.parametrize("loss", ["root removed", "root emptied", "root moved"])
def test_a_workspace_lost_after_a_crash_is_rebuilt_and_what_was_moved_away_left_alone(loss: str, run: Run, place: Place) -> None:
    result = run(f'kill {BETWEEN}; lose "{loss}"')
    assert (result.verdict, result.labels) == (Verdict.PASS, {"root_lost": 1}), result.reason
    assert (place.work / "one.txt").read_text() == "one\ntwo\n"
    assert place.away.exists() == (loss == "root moved")


def test_a_workspace_lost_while_a_call_is_at_work_is_rebuilt_by_the_next_driver(run: Run) -> None:
    result = run('lose driver@1:outcome.commit.before:1 "root removed"')
    assert result.verdict is Verdict.PASS, result.reason
    assert [code for _, code in result.drivers] == [1, 0]


def test_a_driver_that_needs_a_person_is_answered_as_the_scenario_says(run: Run, place: Place) -> None:
    result = run(f'kill {BETWEEN}; lose "root replaced"; parked driver@2 "root_replaced"', ANSWERED)
    assert result.verdict is Verdict.PASS, result.reason
    assert result.decisions == ("root_replaced", "rebuild_by_person")
    assert result.drivers == ((1, -9), (2, 78), (3, 0), (4, 0))
    assert place.away.is_dir()


def test_a_driver_that_needs_a_person_for_whom_nobody_answers_is_a_failure(run: Run) -> None:
    result = run(f'kill {BETWEEN}; lose "root replaced"')
    assert result.verdict is Verdict.FAIL
    assert "liveness: driver 2 ended with 78 and the session is not finished: recovery: root_replaced: " in result.reason


def test_a_driver_that_should_have_asked_and_did_not_is_a_failure(run: Run) -> None:
    result = run(f'kill {BETWEEN}; lose "root removed"; parked driver@2 "root_lost"')
    assert result.verdict is Verdict.FAIL
    assert "parked: driver@2 should have ended with 78 and 'root_lost': it ended with 0" in result.reason


def test_an_older_checkpoint_stands_in_for_a_damaged_one_and_the_call_since_is_done_again(run: Run, place: Place) -> None:
    result = run('kill driver@1:intent.commit.before:2; lose "checkpoint"; lose "root removed"', CHECKPOINTED)
    assert result.verdict is Verdict.PASS, result.reason
    assert (result.lost_calls, result.bound) == (0, 1)
    assert [event.call for event in read_events(CHECKPOINTED, place.directory) if isinstance(event, events.CallReplayed)] == [1]


def test_what_is_lost_after_the_end_of_the_session_proves_nothing(run: Run) -> None:
    result = run('start; end driver@1; lose "root removed"')
    assert result.verdict is Verdict.UNKNOWN
    assert result.faults[-1].note == "the session had ended before"


def test_the_machine_is_not_restarted_under_a_driver_that_lives(run: Run) -> None:
    result = run(f'wait {BETWEEN}; lose "boot"')
    assert result.verdict is Verdict.UNKNOWN
    assert result.faults[-1].note == "a driver lives, which a restart would have ended"


def test_after_a_restart_what_differs_from_an_image_that_was_not_synced_is_restored(run: Run) -> None:
    result = run('kill driver@1:outcome.commit.after:1; lose "boot"; edit "one.txt" "o"')
    assert (result.verdict, result.labels) == (Verdict.PASS, {"restore_unsynced_head": 1}), result.reason


def test_a_person_restores_to_an_earlier_call_and_the_script_goes_on_from_there(run: Run) -> None:
    result = run('kill driver@1:outcome.commit.after:2; person "restore --at 4 --workspace {workspace}"; end driver@2')
    assert (result.verdict, result.labels) == (Verdict.PASS, {"restore_by_person": 1}), result.reason
    assert result.drivers == ((1, -9), (2, 0), (3, 0))


def test_a_person_s_command_that_fails_is_a_failure(run: Run) -> None:
    result = run(f'kill {BETWEEN}; person "settle --rebuild"; end driver@2')
    assert result.verdict is Verdict.FAIL
    assert "driver 2 ended with 78" in result.reason


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ('lose "the keys"', "unknown loss 'the keys'; use root removed, "),
        ("lose", "lose needs a loss in quotes"),
        ('parked "x"', "parked takes a process"),
        ('keep driver@1:decided:1 "keys"', 'unknown copy \'keys\'; what can be kept is "log"'),
        ("person", "person needs a command in quotes"),
        ('lose "files" "x"', "lose needs a loss in quotes"),
    ],
)
def test_a_loss_that_is_none_is_refused_in_one_sentence(plan: str, sentence: str) -> None:
    with pytest.raises(MisuseError) as caught:
        parse_plan(plan)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)
