"""What `recovery image`, `restore`, `quarantine list`, `drive` say of what they did is what the log and the directories hold."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import events
from tests.crash.person import begun, restore
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox, Zygote, bash, sandbox_directory
from tests.recovery.workspace.support import run_with_own_mounts


def image(sandbox: Sandbox, *more: str, expect: int = 0) -> dict[str, object]:
    done = sandbox.run("image", sandbox.state, "--workspace", sandbox.root, "--json", *more)
    assert done.code == expect, done.out + done.err
    answer: dict[str, object] = json.loads(done.out)
    return answer


def decision(sandbox: Sandbox) -> int:
    return next(stored.seq for stored in sandbox.events() if isinstance(stored.event, events.RecoveryDecided) and stored.event.obligation)


# Restores


def test_a_restore_that_completes_an_older_one_says_so_and_the_counts_are_the_whole_restores(sandbox: Sandbox) -> None:
    calls = (bash("echo one > a; echo one > b; mkdir d; echo one > d/c"), bash("echo two > a; echo two > b; echo two > d/c; touch extra"))
    first = begun(sandbox, calls)
    step = "worker@2:restore.place.move.after:2"
    driver = sandbox.start("restore", sandbox.state, "--at", str(first), "--workspace", sandbox.root, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    assert driver.end() == 1
    again = sandbox.run("restore", sandbox.state, "--at", str(first), "--workspace", sandbox.root, "--json")
    answer = json.loads(again.out)
    assert answer["completed"] == {"decision_seq": decision(sandbox), "at": first, "restored": 3, "displaced": 4}, answer
    assert (answer["differs"], answer["decision_seq"]) == (False, None)
    (finished,) = sandbox.of_kind(events.RestoreFinished)
    assert (finished.restored, finished.displaced) == (3, 4), "of the whole restore, not of what was left of it"
    assert read_contents(sandbox.root) == {"a": b"one\n", "b": b"one\n", "d": None, "d/c": b"one\n"}
    assert sandbox.run("restore", sandbox.state, "--at", str(first), "--workspace", sandbox.root).out.startswith("nothing to restore: ")


def test_for_people_a_completed_restore_has_a_line_of_its_own(sandbox: Sandbox) -> None:
    first = begun(sandbox)
    step = "worker@2:restore.displace.move.after:1"
    driver = sandbox.start("restore", sandbox.state, "--at", str(first), "--workspace", sandbox.root, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    assert driver.end() == 1
    lines = restore(sandbox, first).out.splitlines()
    seq = decision(sandbox)
    assert lines[0] == f"completed: the restore decided at seq {seq}, image at seq {first}, 1 paths, 2 moves to quarantine", lines
    assert lines[1].startswith("nothing more to restore: ") and f"quarantine show {sandbox.state} {seq}" in lines[2]


def test_a_dry_run_over_a_deep_tree_has_lines_to_be_read_and_all_in_json(sandbox: Sandbox) -> None:
    begun(sandbox)
    descriptor = os.open(sandbox.root, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("0123456789", dir_fd=descriptor)
        below = os.open("0123456789", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    seq = image(sandbox)["seq"]
    shutil.rmtree(sandbox.root / "0123456789")
    order = ("restore", sandbox.state, "--at", str(seq), "--workspace", sandbox.root, "--dry-run")
    dry = sandbox.run(*order)
    assert dry.code == 2 and max(map(len, dry.out.splitlines())) < 300
    assert "..." in dry.out and "(6599 bytes)" in dry.out
    full = json.loads(sandbox.run(*order, "--json").out)
    assert max(map(len, full["plan"])) > 6599


# Images


def test_an_image_counts_what_the_log_shows(sandbox: Sandbox) -> None:
    begun(sandbox)
    (sandbox.root / "new").write_text("x")
    answer = image(sandbox)
    environment = {**os.environ, **sandbox.environment(None, ())}
    command = [sys.executable, "-m", "eventlog", "show", str(sandbox.state), "--json"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert answer["changed"] == sum(line["changes"] for line in shown if line["seq"] > shown[-1]["seq"] - 3) == 2
    assert image(sandbox)["changed"] == 0


def test_what_no_image_holds_is_recorded_though_nothing_else_changed(sandbox: Sandbox) -> None:
    """And the restore to that event leaves it where it is."""
    begun(sandbox)
    before = len(sandbox.of_kind(events.WorkspaceObserved))
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(sandbox.root)
        try:
            server.bind("sock")
        finally:
            os.chdir("/")
    root = image(sandbox)["root"]
    observed = sandbox.of_kind(events.WorkspaceObserved)
    assert len(observed) == before + 1 and observed[-1].root == root
    assert [(one.path, one.kind) for one in observed[-1].untracked] == [("sock", "socket")]
    seq = sandbox.events()[-1].seq
    image(sandbox)
    assert len(sandbox.of_kind(events.WorkspaceObserved)) == before + 1
    (sandbox.root / "later").touch()
    restore(sandbox, seq)
    assert (sandbox.root / "sock").exists() and not (sandbox.root / "later").exists()
    environment = {**os.environ, **sandbox.environment(None, ())}
    subprocess.run([sys.executable, "-m", "eventlog", "verify", str(sandbox.state)], env=environment, check=True, capture_output=True)


def test_an_empty_exclude_pattern_is_refused_in_words(sandbox: Sandbox) -> None:
    for pattern in ("", "  "):
        refused = sandbox.run("image", sandbox.state, "--workspace", sandbox.root, "--new", "--exclude", pattern)
        assert refused.code == 78 and "an exclude pattern is empty; leave it out" in refused.sentence()
        assert not sandbox.state.exists()


def test_an_image_without_room_for_its_state_says_so_and_is_taken_when_there_is_some() -> None:
    run_with_own_mounts(image_on_a_full_state_directory)


def image_on_a_full_state_directory() -> None:
    Zygote._process = None  # the one of the test process lives among its mounts
    with sandbox_directory() as base:
        sandbox = Sandbox(base)
        sandbox.state.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(sandbox.state)], check=True)
        try:
            seq = begun(sandbox)
            (sandbox.root / "new").write_bytes(os.urandom(100_000))
            fill(sandbox.state / "ballast")
            before = [stored.hash for stored in sandbox.events()]
            refused = sandbox.run("image", sandbox.state, "--workspace", sandbox.root)
            said = refused.err.splitlines()
            assert refused.code == 1 and len(said) == 1 and "room" in said[0] and "recovery image" in said[0], refused.err
            assert [stored.hash for stored in sandbox.events()][: len(before)] == before
            (sandbox.state / "ballast").unlink()
            assert image(sandbox)["changed"] == 2
            restore(sandbox, seq)
        finally:
            sandbox.close()
            subprocess.run(["umount", "--lazy", str(sandbox.state)], check=False)
            if Zygote._process is not None:
                Zygote._process.kill()
                Zygote._process.wait()


def fill(path: Path) -> None:
    """A file that takes all the room there is, to the last page."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass


