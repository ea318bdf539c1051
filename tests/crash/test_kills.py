"""Kills to survive, enumerated: every cell of kills.toml on real processes, against the engine as it is.

All processes of the session are stopped where they stand, so that none notices the end of another before all are killed; then those that
the cell names get SIGKILL, children before their parents, and each one's own wait status is read. The others go on, and the next
driver takes over.
"""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chaos.judging import OracleProcess
from chaos.processes import is_command, list_descendants, read_death, read_stat, stop_process
from chaos.results import Verdict
from eventlog import events
from recovery.space.marks import KINDS, MarkKind, allows_reuse, find_cgroup_base
from recovery.space.marks.choose import explain_mark
from tests.crash.kill_table import ROLES, Cell, End, load_table
from tests.helpers import is_running, read_contents, wait_until
from tests.recovery.sessions import Driver, Sandbox, Table, bash, write

# Waits without forking: reading a pipe that stays empty.
WORKING = """printf half > b
echo "$CALL_KEY start" >> "$WITNESS"
exec {silent}<> "$PIPE"
until [ -e "$GATE" ]; do read -r -t 0.01 -u "$silent" || :; done
printf whole > b
echo "$CALL_KEY end" >> "$WITNESS"
"""

def make_calls(call: str, policy: str) -> tuple[Table, ...]:
    """Three calls; the second is the one under test."""
    tested = bash(WORKING, policy=policy) if call == "command" else write("b", "whole", policy=policy)
    return write("a", "one"), tested, bash("cat a b > c")


POLICIES = {"command": "never", "file": "safe"}
"""What a tool has when nothing is said."""
BEFORE = {"a": b"one"}
WORKSPACES = {
    "before": BEFORE,
    "half": {**BEFORE, "b": b"half", "c": b"onehalf"},
    "after": {**BEFORE, "b": b"whole", "c": b"onewhole"},
}
"""What the workspace holds when the cell is through: the call left nothing, was cut short by its own end, took effect once."""


