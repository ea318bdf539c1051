"""Mode checkpoint (rule C7): killed at every step of a call's checkpoint, with the workspace lost, with damaged checkpoints."""

import fcntl
import shutil
from pathlib import Path
from typing import Any

import pytest

from eventlog import events
from eventlog.ports import RandomIds
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import ContentId, Epoch, StreamId
from eventlog.writer import Writer
from recovery.checkpoints.directory import DirectoryStore, open_store
from recovery.script import TOOL_RUN
from tests.helpers import is_running, read_contents, wait_until
from tests.recovery.sessions import Sandbox, Table, bash, write
from tests.recovery.space.test_outsiders import begun as running_beside
from tests.recovery.space.test_outsiders import daemon_starts

CALLS = (bash("echo one >> log"), bash("echo two >> log; mkdir d; echo x > d/x"), bash("echo three >> log"))
WHOLE = {"log": b"one\ntwo\nthree\n", "d": None, "d/x": b"x\n"}
CHECKPOINT_STEPS = (
    "checkpoint.content.write.half:1", "checkpoint.content.sync.before:1", "checkpoint.content.sync.after:1",
    "checkpoint.content.sync.after:2", "checkpoint.names.sync.before:2", "checkpoint.names.sync.after:2",
    "checkpoint.content.rename.before:1", "checkpoint.content.rename.after:1", "checkpoint.content.rename.after:2",
    "checkpoint.names.sync.after:4", "checkpoint.manifest.write.half:2", "checkpoint.manifest.sync.before:3",
    "checkpoint.manifest.sync.after:3", "checkpoint.manifest.rename.before:2", "checkpoint.manifest.rename.after:2",
    "checkpoint.manifest.sync.before:4", "checkpoint.manifest.sync.after:4", "dropped.commit.before:1", "dropped.commit.locked:1",
    "dropped.commit.after:1", "outcome.commit.before:2", "outcome.commit.locked:2", "outcome.commit.after:2",
)  # fmt: skip
"""Those of the second call: the first changes nothing. What is counted from 2 on was passed once when the session began."""
BEGIN_STEPS = (
    "checkpoint.store.sync.after:1", "checkpoint.content.sync.before:1", "checkpoint.content.rename.before:1",
    "checkpoint.manifest.write.half:1", "checkpoint.manifest.rename.after:1", "checkpoint.manifest.sync.after:2",
    "dropped.commit.after:1", "log.create.link.before:1", "log.create.link.after:1",
)  # fmt: skip


def store_of(sandbox: Sandbox) -> DirectoryStore:
    return open_store(str(sandbox.state / "checkpoints"))


def owner_of(sandbox: Sandbox) -> str:
    return str(sandbox.of_kind(events.SessionOpened)[0].ledger_id)


def check_named_are_whole(sandbox: Sandbox) -> None:
    """Every checkpoint that the log names is there, of the image that its event states, and each of its contents can be read."""
    store, owner = store_of(sandbox), owner_of(sandbox)
    for taken in sandbox.of_kind(events.CheckpointTaken):
        found = store.load(owner, taken.manifest)
        assert found.root == taken.root
        for entry in found.image.values():
            if entry.content is not None:
                assert sum(map(len, store.content(ContentId(entry.content)))) == entry.size


def check_no_content_in_log(sandbox: Sandbox) -> None:
    reader = Reader.open(str(sandbox.log))
    contents = {change.entry.content for stored in sandbox.events() for change in stored.changes if change.entry}
    assert not [one for one in contents if one is not None and reader.has_blob(ContentId(one))]
    reader.close()


def begun(sandbox: Sandbox, *calls: Table, until: str = "driver@1:finish.commit.before:1", **settings: Any) -> None:
    """A session whose driver was killed at a step, by default when all calls were done."""
    session = sandbox.session(*calls, mode="checkpoint", **settings)
    driver = sandbox.start("run", session, epoch=1, wait=(until,))
    sandbox.steps.kill(until, driver)
    driver.end()


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def spoil_manifest(sandbox: Sandbox, index: int) -> None:
    taken = sandbox.of_kind(events.CheckpointTaken)[index]
    spoil(Path(store_of(sandbox).manifest_path(owner_of(sandbox), taken.manifest)))


