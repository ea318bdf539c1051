"""What the runner saw itself: in the workspace before a driver came (`displaced`), and around the wake of a frozen process (`frozen`)."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.oracle.listing_json import entry_to_json, listing_to_json
from chaos.oracle.tree import list_tree
from chaos.oracle.values import Entry
from tests.chaos.oracle.log_builder import LOG_ID, Trial, digest, tamper

VICTIM = digest(b"victim").hex()
A = digest(b"a").hex()
LOST = digest(b"lost").hex()


def quarantined(trial: Trial, path: str) -> Path:
    """A place in the quarantine of the restore decided at seq 7."""
    place = trial.home / "quarantine" / f"{LOG_ID}-7" / "1" / path
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def record(trial: Trial, *paths: str) -> None:
    """The log says that these are in quarantine too."""
    trial.events[7].payload["paths"] += [f"1/{path}" for path in paths]
    trial.events[8].payload["displaced"] += len(paths)


FOUND: dict[str, dict[str, Any]] = {
    "in quarantine": {"path": "notes/b.txt", "content": VICTIM},
    "in the log, at another path": {"path": "elsewhere", "content": A},
    "still there": {"path": "log.txt", "content": digest(b"one\n" * 50).hex()},
    "a directory that is there": {"path": "notes", "kind": "d"},
    "a symlink that is there": {"path": "link", "kind": "l", "target": "log.txt"},
}


@pytest.mark.parametrize("item", FOUND.values(), ids=FOUND)
def test_what_is_found_again_passes(trial: Trial, item: dict[str, Any]) -> None:
    trial.request["displaced"] = [item]
    trial.write()
    assert trial.failing() == set()
    assert trial.verdicts()["quarantine"]["detail"] == "1 restores, 2 paths in quarantine; 1 entries seen before are found again"


LOST_WORDS = "lost: what stood here is neither in quarantine, nor in the log, nor here"
LOSSES: dict[str, dict[str, Any]] = {
    "a content": {"path": "notes/b.txt", "content": LOST},
    "a victim's content at another path": {"path": "notes/c.txt", "content": VICTIM},
    "a directory": {"path": "gone", "kind": "d"},
    "a directory where a file is": {"path": "log.txt", "kind": "d"},
    "a symlink": {"path": "gone", "kind": "l", "target": "log.txt"},
    "a symlink's target": {"path": "link", "kind": "l", "target": "notes"},
    "a FIFO": {"path": "gone", "kind": "p"},
    "a socket": {"path": "gone", "kind": "s"},
}


@pytest.mark.parametrize("item", LOSSES.values(), ids=LOSSES)
def test_what_is_nowhere_is_lost(trial: Trial, item: dict[str, Any]) -> None:
    trial.request["displaced"] = [FOUND["in quarantine"], item]
    trial.write()
    assert trial.failing() == {"quarantine"}
    verdict = trial.verdicts()["quarantine"]
    assert (verdict["path"], verdict["detail"]) == (item["path"], LOST_WORDS)


@pytest.mark.parametrize("kind", ["d", "l", "p"])
def test_whatever_kind_lies_in_quarantine_is_found_there(trial: Trial, kind: str) -> None:
    place = quarantined(trial, "gone")
    make: dict[str, Callable[[], object]] = {"d": place.mkdir, "l": lambda: place.symlink_to("nowhere"), "p": lambda: os.mkfifo(place)}
    make[kind]()
    record(trial, "gone")
    trial.request["displaced"] = [{"path": "gone", "kind": kind, "target": "nowhere"}]
    trial.write()
    assert trial.failing() == set()


def test_a_victim_is_found_below_a_directory_that_was_moved_whole(trial: Trial) -> None:
    quarantined(trial, "made/deep/x.txt").write_text("x")
    record(trial, "made/deep/x.txt")
    trial.request["displaced"] = [{"path": "made/deep/x.txt", "content": digest(b"x").hex()}, {"path": "made/deep", "kind": "d"}]
    trial.write()
    assert trial.failing() == set()


def test_what_stood_in_a_past_image_is_in_the_log(trial: Trial) -> None:
    """A symlink that a later call replaced."""
    trial.request["displaced"] = [{"path": "link", "kind": "l", "target": "before"}]
    change = next(row for row in trial.events[3].changes if row["path"] == b"link")
    trial.events[4].changes = [change]
    trial.events[3].changes = [row | {"target": b"before"} if row is change else row for row in trial.events[3].changes]
    trial.write()
    assert trial.verdicts()["quarantine"]["verdict"] == "pass"


def test_a_content_whose_blob_is_damaged_is_lost(trial: Trial) -> None:
    trial.request["displaced"] = [FOUND["in the log, at another path"]]
    trial.write()
    assert trial.failing() == set()
    tamper(trial, f"UPDATE blob SET bytes = x'00' WHERE hash = x'{A}'")
    assert "quarantine" in trial.failing()


def test_a_victim_that_the_log_records_with_other_bytes_is_lost(trial: Trial) -> None:
    """The engine's records agree with each other; only who has seen the file can tell."""
    quarantined(trial, "notes/b.txt").write_text("other")
    trial.write()
    assert trial.failing() == set()
    trial.request["displaced"] = [FOUND["in quarantine"]]
    assert trial.failing() == {"quarantine"}


