"""Snapshot replay: the rest of a recorded session, run again from any settled event, comes to the same images, or says where not."""

import json
from typing import Any

from eventlog import events
from eventlog.image import Change, Entry
from recovery.rerun import read_history
from recovery.session import open_session
from tests.recovery.histories import EMPTY, History
from tests.recovery.sessions import Sandbox, bash, edit, write

CUT = "echo x > half; kill -9 $PPID; while :; do sleep 0.1; done"

CHANGED = (Change(b"a", "put", Entry("f", 0o644, bytes(32)), 0),)


def footprint(sandbox: Sandbox) -> object:
    files = {path: path.read_bytes() for path in sorted(sandbox.root.rglob("*")) if path.is_file()}
    return [one.hash for one in sandbox.events()], sandbox.ledger_path.read_bytes(), files


def test_from_every_settled_event_the_rest_comes_to_the_same_image(sandbox: Sandbox) -> None:
    """Commands, files, an exit other than 0, input, an interrupted call in the middle, which left nothing."""
    (sandbox.root / "before").write_text("before")
    calls = (
        bash("cat > a; exit 3", stdin="one\n"), write("d/b", "two", mode=0o750), bash(CUT), edit("a", "one", "three"),
        bash("ln -s a link; ln d/b d/twice; rm before; mkdir empty; cat a d/b > all"),
    )  # fmt: skip
    assert sandbox.run("run", sandbox.session(*calls, on_interrupted="continue")).code == 1
    assert sandbox.run("drive", sandbox.state).code == 0
    before = footprint(sandbox)
    driver = sandbox.run("rerun", sandbox.state, "--all", "--json", TMPDIR=str(sandbox.base))
    assert driver.code == 0, driver.out + driver.err
    found = json.loads(driver.out)
    assert [one["ran"] for one in found["runs"]] == [4, 3, 2, 2, 1, 0] and all(one["equal"] for one in found["runs"])
    assert found["not_run"] == [] and footprint(sandbox) == before, "the recorded session is only read"
    assert not list(sandbox.base.glob("crashworthy-rerun-*")), "the scratch directory is gone"


def test_the_first_difference_is_named_by_call_and_path(sandbox: Sandbox) -> None:
    """A command that looks outside comes to something else when that has changed."""
    (sandbox.base / "outer").write_text("first")
    calls = (bash("echo x > a"), bash(f"cat {sandbox.base}/outer > b"), bash("cat b > c"))
    assert sandbox.run("run", sandbox.session(*calls)).code == 0
    assert sandbox.run("rerun", sandbox.state, "--at", "1").code == 0
    (sandbox.base / "outer").write_text("second")
    driver = sandbox.run("rerun", sandbox.state, "--at", "call:1")
    assert driver.code == 1, driver.out + driver.err
    told, where, path = driver.out.splitlines()
    assert told.endswith("1 calls ran again: different") and where.startswith("call 2 came to another image than the recorded one at seq")
    assert path.startswith("changed b: content 5 -> 6 bytes") and sandbox.run("rerun", sandbox.state, "--at", "call:2").code == 0


def test_another_exit_is_a_difference(sandbox: Sandbox) -> None:
    (sandbox.base / "outer").touch()
    assert sandbox.run("run", sandbox.session(bash(f"test -e {sandbox.base}/outer"))).code == 0
    (sandbox.base / "outer").unlink()
    driver = sandbox.run("rerun", sandbox.state, "--at", "1")
    assert driver.code == 1 and "call 1 ended with exit 1, recorded is exit 0" in driver.out


def test_what_cannot_be_run_again_is_refused_by_name_before_anything_runs(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("echo ran >> $WITNESS", effects="outside"), bash("echo x > a"))
    assert sandbox.run("run", session).code == 0
    for arguments in (("--at", "1"), ("--at", "2")):
        driver = sandbox.run("rerun", sandbox.state, *arguments)
        assert driver.code == 78 and "call 1: it acts outside the workspace" in driver.sentence()
    driver = sandbox.run("rerun", sandbox.state, "--all", "--json")
    found = json.loads(driver.out)
    assert driver.code == 0 and [one["at"] for one in found["runs"]] == [4, 6] and found["not_run"][0]["at"] == 1
    assert sandbox.witnessed() == ["ran"]
    assert "--at POINT, or --all" in sandbox.run("rerun", sandbox.state).sentence()
    assert sandbox.run("rerun", sandbox.state, "--at", "3").code == 78


def test_an_outside_change_is_named_and_later_points_can_be_run(sandbox: Sandbox) -> None:
    environ = sandbox.environment(None, ())
    with open_session(sandbox.state, sandbox.root, environ=environ) as session:
        session.bash("echo x > a", key="one")
        (sandbox.root / "mine").write_text("mine")
        session.bash("cat a mine > b", key="two")
        session.bash("cat b > c", key="three")
    driver = sandbox.run("rerun", sandbox.state, "--at", "call:1")
    assert driver.code == 78 and "the workspace was changed outside any call" in driver.sentence()
    assert sandbox.run("rerun", sandbox.state, "--at", "call:2").code == 0


def test_a_redacted_input_is_refused_by_name() -> None:
    history = History()
    given: dict[str, Any] = {"tool": "bash", "run": "[redacted]"}
    history.add(events.AttemptStarted(0, 1, 1, None, "bash", given, "never", "k", "d", True, ""))
    history.add(events.CallSettled(0, 1, 1, "finished", "live", "", events.Exit("exited", code=0), None, "r", []))
    read = read_history(history.stored)
    assert "call 1: its recorded input was redacted" in read.obstacle(1) and read.obstacle(4) == ""


def test_calls_that_a_restore_undid_are_passed_over() -> None:
    history = History()
    for _ in range(2):
        history.attempt(script_index=None)
        history.settle()
    history.decide("restore_by_person", obligation=True, call=None)
    history.finish_restore()
    history.undo(2)
    assert [one.started.call for one in read_history(history.stored).calls] == [1]


def test_a_restore_stands_in_the_way_only_of_what_it_undid() -> None:
    """From its target on or before, the calls that stand come to the same images; from a point that was undone they begin elsewhere."""
    history = History()
    for _ in range(2):
        history.attempt(script_index=None)
        history.settle()
    history.decide("restore_by_person", obligation=True, call=None)
    finished = history.add(events.RestoreFinished(0, history.decision, EMPTY, 0, 0, 0, 0, 0, accepted=False), CHANGED)
    history.undo(1)
    history.undo(2)
    read = read_history(history.stored)
    assert read.obstacle(1) == "" and read.obstacle(finished) == ""
    assert read.obstacle(3) == f"seq {finished}: a restore to the image at seq 1 changed the workspace"


def test_what_a_person_took_as_it_was_found_cannot_be_run_again() -> None:
    history = History()
    history.attempt(script_index=None)
    history.settle()
    history.attempt(script_index=None)
    history.decide("restore_and_interrupt", obligation=True)
    accepted = history.add(events.RestoreFinished(0, history.decision, EMPTY, 0, 0, 0, 0, 0, accepted=True), CHANGED)
    read = read_history(history.stored)
    assert "a person took the workspace as it was found" in read.obstacle(4) and read.obstacle(accepted) == ""
    assert read.obstacle(1).startswith("call 1: how it ended is not known"), "no exit is recorded"