def test_a_checkpoint_session_runs_and_every_outcome_is_named_by_a_whole_checkpoint(sandbox: Sandbox) -> None:
    driver = sandbox.run("run", sandbox.session(*CALLS, mode="checkpoint"))
    assert driver.code == 0 and "lost_calls=0 bound=0" in driver.err
    roots = [event.root for event in sandbox.of_kind(events.CallSettled)]
    assert [event.root for event in sandbox.of_kind(events.CheckpointTaken)] == roots and len(roots) == 3
    kinds = [stored.event.kind for stored in sandbox.events()]
    assert all(kinds[at + 1] == "checkpoint_taken" for at, kind in enumerate(kinds) if kind == "call_settled")
    check_named_are_whole(sandbox)
    check_no_content_in_log(sandbox)
    assert read_contents(sandbox.root) == WHOLE


@pytest.mark.parametrize("step", CHECKPOINT_STEPS)
def test_rule_C7_killed_at_any_step_of_a_checkpoint_the_session_converges(sandbox: Sandbox, step: str) -> None:
    """Its exit stands, so that the next driver adopts it (or finds its outcome), and no command runs twice."""
    calls = (bash("true"), bash("echo two >> log; mkdir d; echo x > d/x; echo $CALL_KEY >> $WITNESS"), CALLS[2])
    begun(sandbox, *calls, until=f"driver@1:{step}")
    sandbox.drive()
    assert [ended for _, _, ended, _ in sandbox.settled()] == ["finished"] * 3
    assert len(sandbox.witnessed()) == 1 and not sandbox.of_kind(events.WorkspaceObserved)
    check_named_are_whole(sandbox)
    assert sandbox.of_kind(events.CheckpointTaken)[-1].root == sandbox.of_kind(events.SessionFinished)[0].root


@pytest.mark.parametrize("step", BEGIN_STEPS)
def test_a_session_killed_while_its_first_checkpoint_is_taken_begins_again(sandbox: Sandbox, step: str) -> None:
    (sandbox.root / "log").write_text("zero\n")
    begun(sandbox, *CALLS, until=f"driver@1:{step}")
    driver = sandbox.run("run", sandbox.base / "session.toml")
    assert driver.code == 0, driver.err
    assert read_contents(sandbox.root) == WHOLE | {"log": b"zero\none\ntwo\nthree\n"}
    check_named_are_whole(sandbox)
    opened = sandbox.of_kind(events.SessionOpened)[0]
    assert store_of(sandbox).load(owner_of(sandbox), opened.checkpoints.manifest).root == opened.root


@pytest.mark.parametrize("policy", ["never", "after-restore"])
def test_a_cut_call_is_restored_from_the_checkpoint_before_it(sandbox: Sandbox, policy: str) -> None:
    calls = (CALLS[0], bash("echo half >> log; rm -f log; echo y > y", policy=policy), CALLS[2])
    session = sandbox.session(*calls, mode="checkpoint", on_interrupted="continue")
    driver = sandbox.start("run", session, epoch=1, wait=("shim.2@1:ended:1",))
    sandbox.steps.kill("shim.2@1:ended:1", driver)
    driver.end()
    sandbox.drive()
    check_named_are_whole(sandbox)
    if policy == "never":
        assert [ended for _, _, ended, _ in sandbox.settled()] == ["finished", "interrupted", "finished"]
        assert read_contents(sandbox.root) == {"log": b"one\nthree\n"}
    else:
        assert read_contents(sandbox.root) == {"log": b"three\n", "y": b"y\n"}
    assert all(event.mode == "checkpoint" for event in sandbox.of_kind(events.RecoveryDecided))


def test_a_lost_workspace_is_rebuilt_from_the_newest_checkpoint(sandbox: Sandbox) -> None:
    begun(sandbox, *CALLS)
    shutil.rmtree(sandbox.root)
    assert "damaged" not in sandbox.run("plan", sandbox.state).out
    sandbox.drive()
    assert sandbox.labels()[0] == "root_lost" and read_contents(sandbox.root) == WHOLE


