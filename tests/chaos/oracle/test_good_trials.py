"""Logs that are right pass, whatever names, kinds and sizes the workspace holds; the judge leaves no trace."""

import os
import socket
import sys
from pathlib import Path

import pytest

from chaos.oracle.image import ImageFold
from chaos.oracle.judging import ORACLES, judge
from chaos.oracle.listing_json import listing_to_json
from chaos.oracle.tree import list_tree
from chaos.oracle.values import Change
from tests.chaos.oracle.conftest import build_restored
from tests.chaos.oracle.log_builder import STREAM, Trial, text_or_b64


def one_call(home: Path) -> Trial:
    """A session with a single finished call, the caller's to fill: `trial.work` is empty and the attempt has started."""
    trial = Trial(home)
    trial.request["script_length"] = 1
    trial.open()
    trial.drive()
    trial.start(1, note="start end")
    return trial


def assert_passes(trial: Trial) -> None:
    """End and write the trial; nothing but passes."""
    trial.write()
    assert {name: verdict for name, verdict in trial.verdicts().items() if verdict["verdict"] != "pass"} == {}


def test_every_oracle_passes_the_good_trial(trial: Trial) -> None:
    trial.write()
    answer = judge(trial.request)
    left_out = {"convergence", "edits", "stale", "checkpoints", "redriver"}
    verdicts = [(verdict["oracle"], verdict["verdict"]) for verdict in answer["verdicts"]]
    assert verdicts == [(name, "pass") for name in ORACLES if name not in left_out]
    assert answer["decisions"] == ["restore-and-rerun"]
    assert (answer["labels"], answer["restored"], answer["displaced"]) == ({"restore-and-rerun": 1}, 1, 2)


def test_commits_that_stand_only_in_the_wal_are_seen(trial: Trial) -> None:
    trial.write()
    assert STREAM.encode() not in trial.log.read_bytes()
    assert trial.verdicts()["chain"]["detail"].startswith("13 events")


def test_originals_and_scratch_are_left_as_they_were(trial: Trial) -> None:
    trial.write()
    files = [path for path in trial.home.rglob("*") if path.is_file() and not path.is_symlink()]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in files}
    listed = sorted(trial.home.rglob("*"))
    judge(trial.request)
    assert sorted(trial.home.rglob("*")) == listed
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in files} == before


def test_names_that_are_not_utf8_or_hold_newlines_pass(tmp_path: Path) -> None:
    trial = one_call(tmp_path / "trial")
    work = bytes(trial.work)
    for name in (b"caf\xe9", b"two\nlines", b"100%", b"a/", b"a.b", b"a-"):
        os.mkdir(work + b"/" + name) if name.endswith(b"/") else Path(os.fsdecode(work + b"/" + name)).write_bytes(name)
    Path(os.fsdecode(work + b"/a/\xff\xfe")).write_bytes(b"inside")
    os.symlink(b"\xff\n%", work + b"/dangling")
    trial.finish(1)
    trial.end()
    assert_passes(trial)


def test_hard_links_modes_fifos_and_attributes_pass(tmp_path: Path) -> None:
    trial = one_call(tmp_path / "trial")
    (trial.work / "m").write_text("shared")
    (trial.work / "sub").mkdir()
    os.link(trial.work / "m", trial.work / "sub" / "z")
    os.link(trial.work / "m", trial.work / "b")
    os.mkfifo(trial.work / "pipe", 0o640)
    os.symlink("m", trial.work / "alias")
    for name in ("pipe", "alias"):
        os.link(trial.work / name, trial.work / "sub" / name, follow_symlinks=False)
    os.chmod(trial.work / "sub", 0o1750)
    os.chmod(trial.work / "b", 0o4711)
    for name in ("user.zeta", "user.alpha"):
        os.setxattr(trial.work / "b", name, b"value\0" + name.encode())
    os.setxattr(trial.work, "user.note", b"kept")
    os.setxattr(trial.work, "user.crashworthy.root", b"identity")
    trial.finish(1)
    trial.start(2, index=1, note="start end")
    os.unlink(trial.work / "b")
    trial.finish(2)
    trial.end()
    trial.request["script_length"] = 2
    puts = {row["path"]: row["link"] for row in trial.events[-2].changes if row["op"] == "put" and row["kind"] == "f"}
    assert puts == {b"m": b"m", b"sub/z": b"m"}
    assert_passes(trial)


def test_a_directory_of_more_than_4096_entries_passes(tmp_path: Path) -> None:
    trial = one_call(tmp_path / "trial")
    (trial.work / "many").mkdir()
    for number in range(4097):
        (trial.work / "many" / str(number)).touch()
    trial.finish(1)
    trial.start(2, index=1, note="start end")
    os.unlink(trial.work / "many" / "77")
    trial.finish(2)
    trial.end()
    trial.request["script_length"] = 2
    assert_passes(trial)


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1, 3 << 20])
def test_contents_and_outputs_around_and_above_a_chunk_pass(tmp_path: Path, size: int) -> None:
    trial = one_call(tmp_path / "trial")
    (trial.work / "zeros").write_bytes(bytes(size))
    (trial.work / "noise").write_bytes(os.urandom(size))
    trial.finish(1, output=b"x" * size)
    trial.end()
    trial.request["reference_outputs"] = {"0": (b"x" * size).hex()}
    assert_passes(trial)


