"""What somebody else changed in the workspace: the oracle `edits`, and what it means for `laundering` and `reference`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.oracle.listing_json import listing_to_json
from chaos.oracle.tree import list_tree
from tests.chaos.oracle.log_builder import LOG_ID, Draft, Trial, bare_row, digest, tamper

BY_HAND = b"by hand"


def edit(path: str, content: bytes | None = BY_HAND, **more: Any) -> dict[str, Any]:
    """An item of `edits`."""
    return {"path": path, "content": None if content is None else digest(content).hex(), **more}


def build_edited(home: Path, root_mode: int = 0o755, beside: bool = False) -> Trial:
    """Two calls. Between them somebody writes `made/here.txt` and removes `old.txt`; during the second `during.txt` is written.
    `root_mode` is that of the root from the outside change on; `beside`: the second call leaves a file beside the one written by hand.

    seq 1 session_opened, 2 driver 1, 3 attempt 1.1, 4 settled 1, 5 workspace_observed, 6 attempt 2.1, 7 settled 2, 8 session_finished.
    """
    trial = Trial(home)
    (trial.work / "old.txt").write_text("old")
    trial.work.chmod(0o755)
    trial.open()
    trial.drive()
    trial.start(1, note="start end")
    (trial.work / "log.txt").write_text("one\n")
    trial.finish(1)
    reference = listing_to_json(list_tree(bytes(trial.work)))
    (trial.work / "made").mkdir()
    (trial.work / "made" / "here.txt").write_bytes(BY_HAND)
    (trial.work / "old.txt").unlink()
    trial.work.chmod(root_mode)
    trial.note_outside()
    trial.start(2, note="start end")
    (trial.work / "during.txt").write_bytes(b"during")
    if beside:
        (trial.work / "made" / "too.txt").write_text("too")
    trial.finish(2)
    trial.end()
    trial.request["edits"] = [edit("made/here.txt", head=4), edit("old.txt", None, head=4), edit("during.txt", b"during", head=6)]
    trial.request["reference"] = reference
    return trial


@pytest.fixture
def edited(tmp_path: Path) -> Trial:
    """`build_edited`, not written yet."""
    return build_edited(tmp_path / "edited")


def keep_victim(trial: Trial, path: str, content: bytes = BY_HAND, decision: int = 7, log_id: str = LOG_ID) -> None:
    """Put something into quarantine, in the second round of a restore."""
    victim = trial.home / "quarantine" / f"{log_id}-{decision}" / "2" / path
    victim.parent.mkdir(parents=True, exist_ok=True)
    victim.write_bytes(content)


def test_edits_that_were_recorded_pass_everywhere(edited: Trial) -> None:
    edited.write()
    assert {name: verdict["verdict"] for name, verdict in edited.verdicts().items() if verdict["verdict"] != "pass"} == {}
    assert edited.verdicts()["edits"]["detail"] == "2 contents and 1 removals are where they must be"
    assert edited.verdicts()["reference"]["detail"] == "2 paths equal the reference run's; 4 paths left out for 3 edits"


def test_edits_are_left_out_when_there_are_none(trial: Trial) -> None:
    trial.request["edits"] = []
    trial.write()
    assert "edits" not in trial.verdicts()
    assert trial.failing() == set()


@pytest.mark.parametrize(
    "item",
    [
        {"path": "a"},
        {"path": "../a", "content": None},
        {"path": "a", "content": "00"},
        {"path": "a", "content": None, "head": "4"},
        {"path": "a", "content": None, "kind": "x"},
        {"path": "a", "content": digest(BY_HAND).hex(), "kind": "d"},
        {"path": "a", "content": None, "kind": "l"},
        {"path": "a", "content": None, "kind": "p", "target": "b"},
        "a",
    ],
    ids=str,
)
def test_an_edit_of_a_wrong_form_is_refused(trial: Trial, item: Any) -> None:
    trial.write()
    trial.request["edits"] = [item]
    with pytest.raises(Exception, match="wrong 'edits'"):
        trial.verdicts()


LOSSES: dict[str, tuple[dict[str, Any], Callable[[Trial], object]]] = {
    "a content that is nowhere": (edit("made/here.txt", b"lost"), lambda trial: None),
    "a content at another path": (edit("made/there.txt"), lambda trial: None),
    "a content that the first image had": (edit("old.txt", b"old"), lambda trial: None),
    "in quarantine under another path": (edit("a", b"lost"), lambda trial: keep_victim(trial, "b", b"lost")),
    "in quarantine with other bytes": (edit("a", b"lost"), lambda trial: keep_victim(trial, "a", b"los")),
    "in the quarantine of another log": (edit("a", b"lost"), lambda trial: keep_victim(trial, "a", b"lost", log_id="ff" * 16)),
    "a removal that no event knows": (edit("log.txt", None), lambda trial: None),
    "a removal recorded before it was made": (edit("old.txt", None, head=5), lambda trial: put_back(trial)),
}


def put_back(trial: Trial) -> None:
    """The removed file is an image's again before the head at which it is said to have been removed."""
    observed = trial.events[4]
    observed.changes = [row for row in observed.changes if row["path"] != b"old.txt"]


