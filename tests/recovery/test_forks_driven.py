"""Forks in a space of their own, and sessions that were moved, are driven like any session; nothing of the parent is touched."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import events
from eventlog.errors import MisuseError
from eventlog.image import root_hash
from eventlog.ports import SystemClock
from eventlog.reader import Reader
from eventlog.verify import verify
from recovery.contents import Contents
from recovery.journal import only_stream, read_state
from recovery.opening import find_vault
from recovery.session import open_session
from recovery.workspace.side import read_root_identity
from tests.helpers import read_contents, wait_until
from tests.recovery.sessions import PROJECT, Driver, Sandbox, bash, write

CALLS = (bash("echo one >> log"), write("d/a", "hello"), bash("cat d/a >> log; ln log twice"))
ENDS = {"log": b"one\nhello", "twice": b"one\nhello", "d": None, "d/a": b"hello"}


def finished(sandbox: Sandbox) -> None:
    """A session whose script has run to its end."""
    assert sandbox.run("run", sandbox.session(*CALLS)).code == 0


def fork(sandbox: Sandbox, name: str, at: str, expect: int = 0) -> Driver:
    """A fork in `name` and `name`-work beside the parent."""
    places = ("--state", sandbox.base / name, "--workspace", sandbox.base / f"{name}-work")
    driver = sandbox.run("fork", sandbox.state, "--at", at, "--name", name, *places)
    assert driver.code == expect, driver.out + driver.err
    return driver


def drive(sandbox: Sandbox, name: str, expect: int = 0) -> Driver:
    driver = sandbox.run("drive", sandbox.base / name)
    assert driver.code == expect, driver.out + driver.err
    return driver


def stored_of(state: Path, stream: str) -> list[events.Event]:
    """Every event of one stream, and the whole log found sound."""
    reader = Reader.open(str(state / "log.sqlite"))
    try:
        assert not verify(reader).findings
        return [stored.event for stored in reader.events(stream)]  # type: ignore[arg-type]
    finally:
        reader.close()


def footprint(sandbox: Sandbox) -> object:
    """All of the parent that a fork could touch."""
    ledger = sandbox.ledger_path.read_bytes()
    return [one.hash for one in sandbox.events()], ledger, read_contents(sandbox.root), read_root_identity(str(sandbox.root))


@pytest.mark.parametrize("at", ["1", "call:1", "call:2", "call:3", "head"])
def test_rule_C9_a_fork_is_driven_in_a_space_of_its_own(sandbox: Sandbox, at: str) -> None:
    finished(sandbox)
    before = footprint(sandbox)
    fork(sandbox, "f", at)
    drive(sandbox, "f")
    assert read_contents(sandbox.base / "f-work") == ENDS == read_contents(sandbox.root)
    assert footprint(sandbox) == before, "nothing of the parent is touched"
    said = stored_of(sandbox.base / "f", "f")
    log_id = Reader.open(str(sandbox.base / "f" / "log.sqlite")).log_id
    keys = [event.key for event in said if isinstance(event, events.AttemptStarted)]
    assert all(key.startswith(f"{log_id}/f/") for key in keys) and len(keys) == {"1": 3, "call:1": 2, "call:2": 1}.get(at, 0)
    assert sum(isinstance(event, events.RestoreFinished) for event in said) == 1 and said[-1].kind == "session_finished"
    ids = {read_root_identity(str(root)).id for root in (sandbox.root, sandbox.base / "f-work")}
    assert len(ids) == 2, "the fork's root has an identity of its own"


def test_two_forks_run_at_once_beside_their_parent(sandbox: Sandbox) -> None:
    """All three hold their command at the gate in the same moment."""
    run = "echo began $CALL_KEY >> $WITNESS; until test -e $GATE; do sleep 0.05; done; echo x > done"
    session = sandbox.session(bash("echo one > a"), bash(run))
    parent = sandbox.start("run", session)
    wait_until(lambda: len(sandbox.witnessed()) == 1, "the parent's command")
    for name in ("f", "g"):
        fork(sandbox, name, "call:1")
    drivers = [parent, *(sandbox.start("drive", sandbox.base / name) for name in ("f", "g"))]
    wait_until(lambda: len(sandbox.witnessed()) == 3, "the commands of both forks, while the parent's runs")
    assert [driver.code for driver in drivers] == [None] * 3
    sandbox.open_gate()
    assert [driver.end() for driver in drivers] == [0, 0, 0]
    for root in (sandbox.root, sandbox.base / "f-work", sandbox.base / "g-work"):
        assert read_contents(root) == {"a": b"one\n", "done": b"x\n"}
    assert len(set(sandbox.witnessed())) == 3, "each has keys of its own"


FORK_STEPS = (
    "driver@0:bundle.write.after:1",
    "driver@0:bundle.move.before:1",
    "driver@0:bundle.move.after:1",
    "driver@0:blobs.commit.locked:1",
    "driver@0:import.commit.before:1",
    "driver@0:import.commit.after:1",
    "driver@0:log.create.link.before:1",
    "driver@0:log.create.link.after:1",
    "driver@0:fork.bundle.unlink.before:1",
    "driver@0:holder.rename.after:1",
    "driver@0:place.commit.before:1",
    "driver@0:place.commit.locked:1",
    "driver@0:place.commit.after:1",
)


@pytest.mark.parametrize("step", FORK_STEPS)
def test_a_fork_killed_at_any_step_is_made_by_being_run_again(sandbox: Sandbox, step: str) -> None:
    finished(sandbox)
    before = footprint(sandbox)
    places = ("--state", sandbox.base / "f", "--workspace", sandbox.base / "f-work")
    driver = sandbox.start("fork", sandbox.state, "--at", "call:2", "--name", "f", *places, wait=(step,))
    sandbox.steps.kill(step, driver)
    assert driver.end() == -9
    for _ in range(2):
        fork(sandbox, "f", "call:2")
    drive(sandbox, "f")
    assert read_contents(sandbox.base / "f-work") == ENDS and footprint(sandbox) == before
    assert not list((sandbox.base / "f").glob("fork.bundle*")), "the history is in the log now"
    assert [event.kind for event in stored_of(sandbox.base / "f", "f")].count("session_placed") == 1


DRIVE_STEPS = (
    "driver@1:floor.raised:1",
    "driver@1:decision.commit.after:1",
    "worker@1:restore.place.move.after:1",
    "driver@1:restored.commit.before:1",
)


@pytest.mark.parametrize("step", DRIVE_STEPS)
def test_a_fork_whose_first_driver_is_killed_is_driven_on(sandbox: Sandbox, step: str) -> None:
    finished(sandbox)
    fork(sandbox, "f", "call:2")
    driver = sandbox.start("drive", sandbox.base / "f", epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    drive(sandbox, "f")
    assert read_contents(sandbox.base / "f-work") == ENDS


def test_a_fork_of_a_session_from_python_knows_its_results_and_inputs(sandbox: Sandbox) -> None:
    environ = sandbox.environment(None, ())
    run = "echo ran >> $WITNESS; echo out; echo err >&2; echo x > a"
    with open_session(sandbox.state, sandbox.root, environ=environ) as session:
        first = session.bash(run, key="one", separate=True)
        session.ask("step-2", lambda: {"run": "b"})
        session.bash("echo y > b", key="two")
    fork(sandbox, "f", "call:1")
    with open_session(sandbox.base / "f", environ=environ) as session:
        again = session.bash(run, key="one", separate=True)
        assert (again.exit, again.stdout, again.stderr, again.root) == (first.exit, first.stdout, first.stderr, first.root)
        assert again.is_recorded and again.changed is None and session.result("two") is None
        assert session.inputs == (), "the fork begins before the input"
        assert session.bash("echo z > b", key="two").ok
    assert sandbox.witnessed() == ["ran"] and read_contents(sandbox.base / "f-work") == {"a": b"x\n", "b": b"z\n"}
    fork(sandbox, "g", "head")
    with open_session(sandbox.base / "g", environ=environ) as session:
        assert session.ask("step-2", dict) == {"run": "b"} and session.result("two") is not None


def test_a_fork_of_a_fork_is_driven_too(sandbox: Sandbox) -> None:
    finished(sandbox)
    fork(sandbox, "f", "call:1")
    drive(sandbox, "f")
    places = ("--state", sandbox.base / "g", "--workspace", sandbox.base / "g-work")
    second = sandbox.run("fork", sandbox.base / "f", "--session", "f", "--at", "call:2", "--name", "g", *places)
    assert second.code == 0, second.err
    drive(sandbox, "g")
    assert read_contents(sandbox.base / "g-work") == ENDS


def run_eventlog(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "eventlog", *map(str, arguments)], check=True, capture_output=True, cwd=PROJECT)


def moved_away(sandbox: Sandbox) -> Path:
    """A session that was cut and moved into a bundle, of which nothing is left but that; the state directory that it was imported into."""
    session = sandbox.session(*CALLS)
    step = "driver@1:intent.commit.before:2"
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    run_eventlog("export", sandbox.state, "--move", "--to", sandbox.base / "bundle")
    shutil.rmtree(sandbox.state)
    shutil.rmtree(sandbox.root)
    elsewhere = sandbox.base / "elsewhere"
    run_eventlog("import", elsewhere, sandbox.base / "bundle", "--new")
    return elsewhere


def test_a_moved_session_is_driven_elsewhere_from_the_bundle_alone(sandbox: Sandbox) -> None:
    elsewhere = moved_away(sandbox)
    refused = sandbox.run("drive", elsewhere)
    assert refused.code == 78 and f"`recovery place {elsewhere} --workspace DIR`" in refused.sentence()
    placed = sandbox.run("place", elsewhere, "--workspace", sandbox.base / "there", "--json", SESSION_HOLDERS_DIR=str(sandbox.base / "h2"))
    assert placed.code == 0 and json.loads(placed.out)["is_new"] is True
    driven = sandbox.run("drive", elsewhere, SESSION_HOLDERS_DIR=str(sandbox.base / "h2"))
    assert driven.code == 0, driven.err
    assert read_contents(sandbox.base / "there") == ENDS


REBUILD_STEPS = (
    "driver@9:decision.commit.before:1",
    "driver@9:decision.commit.after:1",
    "driver@9:root.commit.before:1",
    "worker@9:restore.place.move.after:1",
    "driver@9:restored.syncfs.before:1",
    "driver@9:restored.commit.before:1",
    "driver@9:restored.commit.after:1",
)


BY_PERSON = tuple(step for step in REBUILD_STEPS if "root.commit" not in step)
"""A person's rebuild records the root in the commit of its decision."""