def test_a_lost_workspace_and_no_readable_checkpoint_end_at_once_with_two_ways_out(sandbox: Sandbox) -> None:
    (sandbox.root / "there").write_text("before")
    begun(sandbox, *CALLS)
    shutil.rmtree(sandbox.root)
    shutil.rmtree(sandbox.state / "checkpoints" / "contents")
    (sandbox.state / "checkpoints" / "contents").mkdir()
    before = len(sandbox.events())
    driver = sandbox.drive(expect=78)
    assert "put the checkpoint store's own files back" in driver.err and "recovery settle" in driver.err and "--accept-root" in driver.err
    assert [stored.event.kind for stored in sandbox.events()[before:]] == ["driver_started"] and not sandbox.root.exists()


def test_a_missing_store_is_never_made_anew(sandbox: Sandbox) -> None:
    begun(sandbox, *CALLS)
    (sandbox.state / "checkpoints").rename(sandbox.base / "moved")
    assert "SESSION_CHECKPOINTS" in sandbox.drive(expect=78).sentence() and not (sandbox.state / "checkpoints").exists()
    driver = sandbox.run("drive", sandbox.state, SESSION_CHECKPOINTS=str(sandbox.base / "moved"))
    assert driver.code == 0, driver.err
    for command in ("list", "verify", "gc"):
        said = sandbox.run("checkpoints", command, sandbox.state)
        assert said.code == 78 and "SESSION_CHECKPOINTS" in said.sentence() and "drive" not in said.sentence(), said.err


def test_a_damaged_newest_checkpoint_is_not_believed_and_what_would_be_lost_is_named(sandbox: Sandbox) -> None:
    begun(sandbox, *CALLS)
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    plan = sandbox.run("plan", sandbox.state)
    assert plan.code == 2 and "then a person is needed" in plan.out and "is damaged" in plan.out and "recovery apply" not in plan.out
    assert "the finished calls 3 would be lost" in plan.out and f"`recovery drive {sandbox.state} --accept-lost 1`" in plan.out
    driver = sandbox.drive(expect=78)
    newest = sandbox.of_kind(events.CheckpointTaken)[-1].manifest
    assert f"checkpoint {newest} is damaged" in driver.err and "the finished calls 3 would be lost" in driver.err
    assert f"`recovery checkpoints verify {sandbox.state}`" in driver.err and "eventlog verify" not in driver.err
    assert not sandbox.root.exists() and not [event for event in sandbox.of_kind(events.RecoveryDecided) if event.obligation]


def test_a_damaged_newest_checkpoint_falls_back_as_far_as_a_person_accepts(sandbox: Sandbox) -> None:
    """The calls after the older one are undone, by name; the script asks, and runs them again when it is told to."""
    begun(sandbox, *CALLS)
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    driver = sandbox.drive("--accept-lost", "1", "--on-interrupted", "reissue")
    assert [event.call for event in sandbox.of_kind(events.CallUndone)] == [3] and "lost_calls=1 bound=0" in driver.err
    assert read_contents(sandbox.root) == WHOLE


def test_safe_calls_after_an_older_checkpoint_are_done_again_and_reach_their_roots(sandbox: Sandbox) -> None:
    begun(sandbox, CALLS[0], write("a", "first"), write("b", "second"))
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    spoil_manifest(sandbox, -2)
    (sandbox.base / "outside").write_text("x")
    driver = sandbox.drive()
    assert [event.call for event in sandbox.of_kind(events.CallReplayed)] == [2, 3] and not sandbox.of_kind(events.CallUndone)
    assert read_contents(sandbox.root) == {"log": b"one\n", "a": b"first", "b": b"second"} and "lost_calls=0" in driver.err
    store, taken = store_of(sandbox), sandbox.of_kind(events.CheckpointTaken)[-1]
    assert store.load(owner_of(sandbox), taken.manifest).root == sandbox.of_kind(events.SessionFinished)[0].root