@pytest.mark.parametrize(("item", "spoil"), LOSSES.values(), ids=LOSSES)
def test_an_edit_that_is_lost_fails_by_its_path(edited: Trial, item: dict[str, Any], spoil: Callable[[Trial], object]) -> None:
    spoil(edited)
    edited.request["edits"].append(item)
    edited.write()
    verdict = edited.verdicts()["edits"]
    assert (verdict["verdict"], verdict["path"], verdict["expected"]) == ("fail", item["path"], item["content"] or "a removal")


def test_a_lost_edit_says_what_stands_at_its_path_and_since_when(edited: Trial) -> None:
    edited.request["edits"].append(edit("log.txt", b"lost"))
    edited.write()
    verdict = edited.verdicts()["edits"]
    assert edited.failing() == {"edits"}
    assert (verdict["found"].split()[:3], verdict["event"]) == (["f", "0644", "size=4"], "4 call_settled call 1")


@pytest.mark.parametrize("path", ["a", "made/b"])
def test_an_edit_in_quarantine_is_not_lost(edited: Trial, path: str) -> None:
    keep_victim(edited, path, b"kept")
    edited.request["edits"].append(edit(path, b"kept"))
    edited.write()
    assert edited.failing() == set()


def test_an_edit_whose_blob_is_gone_is_lost(edited: Trial) -> None:
    edited.write()
    tamper(edited, f"DELETE FROM blob WHERE hash = x'{digest(b'during').hex()}'")
    assert edited.failing() == {"chain", "workspace-equals-log", "edits"}
    assert edited.verdicts()["edits"]["path"] == "during.txt"


def test_an_edit_that_a_later_call_overwrote_is_in_the_log(edited: Trial) -> None:
    edited.request["edits"] = [edit("here.txt", b"first", head=4), *edited.request["edits"]]
    change = next(row for row in edited.events[4].changes if row["path"] == b"made/here.txt")
    first = change | {"path": b"here.txt", "content": digest(b"first"), "size": 5}
    edited.contents[digest(b"first")] = b"first"
    edited.events[4].changes.insert(0, first)
    edited.events[6].changes = sorted([*edited.events[6].changes, bare_row(b"here.txt", "del")], key=lambda row: bytes(row["path"]))
    edited.write()
    assert "edits" not in edited.failing()


def test_of_two_edits_of_a_path_at_one_head_only_the_last_can_have_been_seen(edited: Trial) -> None:
    edited.request["edits"] = [edit("made/here.txt", b"never seen", head=4), *edited.request["edits"]]
    edited.write()
    assert edited.failing() == set()
    edited.request["edits"][0]["head"] = 3
    assert edited.failing() == {"edits"}


@pytest.mark.parametrize("head", [None, 2])
def test_a_removal_that_a_restore_undid_is_not_lost(tmp_path: Path, head: int | None) -> None:
    trial = Trial(tmp_path / "trial")
    trial.request |= {"script_length": 1, "on_interrupted": "continue"}
    (trial.work / "kept.txt").write_text("kept")
    trial.open()
    trial.drive()
    trial.start(1, policy="never", note="start")
    trial.drive()
    trial.restore(1, 1, [])
    trial.interrupt(1)
    trial.end()
    trial.request["edits"] = [edit("kept.txt", None) | ({} if head is None else {"head": head})]
    trial.write()
    assert trial.failing() == set()
    trial.request["edits"][0]["head"] = 7
    assert trial.failing() == {"edits"}


def test_the_removal_of_what_was_never_tracked_is_no_loss(edited: Trial) -> None:
    edited.request["edits"].append(edit("passing", None))
    edited.write()
    assert edited.failing() == set()