@pytest.mark.parametrize(
    ("how", "step"), [*(("drive", step) for step in REBUILD_STEPS), *(("settle --rebuild", step) for step in BY_PERSON)]
)
def test_a_workspace_rebuilt_from_a_bundle_alone_is_whole_wherever_that_is_cut(sandbox: Sandbox, how: str, step: str) -> None:
    elsewhere, there, registry = moved_away(sandbox), sandbox.base / "there", {"SESSION_HOLDERS_DIR": str(sandbox.base / "h2")}
    assert sandbox.run("place", elsewhere, "--workspace", there, **registry).code == 0
    verb, *options = how.split()
    driver = sandbox.start(verb, elsewhere, *options, epoch=9, wait=(step,), **registry)
    sandbox.steps.kill(step, driver)
    driver.end()
    again = sandbox.run("drive", elsewhere, **registry)
    assert again.code == 0, again.err
    decided = [event.label for event in stored_of(elsewhere, "nightly") if isinstance(event, events.RecoveryDecided) and event.obligation]
    assert len(decided) == 1 and decided[0] in ("root_lost", "rebuild_by_person")
    assert read_contents(there) == ENDS


def test_what_a_repair_made_is_forked_and_driven_whatever_its_file_is_called(sandbox: Sandbox) -> None:
    """eventlog/README, "After a repair": NEWFILE is a name of the person's choice."""
    finished(sandbox)
    made = sandbox.base / "salvaged.db"
    run_eventlog("doctor", sandbox.state, "--repair", made)
    places = ("--state", sandbox.base / "f", "--workspace", sandbox.base / "f-work")
    opened = sandbox.events()[0].event
    assert isinstance(opened, events.SessionOpened)
    forked = sandbox.run("fork", made, "--session", opened.name, "--at", "head", *places)
    assert forked.code == 0, forked.out + forked.err
    drive(sandbox, "f")
    assert read_contents(sandbox.base / "f-work") == ENDS