def test_calls_that_do_not_reach_their_roots_again_are_undone(sandbox: Sandbox) -> None:
    """A `safe` command that writes another thing each time: done again it leads elsewhere, so that it and what follows are undone."""
    calls = (CALLS[0], bash('echo x >> "$GATE"; wc -l < "$GATE" > count', policy="safe"), write("b", "second"))
    begun(sandbox, *calls)
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    spoil_manifest(sandbox, -2)
    driver = sandbox.drive(expect=78)
    assert [event.call for event in sandbox.of_kind(events.CallUndone)] == [2, 3], driver.err
    assert not sandbox.of_kind(events.CallReplayed)
    assert read_contents(sandbox.root) == {"log": b"one\n"} and "--on-interrupted" in driver.err
    assert "and call 2, done again from it, came to another image than it had; lost_calls=2 bound=0" in driver.err
    quarantined = [event for event in sandbox.of_kind(events.Quarantined) if event.paths]
    assert quarantined, "what the call did this time is kept"


def test_a_restore_from_an_older_checkpoint_killed_at_its_end_is_done_again(sandbox: Sandbox) -> None:
    begun(sandbox, CALLS[0], write("a", "first"))
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    for epoch in (2, 3):
        step = f"driver@{epoch}:restored.commit.before:1"
        driver = sandbox.start("drive", sandbox.state, epoch=epoch, wait=(step,))
        sandbox.steps.kill(step, driver)
        driver.end()
    sandbox.drive()
    assert [event.call for event in sandbox.of_kind(events.CallReplayed)] == [2]
    assert read_contents(sandbox.root) == {"log": b"one\n", "a": b"first"}
    assert len([event for event in sandbox.of_kind(events.RecoveryDecided) if event.obligation]) == 1


def test_a_person_restores_to_a_checkpoint(sandbox: Sandbox) -> None:
    begun(sandbox, *CALLS)
    seq = next(stored.seq for stored in sandbox.events() if isinstance(stored.event, events.CheckpointTaken))
    done = sandbox.run("restore", sandbox.log, "--at", str(seq), "--workspace", sandbox.root)
    assert done.code == 0, done.err
    assert read_contents(sandbox.root) == {"log": b"one\n"}
    assert [event.call for event in sandbox.of_kind(events.CallUndone)] == [2, 3]


def test_calls_done_again_have_the_provider_key_that_they_had(sandbox: Sandbox) -> None:
    said = bash('echo "$CALL_IDEMPOTENCY_KEY" >> "$WITNESS"; echo x >> a', policy="safe")
    begun(sandbox, CALLS[0], said, said)
    before = sandbox.witnessed()
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    spoil_manifest(sandbox, -2)
    sandbox.drive()
    assert [event.call for event in sandbox.of_kind(events.CallReplayed)] == [2, 3]
    assert len(set(before)) == 2 and sandbox.witnessed() == before * 2


def test_a_workspace_taken_in_place_of_an_older_checkpoint_has_one_and_the_calls_after_that_are_undone(sandbox: Sandbox) -> None:
    begun(sandbox, *CALLS)
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    step = "driver@2:restored.commit.before:1"
    driver = sandbox.start("drive", sandbox.state, "--accept-lost", "1", epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    (sandbox.root / "mine").write_text("by hand")
    refused = sandbox.run("settle", sandbox.state, "--accept-workspace", "0" * 64).sentence()
    root = refused.partition("has the root hash ")[2].split()[0]
    assert sandbox.run("settle", sandbox.state, "--accept-workspace", root).code == 0
    assert [event.call for event in sandbox.of_kind(events.CallUndone)] == [3]
    taken = sandbox.of_kind(events.CheckpointTaken)[-1]
    assert taken.root == root == store_of(sandbox).load(owner_of(sandbox), taken.manifest).root
    assert "lost_calls=1 bound=0" in sandbox.drive("--on-interrupted", "continue").err


def test_a_driver_waits_for_a_collection_of_its_store(sandbox: Sandbox) -> None:
    step = "driver@1:intent.commit.after:1"
    driver = sandbox.start("run", sandbox.session(*CALLS, mode="checkpoint"), epoch=1, wait=(step, "driver@1:checkpoint.busy:1"))
    sandbox.steps.wait(step, driver)
    with open(sandbox.state / "checkpoints" / "lock", "rb") as collecting:
        fcntl.flock(collecting, fcntl.LOCK_EX)
        sandbox.steps.release(step)
        sandbox.steps.wait("driver@1:checkpoint.busy:1", driver)
    sandbox.steps.release("driver@1:checkpoint.busy:1")
    assert driver.end() == 0, driver.err
    assert len(sandbox.of_kind(events.CheckpointTaken)) == 3


def test_rule_S11_what_a_call_that_is_done_again_handed_on_is_dead_before_the_look(sandbox: Sandbox) -> None:
    said, gate = sandbox.base / "said", sandbox.gate
    gate.touch()
    waits = f'echo $CALL_KEY > {said}.new; mv {said}.new {said}; until [ -e {gate} ]; do sleep 0.01; done'
    begun(sandbox, write("log", "one"), bash(waits, policy="safe"), write("a", "last"))
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)  # of calls 1 and 2 there is one image, and one manifest
    spoil_manifest(sandbox, -2)
    gate.unlink()
    said.unlink()
    driver = sandbox.start("drive", sandbox.state, epoch=2)
    wait_until(said.exists, "the call's second start")
    with running_beside(daemon_starts({"CALL_KEY": said.read_text().strip()}, Path("/"))) as pid:
        gate.touch()
        assert driver.end() == 0, driver.err
        assert not is_running(pid)
    assert [event.call for event in sandbox.of_kind(events.CallReplayed)] == [1, 2, 3]


