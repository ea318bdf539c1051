"""The workspace root itself (rules D3, R6): lost, it is rebuilt from the log; another's, or not mounted, a person says what it is."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from eventlog import events
from recovery.facts import RootFact
from recovery.opening import read_log
from recovery.root import describe_root, observe_root
from recovery.workspace.side import read_root_identity
from tests.crash.person import begun
from tests.helpers import is_running, kill_process, wait_until
from tests.recovery.sessions import Sandbox, bash, write

STEPS = (
    "driver@2:decision.commit.before:1",
    "driver@2:decision.commit.after:1",
    "worker@2:ledger.exit.before:1",
    "driver@2:root.commit.before:1",
    "driver@2:root.commit.after:1",
    "worker@2:restore.place.move.before:1",
    "worker@2:restore.place.move.after:2",
    "driver@2:restored.syncfs.before:1",
    "driver@2:restored.commit.before:1",
    "driver@2:restored.commit.after:1",
)
CALLS = (bash("mkdir -m 700 d; echo one > a; echo x > d/x; ln a d/link; chmod 750 ."), bash("echo two > a; ln -s nowhere l"))
FILES = {"a": b"two\n", "d/x": b"x\n", "d/link": b"two\n"}


def files(root: Path) -> dict[str, bytes]:
    """Content of every regular file, links not followed."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.is_symlink()}


def lose(root: Path, *, leave_empty: bool = False) -> None:
    shutil.rmtree(root)
    if leave_empty:
        root.mkdir()


def rebuilt(sandbox: Sandbox) -> list[str]:
    """The labels of the decisions that opened an obligation."""
    return [event.label for event in sandbox.of_kind(events.RecoveryDecided) if event.obligation]


def check_whole(sandbox: Sandbox) -> None:
    assert files(sandbox.root) == FILES
    assert (sandbox.root / "a").stat().st_nlink == 2 and os.readlink(sandbox.root / "l") == "nowhere"
    assert sandbox.root.stat().st_mode & 0o7777 == 0o750 and (sandbox.root / "d").stat().st_mode & 0o7777 == 0o700
    assert not sandbox.of_kind(events.WorkspaceObserved), "a lost workspace is no outside change"


@pytest.mark.parametrize("leave_empty", [False, True], ids=["missing", "an empty directory in its place"])
def test_rule_D3_a_lost_workspace_is_rebuilt_from_the_log(sandbox: Sandbox, leave_empty: bool) -> None:
    begun(sandbox, CALLS)
    lose(sandbox.root, leave_empty=leave_empty)
    plan = sandbox.run("plan", sandbox.state)
    assert plan.code == 2 and "root_lost" in plan.out and "rebuilt from the log" in plan.out
    driver = sandbox.drive()
    assert "root_lost: workspace rebuilt to the image at seq" in driver.err
    assert rebuilt(sandbox) == ["root_lost"]
    [recorded], [finished] = sandbox.of_kind(events.RootRecorded), sandbox.of_kind(events.RestoreFinished)
    assert recorded.how == "rebuilt" and finished.restored >= len(FILES)
    assert (finished.reverted, finished.reimaged) == (0, finished.restored) and f"{finished.reimaged} paths reimaged" in driver.err
    found = read_root_identity(str(sandbox.root))
    assert found.id in (recorded.identity.id, None) and found.inode == recorded.identity.inode
    assert "moved away" not in driver.err, "nothing was there to be moved"
    check_whole(sandbox)


def test_what_is_refused_before_a_takeover_names_the_state_directory_too(sandbox: Sandbox) -> None:
    begun(sandbox, CALLS)
    for option in ("--rebuild", "--accept-root"):
        refused = sandbox.run("settle", sandbox.state, option)
        assert refused.code == 78 and "STATE_DIR" not in refused.err
        assert f"`recovery drive {sandbox.state}` recovers it" in refused.sentence()


def test_commands_of_a_state_directory_with_a_blank_can_be_copied(sandbox: Sandbox) -> None:
    begun(sandbox, CALLS)
    state = sandbox.state.rename(sandbox.base / "state of mine")
    refused = sandbox.run("settle", state, "--rebuild")
    assert f"`recovery drive '{state}'` recovers it" in refused.sentence()
    lose(sandbox.root)
    plan = sandbox.run("plan", state)
    assert f"`recovery apply '{state}'`" in plan.out


