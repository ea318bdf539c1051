"""The final state of a session, and the oracle that compares it with another run's."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.oracle.final import final_digest
from chaos.oracle.judging import judge
from chaos.oracle.listing_json import listing_to_json
from chaos.oracle.tree import list_tree
from tests.chaos.oracle.conftest import build_restored
from tests.chaos.oracle.log_builder import Trial, digest

EMPTY = digest(b"").hex()


def build_straight(home: Path, second: str = "b", output: bytes = b"second\n") -> Trial:
    """The session of `build_restored` as it goes when nobody is killed."""
    trial = Trial(home)
    (trial.work / "notes").mkdir()
    (trial.work / "notes" / "a.txt").write_text("a")
    trial.open()
    trial.drive()
    trial.start(1, note="start end")
    (trial.work / "log.txt").write_text("one\n" * 50)
    (trial.work / "link").symlink_to("log.txt")
    trial.finish(1, output=b"first\n")
    trial.start(2, note="start end")
    (trial.work / "notes" / "b.txt").write_text(second)
    trial.finish(2, output=output)
    trial.end()
    return trial


def answer_of(trial: Trial) -> dict[str, Any]:
    """Write and judge."""
    trial.write()
    return judge(trial.request)


def converge(trial: Trial, end: dict[str, Any], *, parts: bool = True, listing: Any = None) -> dict[str, Any]:
    """The verdict of `convergence` when a trial is to end as the answer `end` has it."""
    trial.request["converges_to"] = end["final"]
    if parts:
        trial.request["converges_to_parts"] = dict(end["final_parts"]) | ({"listing": listing} if listing else {})
    return {verdict["oracle"]: verdict for verdict in answer_of(trial)["verdicts"]}["convergence"]


def test_a_session_that_was_cut_and_restored_ends_as_one_that_was_not(tmp_path: Path) -> None:
    straight, restored = (answer_of(build(tmp_path / build.__name__)) for build in (build_straight, build_restored))
    assert straight["final"] == restored["final"] == final_digest(straight["final_parts"])
    assert straight["digest"] != restored["digest"]
    assert straight["final_parts"]["calls"] == [
        {"index": index, "ended": "finished", "exit": {"kind": "exited", "code": 0}, "output": digest(output).hex()}
        for index, output in enumerate((b"first\n", b"second\n"))
    ]


def test_the_final_state_knows_no_times(tmp_path: Path) -> None:
    one = answer_of(build_straight(tmp_path / "one"))
    trial = build_straight(tmp_path / "two")
    for place in (trial.work, trial.work / "log.txt"):
        os.utime(place, (1, 1))
    assert answer_of(trial)["final"] == one["final"]


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes": lambda work: (work / "log.txt").write_text("other"),
    "a mode": lambda work: (work / "notes").chmod(0o700),
    "the root's mode": lambda work: work.chmod(0o711),
    "a name": lambda work: (work / "log.txt").rename(work / "log2.txt"),
    "a link's target": lambda work: [(work / "link").unlink(), (work / "link").symlink_to("notes")],
    "a further name": lambda work: os.link(work / "log.txt", work / "notes" / "log.txt"),
    "an attribute": lambda work: os.setxattr(work / "log.txt", "user.x", b"y"),
    "a kind": lambda work: [(work / "link").unlink(), os.mkfifo(work / "link")],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_differs_in_the_workspace_differs_in_the_final_state(tmp_path: Path, change: Callable[[Path], object]) -> None:
    one = answer_of(build_straight(tmp_path / "one"))
    trial = build_straight(tmp_path / "two")
    change(trial.work)
    two = answer_of(trial)
    assert one["final"] != two["final"]
    assert one["final_parts"]["tree"] != two["final_parts"]["tree"]
    assert one["final_parts"]["calls"] == two["final_parts"]["calls"]


def test_one_file_under_two_names_is_not_two_equal_files(tmp_path: Path) -> None:
    ends = []
    for make in (shutil.copy, os.link):
        trial = build_straight(tmp_path / make.__name__)
        make(trial.work / "log.txt", trial.work / "notes" / "log.txt")
        ends.append(answer_of(trial)["final"])
    assert ends[0] != ends[1]


def test_the_last_call_of_a_script_index_is_the_one_that_counts(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "trial")
    trial.request |= {"script_length": 4, "on_interrupted": "reissue"}
    trial.open()
    trial.drive()
    trial.start(1, index=0)
    trial.interrupt(1)
    trial.start(2, index=0)
    trial.finish(2)
    trial.start(3, index=1)
    trial.interrupt(3)
    trial.start(4, index=2)
    calls = answer_of(trial)["final_parts"]["calls"]
    exited = {"kind": "exited", "code": 0}
    assert calls == [
        {"index": 0, "ended": "finished", "exit": exited, "output": EMPTY},
        {"index": 1, "ended": "interrupted", "exit": None, "output": None},
        {"index": 2, "ended": "open", "exit": None, "output": None},
        {"index": 3, "ended": "not started", "exit": None, "output": None},
    ]


def test_convergence_is_left_out_when_no_end_is_named(trial: Trial) -> None:
    trial.write()
    assert "convergence" not in trial.verdicts()


@pytest.mark.parametrize("parts", [True, False])
def test_an_equal_end_passes(tmp_path: Path, parts: bool) -> None:
    end = answer_of(build_straight(tmp_path / "one"))
    assert converge(build_restored(tmp_path / "two"), end, parts=parts)["verdict"] == "pass"


def test_another_end_fails_and_both_are_named(tmp_path: Path) -> None:
    end = answer_of(build_straight(tmp_path / "one", second="other"))
    trial = build_restored(tmp_path / "two")
    verdict = converge(trial, end, parts=False)
    assert (verdict["verdict"], verdict["expected"], verdict["found"]) == ("fail", end["final"], judge(trial.request)["final"])
    assert verdict["detail"] == "another final state: its parts were not given"
    assert trial.failing() == {"convergence"}


def test_with_the_parts_the_finding_says_that_the_tree_differs(tmp_path: Path) -> None:
    end = answer_of(build_straight(tmp_path / "one", second="other"))
    assert converge(build_restored(tmp_path / "two"), end)["detail"] == "another final state: the tree differs"


def test_with_the_listing_the_finding_names_path_and_event(tmp_path: Path) -> None:
    other = build_straight(tmp_path / "one", second="other")
    end = answer_of(other)
    verdict = converge(build_restored(tmp_path / "two"), end, listing=listing_to_json(list_tree(bytes(other.work))))
    assert (verdict["path"], verdict["event"]) == ("notes/b.txt", "11 call_settled call 2")
    assert verdict["detail"].startswith("another final state: the tree differs (differs in content, size: f 0644 size=1 content=")


def test_a_call_that_ended_otherwise_is_named(tmp_path: Path) -> None:
    end = answer_of(build_straight(tmp_path / "one"))
    trial = build_straight(tmp_path / "two")
    settled = next(draft for draft in trial.events if draft.kind == "call_settled" and draft.payload["call"] == 2)
    settled.payload.update(ended="interrupted", exit=None, output=None)
    assert converge(trial, end)["detail"] == "another final state: script call 1 ended interrupted instead of finished"


def test_another_output_and_another_exit_are_named(tmp_path: Path) -> None:
    end = answer_of(build_straight(tmp_path / "one"))
    trial = build_straight(tmp_path / "two", output=b"other\n")
    next(draft for draft in trial.events if draft.kind == "call_settled").payload["exit"] = {"kind": "signaled", "signal": 9}
    detail = converge(trial, end)["detail"]
    assert detail == (
        "another final state: script call 0 has exit {'kind': 'signaled', 'signal': 9} instead of {'kind': 'exited', 'code': 0}; "
        "script call 1 has another output"
    )


def test_a_script_of_another_length_is_another_end(tmp_path: Path) -> None:
    end = answer_of(build_straight(tmp_path / "one"))
    trial = build_straight(tmp_path / "two")
    trial.request["script_length"] = 1
    assert converge(trial, end)["detail"] == "another final state: script call 1 is not of this session"


def test_parts_that_are_not_those_of_the_digest_are_unknown(tmp_path: Path) -> None:
    end = answer_of(build_straight(tmp_path / "one"))
    end["final_parts"]["tree"] = "00"
    assert converge(build_restored(tmp_path / "two"), end)["verdict"] == "unknown"


def test_a_workspace_or_log_that_cannot_be_read_has_no_final_state(tmp_path: Path) -> None:
    trial = build_straight(tmp_path / "one")
    trial.request |= {"converges_to": "00" * 32, "stream": "another"}
    answer = answer_of(trial)
    assert (answer["final"], answer["final_parts"]) == (None, None)
    assert trial.verdicts()["convergence"]["verdict"] == "unknown"