@dataclass
class Stage:
    """One session up to the moment of the kills, and on from it."""

    sandbox: Sandbox
    cell: Cell
    driver: Driver
    mark: str
    next: int | None = None
    said: str = ""
    left: dict[str, bytes | None] = field(default_factory=dict)

    @property
    def trace(self) -> list[str]:
        path = self.sandbox.base / "trace"
        return path.read_text().splitlines() if path.exists() else []

    def find(self, role: str) -> int:
        """The pid of a role of the first epoch; 0 for none."""
        if role == "driver":
            return self.driver.pid
        if role == "command":
            shim = self.find("shim")
            return next((pid for pid in list_descendants(shim) if is_command(pid)), 0) if shim else 0
        name = {"shim": "shim.1"}.get(role, role)
        return next((int(line.split()[1]) for line in self.trace if line.startswith(f"{name}@1:")), 0)

    def reach(self) -> None:
        """Wait until the processes stand where the cell says."""
        step = self.cell.step
        if step.at:
            self.sandbox.steps.wait(step.at, self.driver)
        if step.has_command:
            wait_until(self.sandbox.witnessed, "the command's start")
            wait_until(lambda: any(":command.wait:" in line for line in self.trace), "the driver to wait for it")

    def kill(self) -> None:
        """SIGKILL to those of the cell at once, and the proof: each was alive and stopped just before, and died of signal 9."""
        pids = {role: self.find(role) for role in ("command", "shim", "worker", "spawner", "driver")}  # children before parents
        alive = {role: pid for role, pid in pids.items() if pid and is_running(pid)}
        assert alive.keys() == set(ROLES) - self.cell.step.missing.keys(), f"alive are {alive}, and missing {self.cell.step.missing}"
        for role, pid in reversed(alive.items()):
            assert stop_process(pid, 60), f"{role} ended before it could be killed"
        for role in (role for role in alive if role in self.cell.killed):
            self._kill(role, alive[role])
        for role, pid in alive.items():
            if role not in self.cell.killed:
                os.kill(pid, signal.SIGCONT)

    def _kill(self, role: str, pid: int) -> None:
        descriptor = os.pidfd_open(pid)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        wait_until(lambda: select.select([descriptor], [], [], 0)[0], f"the death of the {role}")
        os.close(descriptor)
        if role == "driver":
            assert self.driver.end() == -signal.SIGKILL
        else:  # its parent is stopped, so that nobody has reaped it
            assert read_death(pid) == signal.SIGKILL, f"the {role} died otherwise: {read_stat(pid)}"

    def go_on(self) -> None:
        """Let go whoever was held, and wait until what lives has come to rest: the driver at its end, or the shim where it waits."""
        step, killed = self.cell.step, self.cell.killed
        if step.at:
            with suppress(OSError):  # it may be dead
                self.sandbox.steps.release(step.at)
        if "driver" not in killed:
            self.sandbox.open_gate()
            self.driver.end()
        elif step.call == "command" and "shim" not in killed and "shim" not in step.missing:
            if step.is_through or "command" in killed:
                wait_until(lambda: b'"op":"exit"' in self._lines_of_call(), "the exit record of the shim that goes on")
            else:
                wait_until(self.sandbox.witnessed, "the start of the command of the shim that goes on")
        elif step.call == "file" and "worker" not in killed:
            worker = self.find("worker")
            wait_until(lambda: not is_running(worker), "the end of the file worker whose driver is gone")

    def _lines_of_call(self) -> bytes:
        """The ledger's lines of the call under test."""
        lines = self.sandbox.ledger_path.read_bytes().splitlines()
        return b"\n".join(line for line in lines if b"/nightly/2/" in line)

    def drive_next(self) -> int | None:
        """The next drive's exit code, None when none is needed; a command that is reattached may end once that is decided."""
        if "driver" not in self.cell.killed and self.driver.code == 0:
            return None
        self.sandbox.boot = self.cell.boot
        self.left = read_contents(self.sandbox.root)
        driver = self.sandbox.start("drive", self.sandbox.state, epoch=2, SESSION_KILL_MARK=self.mark)
        wait_until(lambda: driver.code is not None or self.sandbox.labels(), "the next driver's decision or end")
        self.sandbox.open_gate()
        code = driver.end()
        self.said = driver.err
        return code

    def read_decisions(self) -> str:
        """The labels of what the next driver decided, in order; of which call, where it is not the one at hand."""
        decided = self.sandbox.of_kind(events.RecoveryDecided)
        return ", ".join(event.label + (" of the next call" if event.call == 3 else "") for event in decided)

    def count_runs(self) -> int:
        if self.cell.step.call == "file":
            return self._lines_of_call().count(b'"op":"start"')
        return sum(line.endswith(" start") for line in self.sandbox.witnessed())


def play(sandbox: Sandbox, cell: Cell, policy: str, mark: str) -> Stage:
    """Play one cell to the end of the next drive."""
    step = cell.step
    if step.is_through:
        sandbox.open_gate()
    pipe = sandbox.base / "pipe"
    os.mkfifo(pipe)
    wait = (step.at,) if step.at else ()
    trace = str(sandbox.base / "trace")
    session = sandbox.session(*make_calls(step.call, policy))
    driver = sandbox.start(
        "run", session, epoch=1, wait=wait, CRASHWORTHY_STEP_TRACE=trace, SESSION_KILL_MARK=mark, PIPE=str(pipe)
    )  # fmt: skip
    stage = Stage(sandbox, cell, driver, mark)
    stage.reach()
    stage.kill()
    stage.go_on()
    driver.end()
    stage.next = stage.drive_next()
    return stage


def judge(stage: Stage) -> End:
    """What came of it, in the words of the table."""
    found = read_contents(stage.sandbox.root)
    workspace = next((name for name, contents in WORKSPACES.items() if contents == found), str(found))
    return End(stage.driver.end(), stage.read_decisions(), stage.count_runs(), workspace, stage.next)


def check_call(stage: Stage, workspace: str) -> None:
    """The call's one end in the log is that of its work, and no key of a command began twice."""
    (call,) = [event for event in stage.sandbox.of_kind(events.CallSettled) if event.call == 2]
    assert call.ended == ("interrupted" if workspace == "before" else "finished")
    if stage.cell.step.call == "command" and workspace != "before":
        assert call.exit == (events.Exit("signaled", signal=9) if workspace == "half" else events.Exit("exited", code=0))
    starts = [line for line in stage.sandbox.witnessed() if line.endswith(" start")]
    assert len(starts) == len(set(starts))