def test_what_cannot_be_placed_or_forked_is_refused_in_one_sentence(sandbox: Sandbox) -> None:
    finished(sandbox)
    own = sandbox.run("place", sandbox.state, "--workspace", sandbox.base / "x")
    assert own.code == 78 and "has its workspace" in own.sentence()
    (sandbox.base / "full").mkdir()
    (sandbox.base / "full" / "mine").touch()
    places = ("--state", sandbox.base / "f", "--workspace", sandbox.base / "full")
    full = sandbox.run("fork", sandbox.state, "--at", "head", *places)
    assert full.code == 78 and "has something in it" in full.sentence() and not (sandbox.base / "f").exists()
    inside = sandbox.run("fork", sandbox.state, "--at", "head", "--state", sandbox.base / "f", "--workspace", sandbox.base / "f" / "w")
    assert inside.code == 78 and "lies inside the state directory" in inside.sentence()
    open_call = sandbox.run("fork", sandbox.state, "--at", "3", "--state", sandbox.base / "f", "--workspace", sandbox.base / "f-work")
    assert open_call.code == 78 and "cannot be forked at seq 3" in open_call.sentence() and not (sandbox.base / "f").exists()
    fork(sandbox, "g", "call:1")
    other = sandbox.run("fork", sandbox.state, "--at", "call:2", "--state", sandbox.base / "g", "--workspace", sandbox.base / "g2")
    assert other.code == 78 and "holds another session" in other.sentence()
    moved = sandbox.run("place", sandbox.base / "g", "--workspace", sandbox.base / "g3")
    assert moved.code == 78 and "for good" in moved.sentence()
    held = sandbox.run("fork", sandbox.state, "--at", "head", "--state", sandbox.base / "i", "--workspace", sandbox.base / "g-work")
    assert held.code == 78 and "held by session:g" in held.sentence()


