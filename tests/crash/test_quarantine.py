"""`recovery quarantine`: what a restore displaced is listed, shown, copied out and deleted, and by nothing else deleted."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from eventlog import events
from tests.crash.person import begun, finish, restore
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox, bash

SIDE = ".crashworthy-"


def displaced(sandbox: Sandbox) -> int:
    """A session that a person restored to its first outcome: `a` and `b` are in quarantine; the decision's seq."""
    restore(sandbox, begun(sandbox))
    return next(stored.seq for stored in sandbox.events() if stored.event.kind == "recovery_decided")


def kept(sandbox: Sandbox) -> list[str]:
    """Every path below the rounds of the quarantine's decision directories, these too."""
    found = [path for side in sandbox.base.glob(f"{SIDE}*/quarantine/*") for path in side.rglob("*")]
    names = (str(path).partition("/quarantine/")[2].partition("/")[2] for path in found)
    return sorted(name for name in names if name != "1.attributes")


def test_list_and_show_say_what_the_directories_hold(sandbox: Sandbox) -> None:
    seq = displaced(sandbox)
    listed = sandbox.run("quarantine", "list", sandbox.state, "--json")
    (row,) = json.loads(listed.out)["decisions"]
    assert (row["decision_seq"], row["rounds"], row["paths"], row["bytes"], row["is_open"]) == (seq, 1, 2, 8, False), row
    assert row["label"] == "restore_by_person" and row["at_ms"] and row["recorded_paths"] == 2
    next(sandbox.base.glob(f"{SIDE}*/quarantine/*/1/b")).unlink()  # the directory is the truth, not the event
    shown = json.loads(sandbox.run("quarantine", "show", sandbox.state, str(seq), "--json").out)
    assert shown["paths"] == [{"round": 1, "path": "a", "kind": "file", "bytes": 4}]
    lines = sandbox.run("quarantine", "show", sandbox.state, str(seq)).out.splitlines()
    assert lines[0].split() == ["file", "4", "1/a"]


def test_a_restore_names_the_command_that_shows_what_it_displaced(sandbox: Sandbox) -> None:
    answer = restore(sandbox, begun(sandbox))
    line = answer.out.splitlines()[-1]
    command = line.partition("`recovery ")[2].rstrip("`").split()
    assert command[:2] == ["quarantine", "show"], line
    assert sandbox.run(*command).code == 0


