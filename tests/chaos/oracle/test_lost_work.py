"""Lost work is counted and held against its bound; stale images are no targets; both from the log and what drivers said alone."""

from pathlib import Path
from typing import Any

from chaos.oracle.judging import judge
from tests.chaos.oracle.log_builder import Trial

UNSTABLE = [{"path": "log.txt", "kind": "unstable"}]


def two_calls(home: Path) -> Trial:
    """Two finished calls, both acknowledged."""
    trial = Trial(home)
    trial.open()
    trial.drive()
    for call in (1, 2):
        trial.start(call, note="start end")
        (trial.work / "log.txt").write_text("line\n" * call)
        trial.finish(call)
    trial.end()
    return trial


def said(trial: Trial, oracle: str) -> dict[str, Any]:
    """What one oracle says."""
    trial.write()
    return trial.verdicts()[oracle]


def test_nothing_is_lost_where_every_acknowledged_call_stands(tmp_path: Path) -> None:
    trial = two_calls(tmp_path / "trial")
    assert said(trial, "lost-work")["verdict"] == "pass"
    answer = judge(trial.request)
    assert (answer["lost_calls"], answer["bound"]) == (0, 0)


def test_an_acknowledged_call_that_the_log_has_not_is_lost_work(tmp_path: Path) -> None:
    trial = two_calls(tmp_path / "trial")
    trial.outputs[-1].append(f"ACK 3 99 {'0' * 64}")
    found = said(trial, "lost-work")
    assert (found["verdict"], found["expected"], found["found"]) == ("fail", "0", "1")
    assert "the first is call 3" in found["detail"]
    assert judge(trial.request)["lost_calls"] == 1


def test_a_call_that_was_taken_over_again_after_the_log_lost_its_tail_stands(tmp_path: Path) -> None:
    trial = two_calls(tmp_path / "trial")
    root = trial.events[-2].payload["root"]
    trial.outputs[-1].append(f"ACK 2 99 {root}")
    assert said(trial, "lost-work")["verdict"] == "pass"


def test_a_finished_call_that_the_engine_undid_is_lost(tmp_path: Path) -> None:
    trial = two_calls(tmp_path / "trial")
    trial.events.pop()
    trial.append("call_undone", call=2, reason="a checkpoint was damaged", decision_seq=1)
    trial.end()
    assert said(trial, "lost-work")["verdict"] == "fail"


def test_what_may_be_lost_is_no_failure_and_is_counted(tmp_path: Path) -> None:
    trial = two_calls(tmp_path / "trial")
    trial.outputs[-1].append(f"ACK 3 99 {'0' * 64}")
    trial.request["put_back"] = [9, 1]
    assert said(trial, "lost-work")["verdict"] == "pass"
    answer = judge(trial.request)
    assert (answer["lost_calls"], answer["bound"]) == (1, 1)


def decide(trial: Trial, label: str, target: int) -> None:
    """A decision that opens an obligation towards the image at `target`, and its end, before the session's."""
    end = trial.events.pop()
    root = trial.root()
    decided = trial.append(
        "recovery_decided", label=label, call=None, attempt=None, obligation=True, target_seq=target, target_root=root,
        mode="transactional", facts={},
    )  # fmt: skip
    trial.append("restore_finished", decision_seq=decided, root=root, restored=0, displaced=0, rounds=1)
    trial.events.append(end)


def stale_after_the_second_call(home: Path) -> tuple[Trial, int]:
    trial = two_calls(home)
    seq = next(seq for seq, draft in enumerate(trial.events, 1) if draft.kind == "call_settled" and draft.payload["call"] == 2)
    trial.events[seq - 1].payload["untracked"] = UNSTABLE
    return trial, seq


def test_a_restore_to_a_stale_image_fails(tmp_path: Path) -> None:
    trial, seq = stale_after_the_second_call(tmp_path / "trial")
    decide(trial, "root_lost", seq)
    found = said(trial, "stale")
    assert found["verdict"] == "fail" and found["detail"] == f"the image at seq {seq} is stale and a restore aims at it"


def test_a_person_may_aim_at_a_stale_image(tmp_path: Path) -> None:
    trial, seq = stale_after_the_second_call(tmp_path / "trial")
    decide(trial, "rebuild_by_person", seq)
    assert said(trial, "stale")["verdict"] == "pass"


def test_an_image_that_was_looked_at_again_is_stale_no_more(tmp_path: Path) -> None:
    """That look changes nothing, and nobody edited: it is no outside change that somebody would have to have made."""
    trial, _ = stale_after_the_second_call(tmp_path / "trial")
    trial.events.pop()
    seq = trial.append("workspace_observed", root=trial.root(), untracked=[])
    trial.end()
    decide(trial, "root_lost", seq)
    trial.write()
    verdicts = trial.verdicts()
    assert (verdicts["stale"]["verdict"], verdicts["laundering"]["verdict"]) == ("pass", "pass")


def test_an_empty_look_at_an_image_that_was_not_stale_is_an_outside_change_that_nobody_made(tmp_path: Path) -> None:
    trial = two_calls(tmp_path / "trial")
    trial.events.pop()
    trial.append("workspace_observed", root=trial.root(), untracked=[])
    trial.end()
    assert said(trial, "laundering")["verdict"] == "fail"