def test_rule_S1_a_fork_s_workspace_is_claimed_when_it_is_placed(sandbox: Sandbox) -> None:
    finished(sandbox)
    fork(sandbox, "f", "call:1")
    assert not os.path.exists(sandbox.base / "f-work"), "the first drive makes it"
    (sandbox.base / "f-work").mkdir()
    (sandbox.base / "f-work" / "mine").write_text("mine")
    replaced = drive(sandbox, "f", expect=78)
    assert "is not the session's own directory" in replaced.sentence()
    assert read_contents(sandbox.base / "f-work") == {"mine": b"mine"}


def in_store(sandbox: Sandbox, **more: object) -> None:
    """A session that has finished, whose files are in its checkpoint store alone."""
    assert sandbox.run("run", sandbox.session(*CALLS, mode="checkpoint", **more)).code == 0


def export(sandbox: Sandbox, program: str, *more: str, expect: int = 0) -> str:
    """Run an export of the session into `bundle`; its last line."""
    command = [sys.executable, "-m", program, "export", str(sandbox.state), "--to", str(sandbox.base / "bundle"), *more]
    done = subprocess.run(command, capture_output=True, cwd=PROJECT, text=True)
    assert done.returncode == expect, done.stderr
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def test_the_log_alone_gives_no_bundle_of_a_session_whose_files_are_in_a_checkpoint_store(sandbox: Sandbox) -> None:
    """Refused by name with nothing made and nothing moved, and the command that can is named."""
    in_store(sandbox)
    before, there = footprint(sandbox), set(os.listdir(sandbox.base))
    for more in ((), ("--move",)):
        assert "`recovery export` takes what is missing" in export(sandbox, "eventlog", *more, expect=2)
    assert footprint(sandbox) == before and set(os.listdir(sandbox.base)) == there


@pytest.mark.parametrize("at", ["call:1", "call:2", "head"])
def test_rule_C9_a_fork_takes_its_files_from_the_parents_checkpoint_store(sandbox: Sandbox, at: str) -> None:
    in_store(sandbox)
    before, store = footprint(sandbox), sorted((sandbox.state / "checkpoints").rglob("*"))
    fork(sandbox, "f", at)
    assert footprint(sandbox) == before and sorted((sandbox.state / "checkpoints").rglob("*")) == store, "nothing of the parent is touched"
    shutil.move(sandbox.state / "checkpoints", sandbox.base / "away")
    drive(sandbox, "f")
    assert read_contents(sandbox.base / "f-work") == ENDS, "the fork needs nothing of its parent any more"
    assert not [said for said in stored_of(sandbox.base / "f", "f") if isinstance(said, events.CallUndone)]


def test_contents_of_an_image_without_a_checkpoint_are_not_to_be_had(sandbox: Sandbox) -> None:
    """The sentence names the way out. (Which images have none is the cost model's affair: the root here is that of no image.)"""
    in_store(sandbox)
    reader = Reader.open(str(sandbox.state / "log.sqlite"))
    try:
        state, _ = read_state(reader, only_stream(reader))
        contents = Contents(reader, find_vault(state, "", SystemClock()))
        contents.check(state, root_hash(state.image, state.profile.excludes).hex(), state.image, state.head_seq)
        with pytest.raises(MisuseError, match="no checkpoint was taken of the image there; `recovery checkpoints list"):
            contents.check(state, "0" * 64, state.image, state.head_seq)
    finally:
        reader.close()