TOOL = {"TOOL_PYTHON": "/bin/true", "TOOL_RUNNER": "runner"}
"""What the program has that opened a session, and a plain drive has not."""


def test_a_tool_is_done_again_by_its_program_only(sandbox: Sandbox) -> None:
    session = sandbox.session(write("log", "one"), bash(TOOL_RUN + "module:function", policy="safe"), write("a", "a"), mode="checkpoint")
    step = "driver@1:finish.commit.before:1"
    driver = sandbox.start("run", session, epoch=1, wait=(step,), **TOOL)
    sandbox.steps.kill(step, driver)
    driver.end()
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    spoil_manifest(sandbox, -2)
    foreseen = sandbox.run("plan", sandbox.state)
    assert foreseen.code == 2 and "then a person is needed" in foreseen.out and "call 2 is a Python tool" in foreseen.out, foreseen.out
    assert "call 2 is a Python tool" not in sandbox.run("plan", sandbox.state, **TOOL).out
    assert "start that program again" in sandbox.drive(expect=78).sentence()
    assert sandbox.labels() == [] and not sandbox.root.exists(), "nothing is decided that this driver could not do"
    step = "driver@3:restored.commit.before:1"
    driver = sandbox.start("drive", sandbox.state, epoch=3, wait=(step,), **TOOL)
    sandbox.steps.kill(step, driver)
    driver.end()
    assert "start that program again" in sandbox.drive(expect=78).err
    assert not sandbox.of_kind(events.CallReplayed) and not sandbox.of_kind(events.CallUndone)
    last = sandbox.run("drive", sandbox.state, **TOOL)
    assert last.code == 0, last.err
    assert [event.call for event in sandbox.of_kind(events.CallReplayed)][-1] == 3


def test_a_call_of_the_namespaced_space_is_not_done_again_by_an_act_that_starts_none(sandbox: Sandbox) -> None:
    begun(sandbox, CALLS[0], bash("echo two >> log", policy="safe"))
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    refused = sandbox.run("settle", sandbox.state, "--rebuild", SESSION_SPACE="namespaced")
    assert refused.code == 78 and "in the namespaced space" in refused.sentence() and sandbox.labels() == []
    sandbox.drive()
    assert [event.call for event in sandbox.of_kind(events.CallReplayed)] == [2]


