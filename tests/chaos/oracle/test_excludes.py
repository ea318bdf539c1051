"""Sessions that exclude paths, and restores that a person asked for: what passes, what fails, and what the oracle does not judge."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.oracle.excludes import excluded_paths
from chaos.oracle.values import Entry, EvidenceMissing
from tests.chaos.oracle.log_builder import LOG_ID, Draft, Trial

Change = Callable[[Trial], object]


def build(home: Path, excludes: list[str] | None = None) -> Trial:
    """One call that makes a file, an excluded tree, and a directory with nothing but an excluded file in it."""
    trial = Trial(home, excludes=["node_modules/", "*.o"] if excludes is None else excludes)
    trial.omitted = [b"node_modules", b"d", b"x.o"]
    trial.request["script_length"] = 1
    (trial.work / "kept").write_text("kept")
    trial.open()
    trial.drive()
    trial.start(1, note="start end")
    (trial.work / "node_modules").mkdir()
    (trial.work / "node_modules" / "m").write_text("m")
    (trial.work / "d").mkdir()
    (trial.work / "d" / "f.o").write_text("o")
    (trial.work / "x.o").write_text("o")
    (trial.work / "made").write_text("made")
    trial.finish(1)
    trial.end()
    return trial


def test_what_is_excluded_is_in_no_image_and_all_passes(tmp_path: Path) -> None:
    trial = build(tmp_path / "trial")
    trial.write()
    assert {name: one["detail"] for name, one in trial.verdicts().items() if one["verdict"] != "pass"} == {}


def leave_out(trial: Trial) -> None:
    """The engine's image lacks a file that no pattern excludes."""
    (trial.work / "f.c").write_text("c")


def fill_holder(trial: Trial) -> None:
    """The directory with the excluded file holds another one, which no image has."""
    (trial.work / "d" / "f").write_text("c")


def empty_holder(trial: Trial) -> None:
    """The directory that no image has holds nothing, not even an excluded file."""
    (trial.work / "d" / "f.o").unlink()


@pytest.mark.parametrize("spoil", [leave_out, fill_holder, empty_holder])
def test_a_path_that_no_pattern_excludes_may_not_be_left_out(tmp_path: Path, spoil: Change) -> None:
    trial = build(tmp_path / "trial")
    spoil(trial)
    trial.write()
    assert trial.failing() == {"workspace-equals-log"}


def test_an_excluded_path_in_an_image_fails(tmp_path: Path) -> None:
    trial = build(tmp_path / "trial", ["node_modules/", "*.o", "kept"])
    trial.write()
    assert trial.failing() == {"workspace-equals-log"}
    assert trial.verdicts()["workspace-equals-log"]["path"] == "kept"


def test_a_root_without_the_excludes_in_it_fails_the_chain(tmp_path: Path) -> None:
    trial = build(tmp_path / "trial")
    trial.events[0].payload["excludes"] = ["*.o", "node_modules/"]
    trial.write()
    assert trial.failing() == {"acknowledged", "chain"}


@pytest.mark.parametrize("pattern", ["[ab].o", "a/**/b", "\\#a", "# c", "a ", "**"])
def test_a_pattern_that_is_not_understood_is_unknown_and_no_pass(tmp_path: Path, pattern: str) -> None:
    trial = build(tmp_path / "trial", ["node_modules/", "*.o", pattern])
    trial.write()
    verdicts = trial.verdicts()
    assert verdicts["workspace-equals-log"]["verdict"] == "unknown"
    assert "is not one that this oracle understands" in verdicts["workspace-equals-log"]["detail"]


def test_an_excluded_path_that_a_restore_moved_fails(tmp_path: Path) -> None:
    trial = build(tmp_path / "trial")
    del trial.events[-1]
    trial.restore(1, len(trial.events), ["1/node_modules/m"])
    trial.events[-3].payload["call"] = trial.events[-3].payload["attempt"] = None
    trial.end()
    trial.write()
    assert trial.failing() == {"quarantine"}
    assert trial.verdicts()["quarantine"]["path"] == "node_modules"


def restored_by_person(home: Path) -> Trial:
    """Two finished calls; a person has the image before them restored; both are undone and run again by the next driver."""
    trial = Trial(home)
    trial.open()
    trial.drive()
    for number in (1, 2):
        trial.start(number, note="start end")
        (trial.work / f"f{number}").write_text(str(number))
        trial.finish(number)
    trial.drive()
    for number in (1, 2):
        (trial.work / f"f{number}").unlink()
    changes = trial.observe()
    root = trial.root()
    decided = trial.append(
        "recovery_decided", label="restore_by_person", call=None, attempt=None, obligation=True, target_seq=1, target_root=root,
        mode="transactional", facts={},
    )  # fmt: skip
    directory = f"{LOG_ID}-{decided}"
    for number in (1, 2):
        victim = home / "quarantine" / directory / "1" / f"f{number}"
        victim.parent.mkdir(parents=True, exist_ok=True)
        victim.write_text(str(number))
    trial.append("quarantined", decision_seq=decided, directory=directory, paths=["1/f1", "1/f2"])
    trial.append("restore_finished", changes, decision_seq=decided, root=root, restored=0, displaced=2, rounds=1,
                 reverted=0, reimaged=0, accepted=False)  # fmt: skip
    for number in (1, 2):
        trial.append("call_undone", call=number, reason="a person", decision_seq=decided)
    for number in (3, 4):
        trial.start(number, index=number - 3, note="start end")
        (trial.work / f"f{number}").write_text(str(number))
        trial.finish(number)
    trial.end()
    return trial