def test_rule_D3_a_lost_workspace_is_made_with_the_directories_above_it(sandbox: Sandbox) -> None:
    session = sandbox.session(*CALLS, workspace=str(sandbox.base / "deep" / "er" / "work"))
    sandbox.root = sandbox.base / "deep" / "er" / "work"
    sandbox.root.mkdir(parents=True)
    step = "driver@1:finish.commit.before:1"
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    shutil.rmtree(sandbox.base / "deep")
    sandbox.drive()
    check_whole(sandbox)


@pytest.mark.parametrize("step", STEPS)
def test_rule_D3_a_rebuild_killed_at_any_step_is_completed(sandbox: Sandbox, step: str) -> None:
    """Each crash converges to one final state, with one decision and one end."""
    begun(sandbox, CALLS)
    lose(sandbox.root)
    driver = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    sandbox.drive(epoch=3)
    assert rebuilt(sandbox) == ["root_lost"] and len(sandbox.of_kind(events.RestoreFinished)) == 1
    check_whole(sandbox)


def test_rule_D3_a_root_lost_again_while_it_is_rebuilt_is_made_again(sandbox: Sandbox) -> None:
    begun(sandbox, CALLS)
    lose(sandbox.root)
    step = "worker@2:restore.place.move.after:2"
    driver = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    lose(sandbox.root)
    sandbox.drive(epoch=3)
    assert rebuilt(sandbox) == ["root_lost"] and "complete_rebuild" in sandbox.labels()
    assert len(sandbox.of_kind(events.RootRecorded)) == 2
    check_whole(sandbox)


def test_rule_D3_a_call_after_which_the_root_is_gone_is_never_adopted(sandbox: Sandbox) -> None:
    """Its policy allows it to run again, and it would only do the same again: it ends interrupted, with that reason, after one start."""
    session = sandbox.session(
        bash("echo keep > keep"), bash('echo start >> "$WITNESS"; rm -rf "$PWD"', policy="safe"), bash("echo on > on"),
        on_interrupted="continue",
    )  # fmt: skip
    first = sandbox.run("run", session)
    assert first.code == 1 and "root_lost" in first.err and "drive again" in first.err
    sandbox.drive()
    assert rebuilt(sandbox) == ["root_lost_by_call"]
    assert sandbox.settled() == [(1, 1, "finished", "live"), (2, 1, "interrupted", "root_lost_by_call"), (3, 1, "finished", "live")]
    assert "root was gone after the call" in sandbox.of_kind(events.CallSettled)[1].reason
    assert sandbox.witness.read_text() == "start\n"
    assert files(sandbox.root) == {"keep": b"keep\n", "on": b"on\n"}


def test_rule_D3_a_command_that_runs_on_in_a_lost_workspace_is_killed_not_claimed(sandbox: Sandbox) -> None:
    script = 'echo half > half; echo $$ >> "$WITNESS"; while [ ! -e "$GATE" ]; do sleep 0.05; done; echo late > late'
    session = sandbox.session(bash("echo keep > keep"), bash(script), on_interrupted="continue")
    driver = sandbox.start("run", session, epoch=1)
    wait_until(lambda: sandbox.witness.exists() and sandbox.witness.read_text().endswith("\n"), "the command's start")
    command = int(sandbox.witness.read_text())
    kill_process(driver.pid)
    lose(sandbox.root)
    assert is_running(command)
    sandbox.drive(epoch=2)
    assert not is_running(command)
    assert rebuilt(sandbox) == ["root_lost"]
    assert sandbox.settled()[1] == (2, 1, "interrupted", "interrupt_restored")
    assert files(sandbox.root) == {"keep": b"keep\n"}


