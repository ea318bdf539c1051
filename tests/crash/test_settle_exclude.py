"""A path that cannot be read keeps a call open (C5); `recovery settle --exclude` leaves it out of the images from then on."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.oracle.laundering import root_aimed_at
from chaos.oracle.load import load_log
from chaos.oracle.values import hex_of
from eventlog import events
from eventlog.image import Entry, Image
from recovery.opening import read_log
from recovery.workspace.left_out import without
from tests.crash.person import begun
from tests.helpers import read_contents
from tests.recovery.sessions import Driver, Sandbox, bash


def settle(sandbox: Sandbox, path: str, expect: int = 0) -> Driver:
    done = sandbox.run("settle", sandbox.state, "--exclude", path)
    assert done.code == expect and "Traceback" not in done.err, done.out + done.err
    return done


def verify(sandbox: Sandbox) -> None:
    environment = {**os.environ, **sandbox.environment(None, ())}
    subprocess.run([sys.executable, "-m", "eventlog", "verify", str(sandbox.state)], env=environment, check=True, capture_output=True)


def hidden(sandbox: Sandbox, **settings: Any) -> None:
    """A call that ends with a directory that its driver, a user without privileges, cannot read; three scans failed."""
    if os.geteuid() == 0:
        sandbox.user = 65534
        for path in (sandbox.base, sandbox.root):
            os.chown(path, sandbox.user, sandbox.user)
        sandbox.steps.path.chmod(0o777)
    run = "mkdir -p d/hidden; echo x > d/hidden/x; echo two > b; chmod 000 d/hidden"
    session = sandbox.session(bash("echo one > a; mkdir d; echo y > d/y"), bash(run), bash("echo three > c"), **settings)
    first = sandbox.run("run", session)
    assert first.code == 1, first.err
    sandbox.drive(expect=1)


def test_rule_C5_a_path_that_cannot_be_read_is_left_out_and_the_call_adopted(sandbox: Sandbox) -> None:
    hidden(sandbox)
    stopped = sandbox.drive(expect=78).sentence()
    assert "cannot read d/hidden: Permission denied" in stopped
    assert f"`recovery settle {sandbox.state} --exclude PATH`" in stopped and "`--undo`" in stopped
    settle(sandbox, "d/hidden")
    assert not sandbox.settled() or [call for call, _, _, _ in sandbox.settled()] == [1], "the call is as open as before"
    sandbox.drive()
    assert sandbox.settled()[1] == (2, 1, "finished", "adopt_exit") and sandbox.labels() == ["exclude_by_person", "adopt_exit"]
    assert (sandbox.root / "d" / "hidden").stat().st_mode & 0o777 == 0, "nothing touched it"
    image = read_log(str(sandbox.state)).image
    assert b"b" in image and b"d/y" in image and not any(name.startswith(b"d/hidden") for name in image)
    verify(sandbox)


def test_rule_C5_a_path_that_cannot_be_read_does_not_keep_a_lost_ledger_from_being_made_anew(sandbox: Sandbox) -> None:
    """Else nobody could ever leave it out: that is an act of a driver that has a ledger."""
    hidden(sandbox)
    sandbox.ledger_path.unlink()
    assert sandbox.run("settle", sandbox.state, "--processes-dead").code == 0, "as it must be under the mark of a user without privileges"
    settle(sandbox, "d/hidden")
    sandbox.drive("--on-interrupted", "continue")
    assert sandbox.labels() == ["ledger_lost", "exclude_by_person", "restore_and_interrupt"]
    assert sandbox.settled()[1][:3] == (2, 1, "interrupted") and len(sandbox.of_kind(events.SessionFinished)) == 1
    verify(sandbox)


def test_rule_C5_where_images_are_in_checkpoints_the_way_out_that_is_named_leads_out(sandbox: Sandbox) -> None:
    """Nothing can be left out of them: neither sentence names what the other refuses, and what both name ends it."""
    hidden(sandbox, mode="checkpoint")
    way_out = f"make the path readable, or move it out of the workspace; `recovery drive {sandbox.state}` then goes on"
    stopped = sandbox.drive(expect=78).sentence()
    assert stopped.endswith(way_out) and "settle" not in stopped
    assert settle(sandbox, "d/hidden", expect=78).sentence().endswith(way_out)
    (sandbox.root / "d" / "hidden").rename(sandbox.base / "hidden")
    sandbox.drive()
    assert sandbox.settled()[1] == (2, 1, "finished", "adopt_exit")


@pytest.mark.parametrize("path", ["d", "d/x"])
def test_what_is_left_out_leaves_the_image_and_is_never_touched_again(sandbox: Sandbox, path: str) -> None:
    first = begun(sandbox, (bash("mkdir d; echo x > d/x; echo y > d/y; echo one > a"), bash("echo two > a")))
    settle(sandbox, str(sandbox.root / path))
    [decided], [observed] = sandbox.of_kind(events.RecoveryDecided), sandbox.of_kind(events.WorkspaceObserved)
    assert (decided.label, decided.facts["excluded"]) == ("exclude_by_person", path)
    assert decided.facts["paths"] == (3 if path == "d" else 1)
    verify(sandbox)
    assert sandbox.run("apply", sandbox.state).code == 0
    assert sandbox.of_kind(events.WorkspaceObserved) == [observed], "what is there is no outside change"
    (sandbox.root / "d" / "x").write_text("changed")
    assert sandbox.run("apply", sandbox.state).code == 0
    assert sandbox.of_kind(events.WorkspaceObserved) == [observed]
    done = sandbox.run("restore", sandbox.state, "--at", str(first), "--workspace", sandbox.root)
    assert done.code == 0 and (sandbox.root / "a").read_text() == "one\n" and (sandbox.root / "d" / "y").read_text() == "y\n"
    sandbox.drive("--on-interrupted", "continue")
    assert (sandbox.root / "d" / "x").read_text() == "changed"


def test_a_restore_to_an_image_from_before_an_exclude_leaves_the_path_alone(sandbox: Sandbox) -> None:
    first = begun(sandbox, (bash("mkdir d; echo x > d/x; ln d/x d/y; echo one > a"), bash("echo two > a; rm d/y")))
    settle(sandbox, "d/x")
    (sandbox.root / "d" / "x").write_text("mine")
    done = sandbox.run("restore", sandbox.state, "--at", str(first), "--workspace", sandbox.root)
    assert done.code == 0, done.err
    assert read_contents(sandbox.root) == {"a": b"one\n", "d": None, "d/x": b"mine", "d/y": b"x\n"}
    assert read_log(str(sandbox.state)).obligation is None
    verify(sandbox)
    stream = next(iter(load_log(str(sandbox.log), str(sandbox.base)).streams.values()))
    [decided] = [event for event in stream.events if event.payload.get("obligation")]
    assert hex_of(root_aimed_at(stream, decided)) == decided.payload["target_root"] != hex_of(stream.root_at(first))


@pytest.mark.parametrize("path", [".", "..", "/etc/passwd", "d/../.."])
def test_what_is_not_below_the_workspace_is_not_excluded(sandbox: Sandbox, path: str) -> None:
    begun(sandbox)
    before = [stored.hash for stored in sandbox.events()]
    assert "name a path below the workspace" in settle(sandbox, path, expect=78).sentence()
    assert [stored.hash for stored in sandbox.events()] == before


def test_a_path_is_excluded_once_and_not_while_a_restore_is_open(sandbox: Sandbox) -> None:
    step = "shim.2@1:ended:1"
    session = sandbox.session(bash("echo one > a"), bash("echo two > a"), on_interrupted="continue")
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    settle(sandbox, "b")
    assert "it is excluded already" in settle(sandbox, "b", expect=78).sentence()
    step = "worker@9:restore.displace.move.after:1"
    second = sandbox.start("drive", sandbox.state, epoch=9, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    assert "--exclude: the restore decided at seq" in settle(sandbox, "a", expect=78).sentence()
    sandbox.drive()
    assert read_contents(sandbox.root) == {"a": b"one\n"}


def test_a_session_file_of_the_same_session_is_the_same_after_an_exclude(sandbox: Sandbox) -> None:
    begun(sandbox)
    settle(sandbox, "later")
    assert sandbox.run("run", Path(sandbox.base, "session.toml")).code == 0


FILE = Entry("f", 0o644, bytes(32))


@pytest.mark.parametrize(
    ("names", "path", "left"),
    [
        ("abc", b"a", {b"b": b"b", b"c": b"b"}),
        ("abc", b"b", {b"a": b"a", b"c": b"a"}),
        ("ab", b"a", {b"b": None}),
        ("ab", b"b", {b"a": None}),
    ],
)
def test_a_group_of_hard_links_goes_on_without_the_names_it_loses(names: str, path: bytes, left: dict[bytes, bytes | None]) -> None:
    linked: Image = {name.encode(): replace(FILE, link=names[0].encode()) for name in names}
    image = {b"": Entry("d", 0o755, None), **linked, b"other": FILE}
    after = without(image, [path])
    assert {name: entry.link for name, entry in after.items() if name not in (b"", b"other")} == left
    assert after[b"other"] == FILE


def test_nothing_is_left_out_of_a_session_with_checkpoints(sandbox: Sandbox) -> None:
    """Its images have their contents in the store, and a checkpoint without the path cannot be made while the workspace cannot be read."""
    step = "shim.2@1:ended:1"
    calls = (bash("echo one > a; echo x > x"), bash("echo two > a; echo changed > x; echo new > new"))
    driver = sandbox.start("run", sandbox.session(*calls, on_interrupted="continue", mode="checkpoint"), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    assert "calls since an older checkpoint are done again" in settle(sandbox, "x", expect=78).sentence()
    sandbox.drive()
    assert read_contents(sandbox.root) == {"a": b"one\n", "x": b"x\n"} and sandbox.labels() == ["restore_and_interrupt"]
