"""The run directory: configuration first, verdict last, nothing overwritten; and where trials live."""

import json
import os
from pathlib import Path

import pytest

from chaos.area import open_area
from chaos.enumeration import enumerate_trials
from chaos.results import RUN_FORMAT, Action, Recording, Trial, Verdict
from chaos.rundir import Config, RunDirectory, name_artifact
from chaos.trees import remove_tree
from chaos.trial_set import TrialSet
from eventlog.errors import MisuseError
from reports.load import LoadError, load_run
from tests.chaos.fakes import STEPS, make_result, make_scenario

CONFIG = Config(
    seed=5, mode="ci", command="chaos --seed 5", jobs=2, started_ms=1, scenarios=({"name": "small"},), arguments={"small": "small"}
)


def make_run(path: Path, finish: bool = True) -> None:
    result = make_result(Trial(0, "small", ()), Verdict.PASS)
    with RunDirectory(path, CONFIG, lambda: 0.0) as run:
        assert (path / "config.json").exists() and not (path / "verdict.json").exists()
        run.history.note_started(result.trial)
        run.history.note_ended(result)
        run.add_steps(enumerate_trials(Recording("small", (*STEPS, "driver@2:start:1"), result), make_scenario(), TrialSet()))
        run.add_result(result)
        if finish:
            run.finish(Verdict.PASS, [], {"runs": 1, "pass": 1, "unknown": 0, "fail": 0})


def test_what_was_written_is_what_reports_read(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert (run.config.format, run.config.seed, run.config.arguments) == (RUN_FORMAT, 5, {"small": "small"})
    assert run.scenarios[0].steps == (*STEPS, "driver@2:start:1")
    assert run.scenarios[0].unreachable[0].reason == "not yet"
    assert run.results == (make_result(Trial(0, "small", ()), Verdict.PASS),)
    assert run.judgement is not None and run.judgement.verdict is Verdict.PASS


def test_the_steps_of_a_set_stand_with_what_comes_before_and_what_is_frozen(tmp_path: Path) -> None:
    prefix = (Action("driver@1:decided:1", "kill"),)
    steps = ("driver@2:decided:1", "driver@2:outcome.commit.locked:1", "spawner@2:start:1")
    recording = Recording("small", steps, make_result(Trial(0, "small", prefix), Verdict.PASS), prefix=prefix)
    with RunDirectory(tmp_path / "run", CONFIG, lambda: 0.0) as run:
        run.add_steps(enumerate_trials(recording, make_scenario(), TrialSet(prefix, freeze=("driver",))))
    (line,) = [json.loads(text) for text in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert line["before"] == "kill driver@1:decided:1"
    assert line["frozen"] == [steps[0]]
    assert line["not_frozen"] == [
        {"step": steps[1], "reason": "lock held"},
        {"step": steps[2], "reason": "not in this scenario"},
    ]
    assert (line["trials"], line["unreachable"]) == (4, [])


def test_what_did_not_pass_is_kept_each_clean_run_under_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "trial").mkdir()
    plans = [(), (Action("driver@1:decided:1", "kill"),), (Action("driver@1:decided:2", "kill"),)]
    results = [make_result(Trial(0, "small", plan, fault=""), Verdict.FAIL) for plan in plans]
    results += [make_result(Trial(number, "small", plans[1]), Verdict.FAIL) for number in (1, 2)]
    with RunDirectory(tmp_path / "run", CONFIG, lambda: 0.0) as run:
        for number, result in enumerate(results):
            (tmp_path / "trial" / "left").write_text(str(number))
            kept = Path(run.keep(result, tmp_path / "trial").kept)
            assert (kept.parent, (kept / "left").read_text()) == (tmp_path / "run" / "artifacts", str(number))
    assert len({name_artifact(result) for result in results}) == len(results)
    assert name_artifact(results[3]) == "small-1"


def test_a_run_that_was_cut_short_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    make_run(tmp_path / "run", finish=False)
    with (tmp_path / "run" / "results.jsonl").open("ab") as file:
        file.write(b'{"trial": {"num')
    run = load_run(tmp_path / "run")
    assert run.judgement is None
    assert len(run.results) == 1


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": RUN_FORMAT + 1}))
    with pytest.raises(LoadError, match=f"has run format {RUN_FORMAT + 1}, this version reads up to {RUN_FORMAT}"):
        load_run(tmp_path / "run")


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "run" / "results.jsonl").write_bytes(b"{}\n")
    with pytest.raises(LoadError, match="results.jsonl line 1: is damaged"):
        load_run(tmp_path / "run")


def test_an_old_run_is_never_overwritten(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with pytest.raises(MisuseError, match="is not empty; give --out a new directory"):
        make_run(tmp_path / "run")


def test_a_run_directory_below_a_file_is_misuse(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MisuseError, match="cannot be the run directory"):
        make_run(tmp_path / "file" / "run")


def test_trials_live_on_a_roomy_tmpfs_and_else_among_temporary_files(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"tmpfs {tmp_path} tmpfs rw 0 0\n")
    with open_area(tmp_path, mounts) as area:
        assert area.parent == tmp_path
    assert not area.exists()
    mounts.write_text(f"disk {tmp_path} ext4 rw 0 0\n")
    with open_area(tmp_path, mounts) as area:
        assert area.parent != tmp_path
    with open_area(tmp_path / "none", mounts) as area:
        assert area.exists()


def test_what_a_command_closed_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    (tree / "closed" / "inner").mkdir(parents=True)
    os.symlink(outside, tree / "link")
    (tree / "closed").chmod(0)
    remove_tree(tree)
    assert not tree.exists()
    assert (outside / "kept").exists()
