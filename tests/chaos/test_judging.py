"""The oracle as the runner sees it: its answer as a value, the head of a log, and where two histories part."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.judging import Judgement, OracleProcess, find_first_difference
from chaos.results import Verdict
from tests.chaos.oracle.conftest import build_restored
from tests.chaos.oracle.log_builder import STREAM, Trial
from tests.chaos.places import SITE_PACKAGES


@pytest.fixture
def oracle() -> Iterator[OracleProcess]:
    process = OracleProcess(SITE_PACKAGES)
    yield process
    process.close()


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return build_restored(tmp_path / "trial")


def ask(oracle: OracleProcess, trial: Trial, **fields: Any) -> Judgement:
    """Write and judge."""
    trial.write()
    return oracle.judge({name: value for name, value in trial.request.items() if name != "op"} | fields)


def test_the_answer_has_decisions_final_state_and_history(oracle: OracleProcess, trial: Trial) -> None:
    judgement = ask(oracle, trial, history=True)
    assert {one.verdict for one in judgement.verdicts} == {Verdict.PASS}
    assert (judgement.decisions, judgement.labels) == (("restore-and-rerun",), {"restore-and-rerun": 1})
    assert judgement.final_parts is not None and [call["index"] for call in judgement.final_parts["calls"]] == [0, 1]
    assert len(judgement.events) == 13
    again = ask(oracle, trial, converges_to=judgement.final, converges_to_parts=judgement.final_parts)
    assert {one.oracle: one.verdict for one in again.verdicts}["convergence"] is Verdict.PASS
    assert (again.final, again.digest, again.events) == (judgement.final, judgement.digest, ())


def test_a_log_that_cannot_be_read_has_none_of_them(oracle: OracleProcess, trial: Trial) -> None:
    judgement = ask(oracle, trial, log=str(trial.home / "nothing.sqlite"), history=True)
    assert (judgement.decisions, judgement.final, judgement.final_parts, judgement.events, judgement.digest) == ((), None, None, (), None)


def test_the_head_of_a_log_is_read_without_a_trace(oracle: OracleProcess, trial: Trial) -> None:
    scratch = trial.home / "scratch"
    assert oracle.read_head(trial.log, scratch, STREAM) == 0
    trial.write()
    listed = sorted(trial.home.rglob("*"))
    assert oracle.read_head(trial.log, scratch, STREAM) == 13
    assert oracle.read_head(trial.log, scratch, "another") == 0
    assert sorted(trial.home.rglob("*")) == listed


def test_the_head_of_what_is_no_log_is_an_error(oracle: OracleProcess, trial: Trial) -> None:
    trial.log.write_bytes(b"noise" * 1000)
    with pytest.raises(OSError, match="the log cannot be read"):
        oracle.read_head(trial.log, trial.home / "scratch", STREAM)


def event(seq: int, **more: Any) -> dict[str, Any]:
    """An event of a history."""
    return {"seq": seq, "kind": "synced", "payload": {"root": "aa", "list": [1, 2]}, "changes": ["put path=a mode=0644"], **more}


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ([event(1), event(2)], ""),
        ([event(1)], "seq 2 synced: only in the first history"),
        ([event(1), event(2), event(3, kind="noted")], "seq 3 noted: only in the second history"),
        ([event(1), event(2, kind="noted")], 'seq 2 synced: kind is "synced" in the first and "noted" in the second history'),
        (
            [event(1, payload={"root": "bb", "list": [1, 2]}), event(2, kind="noted")],
            'seq 1 synced: payload.root is "aa" in the first and "bb" in the second history',
        ),
        (
            [event(1, payload={"root": "aa", "list": [1, 3]}), event(2)],
            "seq 1 synced: payload.list[1] is 2 in the first and 3 in the second history",
        ),
        (
            [event(1, payload={"root": "aa"}), event(2)],
            "seq 1 synced: payload.list is [1, 2] in the first and absent in the second history",
        ),
        (
            [event(1, changes=[]), event(2)],
            'seq 1 synced: changes is ["put path=a mode=0644"] in the first and [] in the second history',
        ),
    ],
)
def test_the_first_difference_of_two_histories_is_named(other: list[dict[str, Any]], sentence: str) -> None:
    assert find_first_difference([event(1), event(2)], other) == sentence