@pytest.mark.parametrize("loss", ["store", "content"])
def test_damage_in_the_store_stops_a_fork_before_anything_is_made(sandbox: Sandbox, loss: str) -> None:
    in_store(sandbox)
    store = sandbox.state / "checkpoints"
    if loss == "store":
        shutil.rmtree(store)
    else:
        for path in (store / "contents").rglob("*"):
            if path.is_file():
                path.chmod(0o600)
                path.write_bytes(b"other")
    refused = fork(sandbox, "f", "call:2", expect=78)
    assert ("SESSION_CHECKPOINTS" if loss == "store" else "is damaged") in refused.sentence()
    there = set(os.listdir(sandbox.base))
    assert not [name for name in there if name.startswith("f")]
    export(sandbox, "recovery", expect=78)
    export(sandbox, "recovery", "--move", expect=78)
    assert set(os.listdir(sandbox.base)) == there and not [one for one in sandbox.events() if isinstance(one.event, events.SessionMoved)]


@pytest.mark.parametrize("move", [False, True])
def test_a_session_with_a_checkpoint_store_goes_on_from_a_bundle_alone(sandbox: Sandbox, tmp_path: Path, move: bool) -> None:
    """On another machine there is neither its log nor its store nor its workspace."""
    in_store(sandbox)
    export(sandbox, "recovery", *(["--move"] if move else []))
    for one in (sandbox.state, sandbox.root):
        shutil.rmtree(one)
    other = sandbox.base / "other"
    taken = [sys.executable, "-m", "eventlog", "import", str(other), str(sandbox.base / "bundle"), "--new", "--as", "f"]
    subprocess.run(taken, check=True, cwd=PROJECT)
    assert sandbox.run("place", other, "--workspace", sandbox.base / "other-work").code == 0
    drive(sandbox, "other")
    assert read_contents(sandbox.base / "other-work") == ENDS


def test_the_same_moved_bundle_comes_again_from_the_store(sandbox: Sandbox) -> None:
    in_store(sandbox)
    export(sandbox, "recovery", "--move")
    first = (sandbox.base / "bundle").read_bytes()
    (sandbox.base / "bundle").unlink()
    export(sandbox, "recovery", "--move")
    assert (sandbox.base / "bundle").read_bytes() == first


def test_a_session_with_a_checkpoint_store_is_run_again_from_every_settled_event(sandbox: Sandbox) -> None:
    in_store(sandbox)
    before, store = footprint(sandbox), sorted((sandbox.state / "checkpoints").rglob("*"))
    done = sandbox.run("rerun", sandbox.state, "--all", "--json")
    told = json.loads(done.out)
    ran = [(one["ran"], one["equal"]) for one in told["runs"]]
    assert done.code == 0 and not told["not_run"] and ran == [(number, True) for number in (3, 2, 1, 0)]
    assert footprint(sandbox) == before and sorted((sandbox.state / "checkpoints").rglob("*")) == store


def test_a_fork_of_a_session_that_switched_takes_checkpoints_of_its_own(sandbox: Sandbox) -> None:
    """All contents of its image are in the log, and the parent's checkpoint is not the fork's."""
    calls = (bash("echo one > a"), bash("ln a b; ln a c"), bash("echo two > d"))
    assert sandbox.run("run", sandbox.session(*calls, mode="auto", limits={"paths": 2})).code == 0
    assert [event.mode for event in sandbox.of_kind(events.ModeSwitched)] == ["checkpoint"]
    taken = next(stored.seq for stored in sandbox.events() if isinstance(stored.event, events.CheckpointTaken))
    fork(sandbox, "other", str(taken))
    drive(sandbox, "other")
    assert read_contents(sandbox.base / "other-work") == {"a": b"one\n", "b": b"one\n", "c": b"one\n", "d": b"two\n"}
    forked, *others = stored_of(sandbox.base / "other", "other")
    assert isinstance(forked, events.SessionForked) and forked.checkpoints is not None
    assert (forked.mode, forked.checkpoints.manifest) == ("checkpoint", "")
    assert [event for event in others if isinstance(event, events.CheckpointTaken)]