def ask_oracle(stage: Stage, oracle: OracleProcess) -> None:
    """The campaigns' oracle, which shares no code with the engine, finds nothing wrong: the workspace equals the log's image, the chain and
    the order of calls hold, no key began twice, nothing was recorded as found, what was displaced is in quarantine."""
    sandbox, end, command = stage.sandbox, stage.cell.end, stage.cell.step.call == "command"
    scratch = sandbox.base / "scratch"
    scratch.mkdir()
    outs = sorted(sandbox.base.glob("out-*"), key=lambda path: int(path.name.partition("-")[2]))
    quarantine = next(sandbox.base.glob(".crashworthy-*"), sandbox.base / "none") / "quarantine"  # there only once something was displaced
    judgement = oracle.judge(
        {
            "log": str(sandbox.log),
            "scratch": str(scratch),
            "stream": "nightly",
            "workspace": str(sandbox.root),
            "witness": str(sandbox.witness) if command else None,
            "witnessed": [1] if command and end.workspace != "half" else [],  # one that was killed noted no end
            "acknowledged": [str(out) for out in outs],
            "reference": None,
            "reference_outputs": None,
            "reference_exits": None,
            "on_interrupted": "stop",
            "script_length": 3,
            "expect_finished": 0 in (stage.driver.code, stage.next),
            "outside_edits": False,
            "superseded": [],
            "quarantine": str(quarantine),
            "suspect": False,
        }
    )
    said = {one.oracle: one.verdict for one in judgement.verdicts}
    wrong = [one for one in judgement.verdicts if one.verdict is not Verdict.PASS]
    assert wrong == [] or (end.ran == 0 and [one.oracle for one in wrong] == ["witness"]), wrong
    assert {"workspace-equals-log", "chain", "order", "laundering", "acknowledged"} <= said.keys(), said