def test_checkout_copies_with_attributes_and_links_and_moves_nothing(sandbox: Sandbox) -> None:
    seq = displaced(sandbox)
    place = next(sandbox.base.glob(f"{SIDE}*/quarantine/*/1"))
    (place / "d").mkdir()
    (place / "d" / "one").write_text("x" * 10)
    os.link(place / "d" / "one", place / "d" / "two")
    (place / "d" / "out").symlink_to("/etc/passwd")
    os.mkfifo(place / "d" / "pipe", 0o640)
    os.mknod(place / "d" / "sock", stat.S_IFSOCK | 0o600)
    (place / "d" / "sparse").touch()
    os.truncate(place / "d" / "sparse", 1 << 30)
    os.chmod(place / "d" / "one", 0o451)
    os.utime(place / "d" / "one", ns=(5, 123456789))
    os.chmod(place / "d", 0o550)
    os.utime(place / "d", ns=(5, 987654321))
    before = kept(sandbox)
    out = sandbox.base / "out"
    done = sandbox.run("quarantine", "checkout", sandbox.state, str(seq), out, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["paths"] == 8 and [node["path"] for node in answer["left_out"]] == ["d/sock"], answer
    assert (out / "1" / "a").read_bytes() == b"two\n"
    one, two = (out / "1" / "d" / "one").stat(), (out / "1" / "d" / "two").stat()
    assert (one.st_ino, one.st_mode & 0o7777, one.st_mtime_ns) == (two.st_ino, 0o451, 123456789)
    assert os.readlink(out / "1" / "d" / "out") == "/etc/passwd" and stat.S_ISFIFO((out / "1" / "d" / "pipe").lstat().st_mode)
    sparse = (out / "1" / "d" / "sparse").stat()
    assert sparse.st_size == 1 << 30 and sparse.st_blocks * 512 < 1 << 20
    directory = (out / "1" / "d").stat()
    assert (directory.st_mode & 0o7777, directory.st_mtime_ns) == (0o550, 987654321)
    assert kept(sandbox) == before and not list(sandbox.base.glob(".recovery-quarantine-unfinished-*"))
    os.chmod(out / "1" / "d", 0o750)
    os.chmod(place / "d", 0o750)


def test_rule_R3_what_was_changed_in_place_is_shown_and_directories_get_it_in_a_checkout(sandbox: Sandbox) -> None:
    for name in ("d", "d/e"):
        (sandbox.root / name).mkdir()
    (sandbox.root / "d" / "f").write_text("stays")
    set_one = f"{sys.executable} -c 'import os; os.setxattr(\"d\", \"user.k\", b\"v\")'"
    first = begun(sandbox, (bash("true"), bash(f"chmod 0711 d; chmod 0640 d/f; {set_one}; touch -d @77.5 d/e; touch -d @78 .")))
    restore(sandbox, first)
    seq = next(stored.seq for stored in sandbox.events() if stored.event.kind == "recovery_decided")
    shown = json.loads(sandbox.run("quarantine", "show", sandbox.state, str(seq), "--json").out)
    rows = {row["path"]: row for row in shown["in_place"]}
    assert shown["paths"] == [] and rows.keys() == {"", "d", "d/e", "d/f"}, shown
    assert rows["d"] | {"mtime_ns": 0} == {
        "round": 1, "path": "d", "kind": "directory", "mode": 0o711, "mtime_ns": 0, "owner": [os.geteuid(), os.getegid()],
        "xattrs": [{"name": "user.k", "value": "v"}], "acl": [],
    }  # fmt: skip
    assert (rows["d/f"]["mode"], rows["d/e"]["mtime_ns"], rows[""]["mtime_ns"]) == (0o640, 77_500_000_000, 78_000_000_000)
    lines = sandbox.run("quarantine", "show", sandbox.state, str(seq)).out.splitlines()
    assert any(line.startswith("in place  directory 1/d: was mode 0711, ") and line.endswith(", user.k") for line in lines), lines
    (row,) = json.loads(sandbox.run("quarantine", "list", sandbox.state, "--json").out)["decisions"]
    assert (row["paths"], row["changed_in_place"]) == (0, 4)
    out = sandbox.base / "out"
    assert sandbox.run("quarantine", "checkout", sandbox.state, str(seq), out).code == 0
    assert (stat.S_IMODE((out / "1" / "d").stat().st_mode), os.getxattr(out / "1" / "d", "user.k")) == (0o711, b"v")
    assert (out / "1" / "d" / "e").stat().st_mtime_ns == 77_500_000_000 and (out / "1").stat().st_mtime_ns == 78_000_000_000
    assert b"ZC9m" in (out / "1.attributes").read_bytes(), "of a file that stayed where it was: d/f in base64"


def test_rule_R3_what_a_killed_round_left_is_not_what_was_there_before(sandbox: Sandbox) -> None:
    """Killed after `d` was changed back and before `e` was: the first round's record tells of both."""
    for name in ("d", "e"):
        (sandbox.root / name).mkdir(mode=0o755)
    first = begun(sandbox, (bash("true"), bash("chmod 0711 d; chmod 0700 e")))
    step = "worker@2:restore.finish.attributes.after:1"
    driver = sandbox.start("restore", sandbox.state, "--at", str(first), "--workspace", sandbox.root, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    assert driver.end() == 1
    restore(sandbox, first)
    seq = next(stored.seq for stored in sandbox.events() if stored.event.kind == "recovery_decided")
    shown = json.loads(sandbox.run("quarantine", "show", sandbox.state, str(seq), "--json").out)
    assert {row["path"]: row["mode"] for row in shown["in_place"] if row["path"]} == {"d": 0o711, "e": 0o700}, shown


@pytest.mark.parametrize("where", ["work/new", "state/new", "there", "nowhere/new"])
def test_a_checkout_that_cannot_be_is_one_sentence_and_makes_nothing(sandbox: Sandbox, where: str) -> None:
    seq = displaced(sandbox)
    (sandbox.base / "there").mkdir()
    target = sandbox.base / where
    refused = sandbox.run("quarantine", "checkout", sandbox.state, str(seq), target)
    assert refused.code == 78 and str(target) in refused.sentence()
    assert not (sandbox.root / "new").exists() and not (sandbox.state / "new").exists() and not list((sandbox.base / "there").iterdir())


@pytest.mark.parametrize("verb", ["show", "checkout", "empty"])
def test_a_decision_with_nothing_in_quarantine_is_refused_by_name(sandbox: Sandbox, verb: str) -> None:
    displaced(sandbox)
    more = [sandbox.base / "new"] if verb == "checkout" else []
    refused = sandbox.run("quarantine", verb, sandbox.state, "1", *more)
    assert refused.code == 78 and "decision 1 has nothing in quarantine" in refused.sentence()
    assert kept(sandbox) == ["1", "1/a", "1/b"]


def test_empty_deletes_under_a_takeover_and_leaves_a_note(sandbox: Sandbox) -> None:
    seq = displaced(sandbox)
    outside = sandbox.base / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    place = next(sandbox.base.glob(f"{SIDE}*/quarantine/*/1"))
    (place / "way-out").symlink_to(outside)
    (place / "closed").mkdir()
    (place / "closed" / "in").touch()
    os.chmod(place / "closed", 0)
    log = sandbox.log.read_bytes()
    dry = sandbox.run("quarantine", "empty", sandbox.state, "--dry-run")
    assert dry.code == 2 and "would delete 4 paths, 8 bytes" in dry.out and sandbox.log.read_bytes() == log
    done = sandbox.run("quarantine", "empty", sandbox.state, str(seq))
    assert done.code == 0 and "deleted 4 paths, 8 bytes" in done.out, done.out + done.err
    assert kept(sandbox) == [] and (outside / "precious").read_text() == "mine"
    (note,) = sandbox.of_kind(events.Noted)
    assert f"decision {seq} emptied" in note.text
    (row,) = json.loads(sandbox.run("quarantine", "list", sandbox.state, "--json").out)["decisions"]
    assert (row["paths"], row["recorded_paths"]) == (0, 2)
    head = len(sandbox.events())
    assert sandbox.run("quarantine", "empty", sandbox.state).code == 0 and len(sandbox.events()) == head
    sandbox.drive("--on-interrupted", "reissue")
    assert read_contents(sandbox.root) == {"a": b"two\n", "b": b"new\n"}


STEPS = ("quarantine.empty.unlink.before:1", "quarantine.empty.unlink.after:1", "quarantine.empty.rmdir.before:1",
         "quarantine.empty.rmdir.after:1", "quarantine.empty.sync.before:1")  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("victim", ["worker", "driver"])
def test_an_empty_killed_at_a_step_is_ended_by_the_next_one(sandbox: Sandbox, step: str, victim: str) -> None:
    seq = displaced(sandbox)
    name = f"worker@9:{step}"
    driver = sandbox.start("quarantine", "empty", sandbox.state, str(seq), epoch=9, wait=(name,))
    if victim == "worker":
        sandbox.steps.kill(name, driver)
        assert driver.end() == 1 and "Traceback" not in driver.err
    else:
        sandbox.steps.wait(name, driver)
        driver.kill()
    # The next one ends a worker that still stands at its step (condemned), and what was left is deleted.
    again = sandbox.run("quarantine", "empty", sandbox.state)
    assert again.code == 0, again.err
    assert kept(sandbox) == []
    sandbox.drive("--on-interrupted", "continue")
    assert read_contents(sandbox.root) == {"a": b"one\n"}


def test_nothing_of_an_open_restore_is_deleted(sandbox: Sandbox) -> None:
    seq = begun(sandbox)
    name = "driver@2:restored.commit.before:1"
    driver = sandbox.start("restore", sandbox.state, "--at", str(seq), "--workspace", sandbox.root, epoch=2, wait=(name,))
    sandbox.steps.kill(name, driver)
    driver.end()
    before, log = kept(sandbox), sandbox.log.read_bytes()
    assert before
    for arguments in (["empty", sandbox.state], ["empty", sandbox.state, "--dry-run"]):
        refused = sandbox.run("quarantine", *arguments)
        assert refused.code == 78 and "is open and nothing of it is deleted" in refused.sentence()
    (row,) = json.loads(sandbox.run("quarantine", "list", sandbox.state, "--json").out)["decisions"]
    assert row["is_open"] and row["paths"] == 2 and row["at_ms"] is None
    assert kept(sandbox) == before and sandbox.log.read_bytes() == log


def test_a_finished_session_is_emptied_without_an_event(sandbox: Sandbox) -> None:
    displaced(sandbox)
    finish(sandbox)
    log = sandbox.log.read_bytes()
    done = sandbox.run("quarantine", "empty", sandbox.state)
    assert done.code == 0, done.err
    assert kept(sandbox) == [] and sandbox.log.read_bytes() == log
    assert not list(sandbox.holders.glob("*.json"))


def test_a_finished_session_whose_workspace_another_holds_is_refused(sandbox: Sandbox) -> None:
    displaced(sandbox)
    finish(sandbox)
    assert sandbox.run("image", sandbox.base / "other", "--workspace", sandbox.root, "--new").code == 0
    refused = sandbox.run("quarantine", "empty", sandbox.state)
    assert refused.code == 78 and "is held by session:" in refused.sentence() and kept(sandbox)


def test_a_stale_epoch_deletes_nothing(sandbox: Sandbox) -> None:
    displaced(sandbox)
    refused = sandbox.run("quarantine", "empty", sandbox.state, epoch=1)
    assert refused.code == 75 and kept(sandbox) == ["1", "1/a", "1/b"]


def test_calls_beside_a_log_that_is_none_are_one_sentence(sandbox: Sandbox) -> None:
    for verb in (["list"], ["show", "3"], ["empty"]):
        refused = sandbox.run("quarantine", verb[0], sandbox.base / "nothing", *verb[1:])
        assert refused.code == 78 and "no log is there" in refused.sentence()


def test_a_crash_quarantine_is_listed_too(sandbox: Sandbox) -> None:
    """What recovery displaced by itself, not a person's restore."""
    (sandbox.root / "a").write_text("kept\n")
    session = sandbox.session(bash("echo half > a; kill -9 $PPID; sleep 60"))
    assert sandbox.run("run", session).code == 1
    sandbox.drive("--on-interrupted", "continue")
    (row,) = json.loads(sandbox.run("quarantine", "list", sandbox.state, "--json").out)["decisions"]
    assert (row["label"], row["paths"]) == ("restore_and_interrupt", 1)
    assert Path(sandbox.root, "a").read_text() == "kept\n"