def test_a_removed_file_that_a_call_made_anew_is_accounted_for_when_the_head_is_known(tmp_path: Path) -> None:
    """Removed while the call ran, which then wrote it: the change is a put."""
    trial = Trial(tmp_path / "trial")
    (trial.work / "log.txt").write_text("old")
    trial.open()
    trial.drive()
    trial.start(1, note="start end")
    (trial.work / "log.txt").write_text("new")
    trial.finish(1)
    trial.end()
    trial.request |= {"script_length": 1, "edits": [edit("log.txt", None, head=3)]}
    trial.write()
    assert trial.failing() == set()
    for head in (None, 4):
        trial.request["edits"] = [edit("log.txt", None) | ({} if head is None else {"head": head})]
        assert trial.failing() == {"edits"}


LAUNDERED: dict[str, Callable[[Trial], object]] = {
    "nobody edited": lambda trial: trial.request.update(edits=[], reference=None),
    "a path that nobody edited": lambda trial: trial.request["edits"].pop(0),
    "another content": lambda trial: trial.request["edits"].__setitem__(0, edit("made/here.txt", b"during")),
    "a removal that nobody made": lambda trial: trial.request["edits"].pop(1),
    "a removal where something was written": lambda trial: trial.request["edits"].__setitem__(1, edit("old.txt", b"old")),
}


@pytest.mark.parametrize("spoil", LAUNDERED.values(), ids=LAUNDERED)
def test_an_outside_change_that_no_edit_explains_is_laundering(edited: Trial, spoil: Callable[[Trial], object]) -> None:
    edited.request["outside_edits"] = True  # no longer counts once edits are told
    spoil(edited)
    edited.write()
    verdict = edited.verdicts()["laundering"]
    assert (verdict["verdict"], verdict["event"]) == ("fail", "5 workspace_observed")
    assert "workspace-equals-log" not in edited.failing() and "chain" not in edited.failing()


def test_another_mode_of_a_directory_above_an_edit_is_laundering(tmp_path: Path) -> None:
    trial = build_edited(tmp_path / "trial", root_mode=0o711)
    trial.request["reference"] = None
    trial.write()
    assert trial.failing() == {"laundering"}
    assert trial.verdicts()["laundering"]["path"] == ""


def test_a_laundered_path_is_named_with_the_content_that_was_expected(edited: Trial) -> None:
    edited.request["edits"][0] = edit("made/here.txt", b"during")
    edited.write()
    verdict = edited.verdicts()["laundering"]
    assert (verdict["path"], verdict["expected"], verdict["found"]) == ("made/here.txt", digest(b"during").hex(), digest(BY_HAND).hex())


def build_linked(home: Path, writes: bool = True) -> Trial:
    """Somebody removes the first of three names of a file and, if he `writes`, writes the file through the last."""
    trial = Trial(home)
    (trial.work / "a").write_text("shared")
    os.link(trial.work / "a", trial.work / "b")
    os.link(trial.work / "a", trial.work / "c")
    trial.open()
    reference = listing_to_json(list_tree(bytes(trial.work)))
    trial.drive()
    trial.start(1, note="start end")
    trial.finish(1)
    (trial.work / "a").unlink()
    if writes:
        (trial.work / "c").write_bytes(BY_HAND)
    trial.note_outside()
    trial.end()
    trial.request |= {"script_length": 1, "reference": reference}
    trial.request["edits"] = [edit("a", None, head=4), *([edit("c", head=4)] if writes else [])]
    return trial


def test_further_names_of_an_edited_file_go_with_it(tmp_path: Path) -> None:
    trial = build_linked(tmp_path / "trial")
    trial.write()
    assert [row["path"] for row in trial.events[4].changes if row["op"] == "put"] == [b"b", b"c"]
    assert trial.failing() == set()
    assert trial.verdicts()["reference"]["detail"] == "1 paths equal the reference run's; 3 paths left out for 2 edits"


def test_names_that_only_come_into_another_group_go_with_it(tmp_path: Path) -> None:
    trial = build_linked(tmp_path / "trial", writes=False)
    trial.write()
    assert [(row["path"], row["link"]) for row in trial.events[4].changes if row["op"] == "put"] == [(b"b", b"b"), (b"c", b"b")]
    assert trial.failing() == set()


def test_another_file_is_no_further_name(tmp_path: Path) -> None:
    trial = build_linked(tmp_path / "trial")
    trial.request["edits"] = trial.request["edits"][:1]
    trial.write()
    assert trial.failing() == {"laundering"}
    assert trial.verdicts()["laundering"]["path"] == "b"