# Quarantine


def test_a_quarantine_that_was_emptied_is_told_from_one_that_is_lost(sandbox: Sandbox) -> None:
    restore(sandbox, begun(sandbox))
    seq = decision(sandbox)
    (side,) = sandbox.base.glob(".crashworthy-*")

    def state() -> tuple[str, str]:
        (row,) = json.loads(sandbox.run("quarantine", "list", sandbox.state, "--json").out)["decisions"]
        return row["state"], sandbox.run("quarantine", "list", sandbox.state).out

    assert state()[0] == "kept"
    side.rename(sandbox.base / "elsewhere")
    told, line = state()
    assert told == "lost" and "lost (it held 2 paths): not in any side directory" in line
    (sandbox.base / "elsewhere").rename(side)
    assert sandbox.run("quarantine", "empty", sandbox.state, str(seq)).code == 0
    told, line = state()
    assert told == "emptied" and "emptied (it held 2 paths)" in line


# The root


@pytest.mark.parametrize(("how", "code"), [("-a", 0), ("-r", 78)])
def test_rule_R6_a_copy_of_the_root_with_its_attributes_is_the_root_and_one_without_is_not(sandbox: Sandbox, how: str, code: int) -> None:
    """As recovery/README says what is told apart and what is not: the random id decides wherever the root has one."""
    begun(sandbox)
    sandbox.root.rename(sandbox.base / "original")
    if not has_attributes(sandbox.base / "original"):
        pytest.skip("this file system keeps no attributes")
    subprocess.run(["cp", how, str(sandbox.base / "original"), str(sandbox.root)], check=True)
    done = sandbox.run("image", sandbox.state, "--workspace", sandbox.root)
    assert done.code == code, done.err
    assert code == 0 or done.sentence().startswith("recovery: root_replaced: ")


def has_attributes(root: Path) -> bool:
    try:
        os.getxattr(root, "user.crashworthy.root")
    except OSError:
        return False
    return True


# A session without a script


def test_a_drive_recovers_a_session_without_a_script_and_does_not_finish_it(sandbox: Sandbox) -> None:
    image(sandbox, "--new")
    (sandbox.root / "mine").write_text("by hand\n")
    refused = sandbox.run("drive", sandbox.state)
    assert refused.code == 78 and f"`recovery drive {sandbox.state} --finish` ends it for good" in refused.err.splitlines()[-1]
    assert sandbox.labels() == ["record_outside"] and not sandbox.of_kind(events.SessionFinished)
    assert f"`recovery drive {sandbox.state} --finish` ends it" in sandbox.run("plan", sandbox.state).out
    other = sandbox.run("image", sandbox.base / "other", "--workspace", sandbox.root, "--new")
    assert other.code == 78 and f"`recovery drive {sandbox.state}` (with `--finish` if" in other.sentence()
    restore(sandbox, 1)
    sandbox.drive("--finish")
    assert len(sandbox.of_kind(events.SessionFinished)) == 1
    assert sandbox.run("image", sandbox.base / "other", "--workspace", sandbox.root, "--new").code == 0