def test_rule_D3_a_claim_is_condemned_when_the_root_is_lost_after_it(sandbox: Sandbox) -> None:
    """The root goes between the takeover, which claimed the command, and the look at the facts."""
    script = 'echo $$ >> "$WITNESS"; while [ ! -e "$GATE" ]; do sleep 0.05; done; echo late > late'
    session = sandbox.session(bash("echo keep > keep"), bash(script), on_interrupted="continue")
    driver = sandbox.start("run", session, epoch=1)
    wait_until(lambda: sandbox.witness.exists() and sandbox.witness.read_text().endswith("\n"), "the command's start")
    command = int(sandbox.witness.read_text())
    kill_process(driver.pid)
    step = "driver@2:gather.before:1"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.wait(step, second)
    assert is_running(command)
    lose(sandbox.root)
    sandbox.steps.release(step)
    assert second.end() == 0, second.err
    assert not is_running(command) and rebuilt(sandbox) == ["root_lost"]
    assert sandbox.settled()[1] == (2, 1, "interrupted", "interrupt_restored")
    assert files(sandbox.root) == {"keep": b"keep\n"}


def test_rule_D3_a_cut_call_that_may_run_again_does_after_the_rebuild(sandbox: Sandbox) -> None:
    (sandbox.root / "keep").write_text("keep")
    step = "shim.1@1:ended:1"
    session = sandbox.session(bash('echo start >> "$WITNESS"; cp keep done', policy="after-restore"))
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    assert driver.end() == 1
    lose(sandbox.root)
    sandbox.drive()
    assert sandbox.labels() == ["root_lost", "rerun_restored"] and sandbox.settled() == [(1, 2, "finished", "live")]
    assert files(sandbox.root) == {"keep": b"keep", "done": b"keep"} and sandbox.witness.read_text() == "start\nstart\n"


def replaced(sandbox: Sandbox) -> dict[str, bytes]:
    """A session whose workspace was moved away, and another directory put in its place."""
    begun(sandbox, CALLS)
    sandbox.root.rename(sandbox.base / "away")
    sandbox.root.mkdir()
    (sandbox.root / "mine").write_text("a person's own")
    (sandbox.root / "a").write_text("another a")
    return files(sandbox.root)


def test_rule_D3_another_directory_in_its_place_is_left_alone_and_both_ways_out_are_named(sandbox: Sandbox) -> None:
    before = replaced(sandbox)
    driver = sandbox.drive(expect=78)
    last = driver.err.splitlines()[-1]
    assert "root_replaced" in last and f"recovery settle {sandbox.state} --rebuild" in last and "--accept-root" in last
    assert files(sandbox.root) == before and not rebuilt(sandbox)
    assert read_root_identity(str(sandbox.root)).id is None, "it was not even marked"
    shutil.rmtree(sandbox.root)
    (sandbox.base / "away").rename(sandbox.root)
    sandbox.drive()
    check_whole(sandbox)