def test_a_restore_that_a_person_asked_for_passes(tmp_path: Path) -> None:
    trial = restored_by_person(tmp_path / "trial")
    trial.write()
    assert {name: one["detail"] for name, one in trial.verdicts().items() if one["verdict"] != "pass"} == {}


def place_of(trial: Trial, kind: str) -> int:
    return next(place for place, draft in enumerate(trial.events) if draft.kind == kind)


def drop_one(trial: Trial) -> None:
    """One undone call is not said to be."""
    del trial.events[place_of(trial, "call_undone")]


def undo_twice(trial: Trial) -> None:
    """A call is undone a second time."""
    draft = trial.events[place_of(trial, "call_undone")]
    trial.events.insert(place_of(trial, "call_undone"), Draft(draft.kind, draft.epoch, dict(draft.payload)))


@pytest.mark.parametrize("spoil", [drop_one, undo_twice])
def test_each_call_after_the_target_is_undone_once(tmp_path: Path, spoil: Change) -> None:
    trial = restored_by_person(tmp_path / "trial")
    spoil(trial)
    trial.outputs[-1].clear()
    trial.write()
    assert trial.failing() == {"order"}


def test_any_other_restore_may_carry_no_changes(tmp_path: Path) -> None:
    trial = restored_by_person(tmp_path / "trial")
    trial.events[place_of(trial, "recovery_decided")].payload["label"] = "restore_unsynced_head"
    trial.write()
    assert "laundering" in trial.failing()


@pytest.mark.parametrize(("facts", "is_right"), [({"fallback_checkpoint": "0" * 64}, True), ({}, False)], ids=["fallback", "none"])
def test_rule_C7_only_an_older_checkpoint_undoes_calls_unasked(tmp_path: Path, facts: dict[str, str], is_right: bool) -> None:
    trial = restored_by_person(tmp_path / "trial")
    trial.events[place_of(trial, "recovery_decided")].payload.update(label="root_lost", facts=facts)
    trial.write()
    assert ("order" not in trial.failing()) == is_right


PATTERNS = ["a", "*.o", "!b.o", "/a", "a/b", "b/", "!a/", "?", "*/b", "/c/*", "!c/a", "*", "a*/"]
NAMES = ("a", "b", "c", "b.o", "a.o", "ab")


@pytest.mark.parametrize("number", range(40))
def test_the_matcher_says_what_git_says(tmp_path: Path, number: int) -> None:
    lines = [PATTERNS[(number * 7 + step * (number + 3)) % len(PATTERNS)] for step in range(number % 4 + 1)]
    paths = [*NAMES] + [f"{above}/{name}" for above in ("c", "ab") for name in NAMES]
    for path in paths:
        if path in ("c", "ab"):
            continue
        full = tmp_path / "work" / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.mkdir() if path.endswith("/a") else full.touch()
        if path.endswith("/a"):
            (full / "b").touch()
    try:
        subprocess.run(["git", "init", "-q", tmp_path / "work"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("git is not here")
    (tmp_path / "excludes").write_text("\n".join(lines) + "\n")
    command = ["git", "-C", tmp_path / "work", "ls-files", "--others", f"--exclude-from={tmp_path / 'excludes'}"]
    kept = set(subprocess.run(command, check=True, capture_output=True).stdout.split())
    listing: dict[bytes, Entry] = {}
    for above, directories, files in os.walk(bytes(tmp_path / "work")):
        directories[:] = [name for name in directories if name != b".git"]
        listing |= {os.path.relpath(os.path.join(above, name), bytes(tmp_path / "work")): Entry("d", 0) for name in directories}
        listing |= {os.path.relpath(os.path.join(above, name), bytes(tmp_path / "work")): Entry("f", 0) for name in files}
    left_out = excluded_paths([line.encode() for line in lines], listing)
    assert {path for path, entry in listing.items() if entry.kind == "f" and path not in left_out} == kept


def test_a_pattern_of_brackets_is_refused() -> None:
    with pytest.raises(EvidenceMissing):
        excluded_paths([b"[a]"], {b"a": Entry("f", 0)})
