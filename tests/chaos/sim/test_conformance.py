"""The simulation against real processes: the same calls under the same plan end in the same state, by the same decisions.

The plans aim where nothing can race: no driver is killed while a command of its runs, as whether a real command ends before the successor
looks is chance there. With `continue` the final state tells whether a call was interrupted or finished.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.actions import parse_plan
from chaos.results import Trial, Verdict
from chaos.sim.bench import Bench
from chaos.sim.seams import simulated
from chaos.sim.workloads import Workload, witnessed
from chaos.zygote_client import ProcessZygote
from recovery.script import WriteCall
from tests.chaos.fakes import make_scenario
from tests.chaos.real import open_zygote

CALLS = (
    witnessed("echo one >> log.txt", "echo 1 > a"),
    WriteCall(b"notes.txt", b"hello\n"),
    witnessed("mkdir d", "echo two >> d/e", "echo 3 > c", "rm c", code=3),
)
WORKLOAD = Workload("conform", CALLS, "continue")
SCENARIO = make_scenario("conform", calls=CALLS, witnessed=(0, 2), on_interrupted="continue")
PLANS = (
    "",
    "kill driver@1:floor.commit.before:1",
    "kill driver@1:floor.commit.locked:1",
    "kill driver@1:ledger.advance.append.unsynced:1",
    "kill driver@1:decided:1",
    "kill driver@1:intent.commit.locked:1",
    "kill shim.1@1:ledger.start.before:1",
    "kill shim.1@1:ledger.start.append.unsynced:1",
    "kill shim.1@1:running:1",
    "kill shim.1@1:ended:1",
    "kill driver@1:outcome.commit.before:1",
    "kill driver@1:outcome.commit.locked:2",
    "kill driver@1:outcome.commit.after:3",
    "kill driver@1:ledger.collect.append.unsynced:1",
    "kill worker@1:file.rename.before:1",
    "kill worker@1:file.rename.after:1",
    "kill driver@1:finish.commit.before:1",
    "kill shim.1@1:ended:1; kill driver@2:decided:1",
    "kill shim.1@1:ended:1; kill driver@2:decision.commit.after:1",
    "kill shim.1@1:ended:1; kill worker@2:restore.displace.move.after:1",
    "kill shim.1@1:ended:1; kill driver@2:restored.commit.locked:1",
    "kill worker@1:file.rename.after:1; kill driver@2:restored.commit.after:1",
)


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessZygote]:
    with open_zygote(tmp_path_factory.mktemp("zygote")) as zygote:
        yield zygote


@pytest.fixture(scope="module")
def bench() -> Bench:
    with simulated():
        return Bench(WORKLOAD)


@pytest.mark.parametrize("text", PLANS)
def test_a_simulated_trial_ends_as_the_real_one(text: str, zygote: ProcessZygote, bench: Bench, tmp_path: Path) -> None:
    trial = Trial(1, "conform", parse_plan(text))
    (tmp_path / "trial").mkdir()
    real = zygote.run(SCENARIO, trial, tmp_path / "trial", {})
    with simulated():
        found = bench.judge(bench.play(trial.plan), trial)
    assert (real.verdict, found.verdict) == (Verdict.PASS, Verdict.PASS), (real.reason, found.reason)
    assert (found.decisions, found.drivers) == (real.decisions, real.drivers)
    assert found.final == real.final