def test_an_image_deeper_than_the_recursion_limit_is_folded() -> None:
    depth = sys.getrecursionlimit() + 500
    paths = [b"/".join([b"d"] * level) for level in range(depth)]
    changes = tuple(Change(path, "put", "d", 0o755, None, 0, None, None, None, None, None, None, 0) for path in paths)
    image = ImageFold()
    assert image.apply(changes) == []
    assert image.root() is not None


def test_a_deep_tree_passes(tmp_path: Path) -> None:
    trial = one_call(tmp_path / "trial")
    trial.work.joinpath(*["d"] * 60).mkdir(parents=True)
    trial.finish(1)
    trial.end()
    assert_passes(trial)


def test_a_socket_passes_only_when_the_log_lists_it_as_untracked(tmp_path: Path) -> None:
    trial = one_call(tmp_path / "trial")
    with socket.socket(socket.AF_UNIX) as listener:
        place = os.open(trial.work, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{place}/sock")
        os.close(place)
        trial.finish(1, untracked=[{"path": text_or_b64(b"sock"), "kind": "socket"}])
    trial.end()
    assert_passes(trial)
    trial.events[-2].payload["untracked"] = []
    trial.write()
    verdict = trial.verdicts()["workspace-equals-log"]
    assert (verdict["verdict"], verdict["path"], verdict["expected"], verdict["found"][0]) == ("fail", "sock", "absent", "s")


def test_an_interrupted_call_passes_with_continue(tmp_path: Path) -> None:
    trial = one_call(tmp_path / "trial")
    trial.request |= {"on_interrupted": "continue", "script_length": 2}
    trial.finish(1)
    trial.start(2, policy="never", note="start")
    trial.drive()
    trial.restore(2, len(trial.events) - 2, [], restored=0)
    trial.interrupt(2)
    trial.end()
    assert_passes(trial)


def test_outside_edits_pass_when_they_were_planned(tmp_path: Path) -> None:
    trial = one_call(tmp_path / "trial")
    trial.finish(1)
    (trial.work / "edited").write_text("by hand")
    trial.append("workspace_observed", trial.observe(), root="", untracked=[])
    trial.end()
    trial.events[-2].payload["root"] = trial.events[-1].payload["root"]
    trial.request["outside_edits"] = True
    assert_passes(trial)
    trial.request["outside_edits"] = False
    assert trial.failing() == {"laundering"}


def test_optional_fields_may_be_left_out_and_mean_their_defaults(trial: Trial) -> None:
    trial.write()
    defaults = {"history": False, "converges_to": None, "converges_to_parts": None, "edits": None, "displaced": [], "frozen": []}
    assert not defaults.keys() & trial.request.keys()
    assert judge(trial.request) == judge(trial.request | defaults)


def test_equal_histories_have_equal_digests_and_other_ones_do_not(tmp_path: Path) -> None:
    one, two, three = (build_restored(tmp_path / name) for name in ("one", "two", "three"))
    for draft in two.events:
        draft.payload["at_ms"] = 99
        if draft.kind == "driver_started":
            draft.payload["identity"] = draft.payload["identity"] | {"pid": 7000 + draft.epoch, "nonce": f"other {draft.epoch}"}
    three.events[2].payload["policy"] = "safe"
    digests = []
    for built in (one, two, three):
        built.write()
        digests.append(judge(built.request)["digest"])
    assert digests[0] == digests[1] != digests[2]


def test_a_listing_is_reversible_json(tmp_path: Path) -> None:
    (tmp_path / "100%").write_text("x")
    os.link(tmp_path / "100%", os.fsencode(tmp_path) + b"/\xff")
    listing = listing_to_json(list_tree(bytes(tmp_path)))
    assert list(listing) == ["", "100%25", "%FF"]
    assert listing["%FF"]["link"] == "100%25"
    assert list_tree(bytes(tmp_path / "none")) == {}


@pytest.mark.parametrize("answer", ["rejected", "approved"])
def test_a_script_call_that_a_person_rejected_is_at_its_end(tmp_path: Path, answer: str) -> None:
    """It never begins, and what comes after it in the script may: only where the answer was that it does not run."""
    trial = Trial(tmp_path)
    trial.request["script_length"] = 2
    trial.open()
    trial.drive()
    seq = trial.append("approval_asked", call=1, script_index=0, tool="bash", input={"tool": "bash", "run": "true"})
    trial.append("approval_answered", asked_seq=seq, answer=answer, input=None, reason="")
    trial.start(1, index=1, note="start end")
    trial.finish(1)
    trial.end()
    trial.write()
    verdict = trial.verdicts()["order"]
    assert verdict["verdict"] == ("pass" if answer == "rejected" else "fail"), verdict