def test_rule_R4_nothing_is_discarded_for_a_restore_that_takes_back_more_than_the_call(sandbox: Sandbox) -> None:
    calls = (CALLS[0], write("log", "two"), bash("echo three >> log; echo x > x"))
    begun(sandbox, *calls, until="shim.2@1:ended:1", on_interrupted="continue")
    spoil_manifest(sandbox, -1)
    assert "--discard 3: the image before the call is not to be had" in sandbox.run("settle", sandbox.state, "--discard", "3").sentence()
    assert sandbox.labels() == []
    step = "driver@3:decision.commit.after:1"
    driver = sandbox.start("drive", sandbox.state, epoch=3, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    refused = sandbox.run("settle", sandbox.state, "--discard", "3")
    assert refused.code == 78 and "takes back more than call 3" in refused.sentence() and (sandbox.root / "x").exists()
    sandbox.drive()
    assert read_contents(sandbox.root) == {"log": b"two"}


def left_out(sandbox: Sandbox, *calls: Table) -> None:
    """A session with a bound of 2 whose calls 2 and 3 have no checkpoint, killed after the third outcome. The log says that the newest
    checkpoint was very dear, so that it does not depend on the machine which ones are left out."""
    begun(sandbox, *calls, until="driver@1:intent.commit.before:2", lost_work_bound=2)
    newest = sandbox.of_kind(events.CheckpointTaken)[-1]
    writer = Writer.open(str(sandbox.log), RandomIds())
    dear = events.CheckpointTaken(newest.at_ms, newest.manifest, newest.root, took_ms=10**9)
    writer.append(StreamId("nightly"), Epoch(1), [Record(dear)], (), "dear")
    writer.close()
    step = "driver@2:outcome.commit.after:2"
    driver = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    assert len(sandbox.of_kind(events.CheckpointTaken)) == 2 and len(sandbox.settled()) == 3


def test_rule_C7_calls_left_out_within_the_bound_are_done_again_when_the_workspace_is_lost(sandbox: Sandbox) -> None:
    left_out(sandbox, write("a", "1"), write("b", "2"), write("c", "3"), write("d", "4"), write("e", "5"))
    shutil.rmtree(sandbox.root)
    driver = sandbox.drive()
    assert [event.call for event in sandbox.of_kind(events.CallReplayed)] == [2, 3] and "lost_calls=0 bound=2" in driver.err
    assert read_contents(sandbox.root) == {"a": b"1", "b": b"2", "c": b"3", "d": b"4", "e": b"5"}
    check_named_are_whole(sandbox)


def test_rule_C7_calls_that_may_not_be_done_again_are_lost_up_to_the_bound_and_no_further(sandbox: Sandbox) -> None:
    left_out(sandbox, *(bash(f"echo {number} > f{number}") for number in range(1, 6)))
    shutil.rmtree(sandbox.root)
    driver = sandbox.drive("--on-interrupted", "reissue")
    assert [event.call for event in sandbox.of_kind(events.CallUndone)] == [2, 3] and "lost_calls=2 bound=2" in driver.err
    assert sorted(read_contents(sandbox.root)) == ["f1", "f2", "f3", "f4", "f5"]


def test_rule_C7_the_call_behind_the_bound_has_a_checkpoint_however_dear(sandbox: Sandbox) -> None:
    left_out(sandbox, *(write(name, name) for name in "abcde"))
    sandbox.drive()
    stored = [one.event for one in sandbox.events()]
    place = next(at for at, event in enumerate(stored) if isinstance(event, events.CallSettled) and event.call == 4)
    assert isinstance(stored[place + 1], events.CheckpointTaken)


@pytest.mark.parametrize("policy", ["never", "after-restore"])
def test_calls_undone_while_another_was_open_are_run_again_before_it(sandbox: Sandbox, policy: str) -> None:
    """An older checkpoint stands in while call 4 is open: it ends with the calls before it, which are not passed over (C7)."""
    begun(sandbox, *CALLS, bash("cat log > all", policy=policy), until="driver@1:intent.commit.after:4")
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    asked = sandbox.drive("--accept-lost", "1", expect=78).err
    assert "call 4 (call 4 of the script) was interrupted, and calls before it were undone" in asked, asked
    assert "the finished call 3 was undone: the checkpoint of the image at seq" in asked and "from its call 3" in asked
    assert "lost_calls=1 bound=0" in asked
    sandbox.drive("--on-interrupted", "reissue")
    assert read_contents(sandbox.root) == WHOLE | {"all": WHOLE["log"]}