def test_the_removal_of_a_directory_explains_what_was_below_it(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "trial")
    (trial.work / "many" / "deep").mkdir(parents=True)
    (trial.work / "many" / "deep" / "x").write_text("x")
    trial.open()
    reference = listing_to_json(list_tree(bytes(trial.work)))
    trial.drive()
    trial.start(1, note="start end")
    trial.finish(1)
    (trial.work / "many" / "deep" / "x").unlink()
    (trial.work / "many" / "deep").rmdir()
    (trial.work / "many").rmdir()
    trial.note_outside()
    trial.end()
    trial.request |= {"script_length": 1, "reference": reference, "edits": [edit("many", None, head=4)]}
    trial.write()
    assert trial.failing() == set()


def test_a_difference_beside_the_edits_still_fails_the_reference(edited: Trial) -> None:
    edited.request["reference"]["log.txt"]["mode"] = 0o600
    edited.write()
    assert edited.failing() == {"reference"}
    assert edited.verdicts()["reference"]["path"] == "log.txt"


def test_a_directory_that_holds_more_than_edits_is_not_left_out(tmp_path: Path) -> None:
    """The second call left something in the directory that somebody made: the plain run has neither."""
    trial = build_edited(tmp_path / "trial", beside=True)
    trial.write()
    assert trial.failing() == {"reference"}
    assert trial.verdicts()["reference"]["path"] == "made"


def test_nothing_left_to_compare_is_unknown(edited: Trial) -> None:
    edited.request["edits"].append(edit("", None))
    edited.write()
    verdict = edited.verdicts()["reference"]
    assert (verdict["verdict"], verdict["detail"]) == ("unknown", "every path of the reference run was edited")


def test_a_quarantine_that_is_not_named_makes_only_unrecorded_edits_unknown(edited: Trial) -> None:
    edited.request["quarantine"] = None
    edited.write()
    assert edited.verdicts()["edits"]["verdict"] == "pass"
    edited.request["edits"].append(edit("nowhere"))
    assert edited.verdicts()["edits"]["verdict"] == "unknown"


def test_an_interrupted_call_that_carries_an_edit_does_not_record_it(edited: Trial) -> None:
    """A draft that says interrupted and carries changes is laundering; the edit it carries is there nevertheless."""
    edited.events[6] = Draft("call_settled", 1, edited.events[6].payload | {"ended": "interrupted"}, edited.events[6].changes)
    edited.write()
    assert "laundering" in edited.failing() and "edits" not in edited.failing()


def build_exchanged(home: Path) -> Trial:
    """A call; then somebody makes a symlink of a file, a FIFO, and a directory; then another call."""
    trial = Trial(home)
    (trial.work / "old.txt").write_text("old")
    trial.open()
    trial.drive()
    trial.start(1, note="start end")
    (trial.work / "log.txt").write_text("one\n")
    trial.finish(1)
    (trial.work / "old.txt").unlink()
    (trial.work / "old.txt").symlink_to("log.txt")
    os.mkfifo(trial.work / "pipe")
    (trial.work / "folder").mkdir()
    trial.note_outside()
    trial.start(2, note="start end")
    (trial.work / "log.txt").write_text("two\n")
    trial.finish(2)
    trial.end()
    made = {"old.txt": {"kind": "l", "target": "log.txt"}, "pipe": {"kind": "p"}, "folder": {"kind": "d"}}
    trial.request["edits"] = [edit(path, None, head=4, **more) for path, more in made.items()]
    trial.request["reference"] = None
    return trial


def test_things_of_another_type_that_were_recorded_pass(tmp_path: Path) -> None:
    trial = build_exchanged(tmp_path / "exchanged")
    trial.write()
    assert {name: verdict for name, verdict in trial.verdicts().items() if verdict["verdict"] == "fail"} == {}
    assert trial.verdicts()["edits"]["verdict"] == "pass"


@pytest.mark.parametrize(
    "item",
    [
        edit("old.txt", None, head=4, kind="l", target="another"),
        edit("pipe", None, head=4, kind="d"),
        edit("gone", None, head=4, kind="p"),
    ],
    ids=["another target", "another kind", "nowhere"],
)
def test_a_thing_of_another_type_that_is_nowhere_fails_by_its_path(tmp_path: Path, item: dict[str, Any]) -> None:
    trial = build_exchanged(tmp_path / "exchanged")
    trial.request["edits"].append(item)
    trial.write()
    verdict = trial.verdicts()["edits"]
    assert (verdict["verdict"], verdict["path"], verdict["expected"]) == ("fail", item["path"], item["kind"])


def test_what_nobody_exchanged_is_recorded_by_laundering(tmp_path: Path) -> None:
    trial = build_exchanged(tmp_path / "exchanged")
    trial.request["edits"].pop(1)
    trial.write()
    verdict = trial.verdicts()["laundering"]
    assert (verdict["verdict"], verdict["path"]) == ("fail", "pipe")