@pytest.fixture(scope="module")
def oracle() -> Iterator[OracleProcess]:
    made = OracleProcess([entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")])
    yield made
    made.close()


def check_nothing_lives(stage: Stage) -> None:
    """No process of the first epoch outlives the end, killed or not."""
    for role in ("spawner", "shim", "worker"):
        if pid := stage.find(role):
            wait_until(lambda pid=pid: not is_running(pid), f"the end of the first epoch's {role}")  # type: ignore[misc]


CELLS = load_table()
SAMPLE = CELLS[2::6]
"""Each step of both kinds of call, each role, alone and in pairs, is among them (checked below)."""


JOINED = [cell for cell in CELLS if cell.step.name != "collect"]
"""The same under a mark that a shim joins for good; idle at `collect`, it would not be there."""
MARKS_JOINED = [mark for mark in KINDS if not allows_reuse(f"{mark}:")]
UNPROVED = [cell for cell in CELLS if "shim" in cell.killed and cell.end.decision == "restore_and_interrupt" and not cell.boot]
"""Where the shim is dead and has recorded no exit: under the environment mark nothing proves then that its command is."""
needs_cgroup = pytest.mark.skipif(not find_cgroup_base(), reason="no writable cgroup v2 here: the table is that of this kill mark")


def names(cells: list[Cell]) -> list[str]:
    return [cell.name for cell in cells]


def rerun(end: End) -> End:
    """The end of a cell that restores and interrupts, where the policy lets the command run again after the restore."""
    return End(end.driver, "restore_and_rerun, rerun_restored", end.ran + 1, "after", 0)


RERUN = [cell for cell in CELLS if cell.step.call == "command" and cell.end.decision == "restore_and_interrupt"]


def fork_again(end: End) -> End:
    """The end of a cell in which the spawner died and the driver came to its end with an idle shim, where no shim is used again."""
    return End(1, "void_and_run of the next call", end.ran, end.workspace, 0)


def expect(cell: Cell, policy: str, mark: str) -> End:
    if policy == "after-restore":
        return rerun(cell.end)
    return fork_again(cell.end) if mark in MARKS_JOINED and "spawner" in cell.killed and cell.end.driver == 0 else cell.end


def check_cell(sandbox: Sandbox, oracle: OracleProcess, cell: Cell, policy: str = "", mark: str = "cgroup") -> None:
    stage = play(sandbox, cell, policy or POLICIES[cell.step.call], mark)
    end = expect(cell, policy, mark)
    assert judge(stage) == end
    check_call(stage, end.workspace)
    check_nothing_lives(stage)
    ask_oracle(stage, oracle)


@needs_cgroup
@pytest.mark.parametrize("cell", SAMPLE, ids=names(SAMPLE))
def test_who_is_killed_at_a_step_leaves_the_end_state_of_the_table(sandbox: Sandbox, oracle: OracleProcess, cell: Cell) -> None:
    check_cell(sandbox, oracle, cell)


@pytest.mark.soak
@needs_cgroup
@pytest.mark.parametrize("cell", CELLS, ids=names(CELLS))
def test_every_kill_of_the_table_leaves_its_end_state(sandbox: Sandbox, oracle: OracleProcess, cell: Cell) -> None:
    check_cell(sandbox, oracle, cell)


@needs_cgroup
@pytest.mark.parametrize("cell", RERUN[1::12], ids=names(RERUN[1::12]))
def test_a_command_that_may_run_again_after_a_restore_does(sandbox: Sandbox, oracle: OracleProcess, cell: Cell) -> None:
    check_cell(sandbox, oracle, cell, "after-restore")


def need(mark: MarkKind) -> None:
    if why := explain_mark(mark):
        pytest.skip(why)


@pytest.mark.soak
@pytest.mark.parametrize("mark", MARKS_JOINED)
@pytest.mark.parametrize("cell", JOINED, ids=names(JOINED))
def test_every_kill_leaves_the_same_under_a_mark_that_is_joined_for_good(
    sandbox: Sandbox, oracle: OracleProcess, cell: Cell, mark: MarkKind
) -> None:  # fmt: skip
    need(mark)
    check_cell(sandbox, oracle, cell, mark=mark)


PROVED = [cell for cell in CELLS if cell not in UNPROVED]


@pytest.mark.soak
@pytest.mark.parametrize("cell", PROVED, ids=names(PROVED))
def test_every_kill_that_leaves_a_proof_leaves_the_same_under_the_environment_mark(
    sandbox: Sandbox, oracle: OracleProcess, cell: Cell
) -> None:  # fmt: skip
    check_cell(sandbox, oracle, cell, mark="environment")


def check_unproved(sandbox: Sandbox, cell: Cell) -> None:
    """The next drive does not know that everything is dead: exit 1, nothing decided, no workspace path touched (S9)."""
    stage = play(sandbox, cell, POLICIES[cell.step.call], "environment")
    assert (stage.driver.code, stage.next, stage.read_decisions()) == (cell.end.driver, 1, "")
    assert "FenceIncomplete" in stage.said and "only the environment mark is in force" in stage.said, stage.said
    assert read_contents(sandbox.root) == stage.left
    assert not [event for event in sandbox.of_kind(events.CallSettled) if event.call == 2]
    assert stage.count_runs() == cell.end.ran
    check_nothing_lives(stage)


@pytest.mark.parametrize("cell", UNPROVED[3::12], ids=names(UNPROVED[3::12]))
def test_a_shim_that_is_killed_under_the_environment_mark_ends_the_next_drive(sandbox: Sandbox, cell: Cell) -> None:
    check_unproved(sandbox, cell)


@pytest.mark.soak
@pytest.mark.parametrize("cell", UNPROVED, ids=names(UNPROVED))
def test_every_kill_of_a_shim_under_the_environment_mark_ends_the_next_drive(sandbox: Sandbox, cell: Cell) -> None:
    check_unproved(sandbox, cell)


@pytest.mark.soak
@needs_cgroup
@pytest.mark.parametrize("cell", RERUN, ids=names(RERUN))
def test_every_command_that_may_run_again_after_a_restore_does(sandbox: Sandbox, oracle: OracleProcess, cell: Cell) -> None:
    check_cell(sandbox, oracle, cell, "after-restore")


def test_the_sample_holds_every_step_and_every_role_alone_and_in_a_pair() -> None:
    assert {(cell.step.call, cell.step.name) for cell in SAMPLE} == {(cell.step.call, cell.step.name) for cell in CELLS}
    assert {cell.killed[0] for cell in SAMPLE if len(cell.killed) == 1} == set(ROLES)
    assert {role for cell in SAMPLE if len(cell.killed) == 2 for role in cell.killed} == set(ROLES)
    assert any(cell.boot for cell in SAMPLE)