def test_a_loss_is_found_though_the_log_knows_of_no_restore(trial: Trial) -> None:
    del trial.events[5:]
    trial.outputs.pop()
    trial.request |= {"expect_finished": False, "superseded": [], "reference": None, "displaced": [LOSSES["a content"]]}
    trial.write()
    assert trial.verdicts()["quarantine"]["verdict"] == "fail"


def test_an_edited_path_is_left_to_the_oracle_of_edits(trial: Trial) -> None:
    trial.request |= {"displaced": [LOSSES["a content"]], "edits": [{"path": "notes/b.txt", "content": VICTIM}]}
    trial.write()
    assert trial.failing() == set()


def test_an_entry_of_a_listing_is_an_item_as_it_is(trial: Trial) -> None:
    entry = Entry("f", 0o600, digest(b"victim"), 6, xattrs=digest(b"x"))
    trial.request["displaced"] = [{"path": "notes/b.txt", **entry_to_json(entry)}]
    trial.write()
    assert trial.failing() == set()


@pytest.mark.parametrize("item", [{"path": "a"}, {"path": "a", "kind": "l"}, {"path": "/a", "content": A}, {"content": A}], ids=str)
def test_an_item_of_a_wrong_form_is_refused(trial: Trial, item: Any) -> None:
    trial.write()
    trial.request["displaced"] = [item]
    with pytest.raises(Exception, match="wrong 'displaced'"):
        trial.verdicts()


def look(trial: Trial, **fields: Any) -> dict[str, Any]:
    """An item of `frozen`: the first driver was woken at seq 6, where its successor had started, and did nothing."""
    listing = listing_to_json(list_tree(bytes(trial.work)))
    return {"epoch": 1, "listing_before": listing, "listing_after": listing, "head_before": 6, "head_after": 6} | fields


def test_a_woken_process_that_did_nothing_passes(trial: Trial) -> None:
    trial.request["frozen"] = [look(trial), look(trial, head_after=13)]
    trial.write()
    assert trial.verdicts()["fencing"] | {"event": None} == {
        "oracle": "fencing",
        "verdict": "pass",
        "detail": "2 drivers, 1 superseded alive, 2 woken",
        "path": None,
        "expected": None,
        "found": None,
        "event": None,
    }


def changed(listing: dict[str, Any], path: str, **fields: Any) -> dict[str, Any]:
    """The listing with one entry otherwise."""
    return listing | {path: listing[path] | fields}


def test_a_workspace_that_changed_while_it_ran_fails_by_the_first_path(trial: Trial) -> None:
    before = look(trial)
    after = changed(changed(before["listing_before"], "notes/a.txt", mode=0o600), "log.txt", content=LOST)
    trial.request["frozen"] = [before, look(trial, listing_after=after)]
    trial.write()
    assert trial.failing() == {"fencing"}
    verdict = trial.verdicts()["fencing"]
    assert verdict["detail"] == "a process of epoch 1 was woken at seq 6 and the workspace changed until it ended"
    assert verdict["path"] == "log.txt"
    assert verdict["expected"] != verdict["found"] and f"content={LOST[:12]} " in verdict["found"]


@pytest.mark.parametrize("which", ["listing_before", "listing_after"])
def test_a_path_that_came_or_went_fails(trial: Trial, which: str) -> None:
    item = look(trial)
    trial.request["frozen"] = [item | {which: {path: entry for path, entry in item[which].items() if path != "link"}}]
    trial.write()
    assert (trial.failing(), trial.verdicts()["fencing"]["path"]) == ({"fencing"}, "link")


def test_an_event_of_the_old_epoch_after_its_wake_fails(trial: Trial) -> None:
    trial.request |= {"superseded": [], "frozen": [look(trial, head_before=4)]}
    trial.write()
    assert trial.failing() == {"fencing"}
    verdict = trial.verdicts()["fencing"]
    assert verdict["detail"] == "a process of epoch 1 was woken at seq 4 and its epoch still wrote"
    assert verdict["event"] == "5 attempt_started call 2"


@pytest.mark.parametrize("heads", [(6, 5), (14, 14), (13, 14)])
def test_a_log_that_lost_events_since_fails(trial: Trial, heads: tuple[int, int]) -> None:
    trial.request["frozen"] = [look(trial, head_before=heads[0], head_after=heads[1])]
    trial.write()
    assert trial.failing() == {"fencing"}
    assert trial.verdicts()["fencing"]["detail"].endswith("and the log lost events")


def test_a_look_of_a_wrong_form_is_refused(trial: Trial) -> None:
    trial.write()
    for field in look(trial):
        item = look(trial)
        del item[field]
        trial.request["frozen"] = [item]
        with pytest.raises(Exception, match="wrong 'frozen'"):
            trial.verdicts()