def test_rule_D3_a_person_has_a_replaced_workspace_rebuilt_and_nothing_in_it_is_lost(sandbox: Sandbox) -> None:
    replaced(sandbox)
    done = sandbox.run("settle", sandbox.state, "--rebuild")
    assert done.code == 0 and "recovery drive" in done.err and done.out == ""
    assert rebuilt(sandbox) == ["rebuild_by_person"]
    check_whole(sandbox)
    seq = next(stored.seq for stored in sandbox.events() if isinstance(stored.event, events.RecoveryDecided) and stored.event.obligation)
    copy = sandbox.base / "copy"
    assert sandbox.run("quarantine", "checkout", sandbox.state, str(seq), copy).code == 0
    kept = {path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert {b"a person's own", b"another a"} < kept, "and how the root was before"
    sandbox.drive()
    check_whole(sandbox)


@pytest.mark.parametrize("step", ["driver@2:decision.commit.before:1", "driver@2:decision.commit.after:1"])
def test_rule_D3_a_persons_rebuild_that_is_killed_is_not_begun_or_completed(sandbox: Sandbox, step: str) -> None:
    before = replaced(sandbox)
    driver = sandbox.start("settle", sandbox.state, "--rebuild", epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    if step.endswith("before:1"):
        assert sandbox.drive(expect=78).err.count("root_replaced") == 1 and files(sandbox.root) == before
        assert sandbox.run("settle", sandbox.state, "--rebuild").code == 0
    sandbox.drive()
    assert rebuilt(sandbox) == ["rebuild_by_person"]
    check_whole(sandbox)


def test_rule_D3_a_person_accepts_a_replaced_root_and_it_is_an_outside_change(sandbox: Sandbox) -> None:
    replaced(sandbox)
    done = sandbox.run("settle", sandbox.state, "--accept-root")
    assert done.code == 0, done.err
    assert [event.how for event in sandbox.of_kind(events.RootRecorded)] == ["accepted"]
    sandbox.drive()
    assert sandbox.labels() == ["record_outside"]
    assert files(sandbox.root) == {"mine": b"a person's own", "a": b"another a"}
    assert read_log(str(sandbox.state)).image.keys() == {b"", b"mine", b"a"}


def test_rule_D3_no_other_root_is_accepted_under_an_open_call(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("echo keep > keep"), bash("echo half > half"), on_interrupted="continue")
    step = "driver@1:outcome.commit.before:2"
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    sandbox.root.rename(sandbox.base / "away")
    sandbox.root.mkdir()
    (sandbox.root / "mine").write_text("mine")
    refused = sandbox.run("settle", sandbox.state, "--accept-root")
    assert refused.code == 78 and "call 2 is open" in refused.err and "--rebuild" in refused.err
    assert files(sandbox.root) == {"mine": b"mine"} and not sandbox.of_kind(events.RootRecorded)
    assert sandbox.run("settle", sandbox.state, "--rebuild").code == 0
    assert sandbox.settled()[1] == (2, 1, "interrupted", "rebuild_by_person")
    assert files(sandbox.root) == {"keep": b"keep\n"}


def test_rule_R6_the_old_root_is_another_one_after_a_rebuild(sandbox: Sandbox) -> None:
    """Moved away and rebuilt: what comes back later is not taken for the workspace, whatever it was before."""
    begun(sandbox, (*CALLS, bash("true")))
    sandbox.root.rename(sandbox.base / "away")
    step = "driver@2:finish.commit.before:1"
    driver = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    sandbox.root.rename(sandbox.base / "rebuilt")
    (sandbox.base / "away").rename(sandbox.root)
    assert "root_replaced" in sandbox.drive(expect=78).err
    sandbox.root.rename(sandbox.base / "away")
    (sandbox.base / "rebuilt").rename(sandbox.root)
    sandbox.drive()
    check_whole(sandbox)


@pytest.mark.parametrize("option", ["--rebuild", "--accept-root"])
def test_a_workspace_that_is_the_sessions_own_needs_no_word(sandbox: Sandbox, option: str) -> None:
    begun(sandbox, CALLS)
    refused = sandbox.run("settle", sandbox.state, option)
    assert refused.code == 78 and "session's own directory" in refused.err.splitlines()[-1] and "Traceback" not in refused.err
    assert not sandbox.labels()


@pytest.mark.parametrize("option", ["--rebuild", "--accept-root"])
def test_a_word_that_is_not_needed_ends_no_command_that_runs(sandbox: Sandbox, option: str) -> None:
    """The takeover used to condemn it before the word was refused."""
    script = 'echo $$ >> "$WITNESS"; while [ ! -e "$GATE" ]; do sleep 0.05; done; echo late > late'
    driver = sandbox.start("run", sandbox.session(bash(script)), epoch=1)
    wait_until(lambda: sandbox.witness.exists() and sandbox.witness.read_text().endswith("\n"), "the command's start")
    kill_process(driver.pid)
    assert sandbox.run("settle", sandbox.state, option).code == 78
    assert is_running(int(sandbox.witness.read_text()))
    sandbox.gate.touch()
    sandbox.drive()
    assert sandbox.settled() == [(1, 1, "finished", "reattach")] or sandbox.settled() == [(1, 1, "finished", "adopt_exit")]


def test_nothing_is_accepted_where_nothing_is(sandbox: Sandbox) -> None:
    begun(sandbox, CALLS)
    lose(sandbox.root)
    refused = sandbox.run("settle", sandbox.state, "--accept-root")
    assert refused.code == 78 and "missing or empty" in refused.err.splitlines()[-1] and not sandbox.root.exists()


@pytest.mark.parametrize("options", [(), ("--rebuild", "--accept-root"), ("--processes-dead", "--rebuild")])
def test_one_thing_is_settled_at_a_time(sandbox: Sandbox, options: tuple[str, ...]) -> None:
    begun(sandbox, CALLS)
    head = len(sandbox.events())
    refused = sandbox.run("settle", sandbox.state, *options)
    assert refused.code == 78 and "one thing" in refused.sentence() and len(sandbox.events()) == head


def test_a_lost_workspace_without_a_script_is_rebuilt_by_its_image_command(sandbox: Sandbox) -> None:
    """Commands of a person recover first as well."""
    (sandbox.root / "f").write_text("f")
    assert sandbox.run("image", sandbox.state, "--workspace", sandbox.root, "--new").code == 0
    lose(sandbox.root)
    assert sandbox.run("settle", sandbox.state, "--rebuild").code == 0
    assert files(sandbox.root) == {"f": b"f"}
    lose(sandbox.root)
    taken = sandbox.run("image", sandbox.state, "--workspace", sandbox.root)
    assert taken.code == 0, taken.err
    assert files(sandbox.root) == {"f": b"f"} and rebuilt(sandbox) == ["rebuild_by_person", "root_lost"]


def test_a_persons_restore_of_a_lost_workspace_says_what_comes_first(sandbox: Sandbox) -> None:
    begun(sandbox, CALLS)
    lose(sandbox.root)
    refused = sandbox.run("restore", sandbox.state, "--at", "1", "--workspace", sandbox.root)
    assert refused.code == 1 and "root_lost" in refused.sentence() and not sandbox.root.exists()
    assert sandbox.run("settle", sandbox.state, "--rebuild").code == 0
    assert sandbox.run("restore", sandbox.state, "--at", "1", "--workspace", sandbox.root).code == 0
    assert files(sandbox.root) == {}


def test_rule_R6_a_workspace_whose_file_system_may_not_be_mounted_is_not_rebuilt_unasked(sandbox: Sandbox) -> None:
    """The session says it began on another file system than the one that is under the missing root now."""
    begun(sandbox, CALLS)
    state = read_log(str(sandbox.state))
    elsewhere = events.RootIdentity(state.root_identity.id, 1, 1, "0")
    moved = msgspec.structs.replace(state, root_recorded=elsewhere)
    shutil.rmtree(sandbox.root)
    assert observe_root(str(sandbox.root), moved) is RootFact.UNMOUNTED
    said = describe_root(RootFact.UNMOUNTED, str(sandbox.root), moved)
    assert "root_unmounted" in said and "mount it" in said and "--rebuild" in said
    sandbox.root.mkdir()
    assert observe_root(str(sandbox.root), moved) is RootFact.UNMOUNTED
    (sandbox.root / "x").touch()
    assert observe_root(str(sandbox.root), moved) is RootFact.OTHER
    assert observe_root(str(sandbox.root / "x"), moved) is RootFact.OTHER, "a file is in its place"


def test_rule_D3_a_command_goes_on_while_its_workspace_is_only_out_of_sight(sandbox: Sandbox) -> None:
    """Moved away under a running command, another directory in its place: the drive stops, the command lives and is reattached to."""
    script = 'echo $$ >> "$WITNESS"; while [ ! -e "$GATE" ]; do sleep 0.05; done; echo late > late'
    driver = sandbox.start("run", sandbox.session(bash(script)), epoch=1)
    wait_until(lambda: sandbox.witness.exists() and sandbox.witness.read_text().endswith("\n"), "the command's start")
    kill_process(driver.pid)
    sandbox.root.rename(sandbox.base / "away")
    sandbox.root.mkdir()
    (sandbox.root / "mine").touch()
    assert "root_replaced" in sandbox.drive(expect=78).err
    assert is_running(int(sandbox.witness.read_text()))
    shutil.rmtree(sandbox.root)
    (sandbox.base / "away").rename(sandbox.root)
    sandbox.gate.touch()
    sandbox.drive()
    assert files(sandbox.root) == {"late": b"late\n"} and sandbox.settled() == [(1, 1, "finished", sandbox.labels()[0])]


def test_rule_R6_a_write_call_goes_on_in_a_rebuilt_root(sandbox: Sandbox) -> None:
    """The file worker serves the new root: the side directory and the identity are those of the rebuilt one."""
    session = sandbox.session(bash("echo one > one"), write("two", "two"), write("three", "three"))
    step = "driver@1:intent.commit.before:3"
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    lose(sandbox.root)
    sandbox.drive()
    assert files(sandbox.root) == {"one": b"one\n", "two": b"two", "three": b"three"}
