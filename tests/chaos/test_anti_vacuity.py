"""No campaign passes that proved nothing, in any mode: the kill removed, the step renamed, the oracle's input emptied, a driver that ends
before its kill. Each is done to a copy of the harness, on which a real campaign of one trial runs; on a sound copy the same one passes.

A sample of the pairs runs with the suite: most modes, every manipulation. All of them are a soak.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.catalogue import MODES
from chaos.planted.bug import Replace, Selection
from chaos.planted.hunt import run_campaign, run_sound
from chaos.planted.plant import INSTALLED, plant
from chaos.results import Verdict
from chaos.syscalls.level import STEP, SYSCALL
from tests.chaos.syscalls.support import LACK


@dataclass(frozen=True, slots=True)
class Case:
    """One cheap trial of a mode: its kill lies at a step whose name holds `:outcome.` or `:decided:`."""

    scenario: str
    plan: str = "kill driver@1:outcome.commit.before:1"
    level: str = STEP
    step: str = ""


APPEND = "append"
CASES = {
    "ci": Case(APPEND),
    "transactional": Case(APPEND),
    "recovery": Case("scenarios/one-recovery.toml", "kill shim.1@1:ended:1; kill driver@2:decided:1"),
    "lost": Case("scenarios/taken-away.toml", 'kill driver@1:outcome.commit.before:1; lose "root removed"'),
    "stale": Case("scenarios/open-file.toml", "kill driver@1:outcome.commit.after:1"),
    "redrive": Case("scenarios/one-redriver.toml", "kill driver@1:intent.commit.before:1; kill driver@2:outcome.commit.before:1"),
    "checkpoint": Case("scenarios/checkpointed.toml", "kill driver@1:outcome.commit.after:2"),
    "auto": Case("../../scenarios/auto/grows.toml", "kill driver@1:outcome.commit.after:2"),
    "faults": Case("scenarios/two-commands.toml"),
    "soak": Case(APPEND),
    SYSCALL: Case("scenarios/two-writes.toml", "", SYSCALL, "driver:syscall.fdatasync.before:9"),
}
"""A mode each, and the other level."""

ELSEWHERE = {
    "corrupt": "tests/chaos/corrupt",
    "crosscheck": "tests/chaos/powerloss",
    "disk": "tests/chaos/disk",
    "powerloss": "tests/chaos/powerloss",
}
"""Modes with trials of another kind: what else may pass there without having proved anything is tested beside them."""
SEARCHES = {"random", "pairwise", "twice"}
"""Modes that draw or combine the plans of the others, played and judged by the same code."""

LET_GO = "reached.connection.sendall(b'\\0')"
KILL_REMOVED = (
    Replace("chaos/verbs/kills.py", " kill_child(pid)\n", f" {LET_GO} if reached and kill_child else None\n"),
    Replace("chaos/verbs/kills.py", "number = kill_other(pid)\n", f"number = {LET_GO} or 0 if reached and kill_other else 0\n"),
)
STEP_RENAMED = (
    Replace(
        "chaos/drivers.py",
        'steps.WAIT_VARIABLE: " ".join(sorted(wait)),',
        'steps.WAIT_VARIABLE: " ".join(sorted(wait)).replace(":outcome.", ":result.").replace(":decided:", ":chosen:"),',
    ),
)
LOG_EMPTIED = (Replace("chaos/trial.py", '"log": str(place.state / "log.sqlite"),', '"log": str(place.state / "nothing.sqlite"),'),)
ENDS_BEFORE = (
    Replace(
        "chaos/drivers.py",
        "    steps.install(steps.hook_from_environment(environment))\n",
        "    if environment[steps.WAIT_VARIABLE]:\n        os._exit(1)\n    steps.install(steps.hook_from_environment(environment))\n",
    ),
)
MANIPULATIONS = {
    "kill removed": KILL_REMOVED,
    "step renamed": STEP_RENAMED,
    "log emptied": LOG_EMPTIED,
    "driver ends before its kill": ENDS_BEFORE,
}
SYSCALL_MANIPULATIONS = {
    "kill removed": (Replace("chaos/syscalls/inject.py", 'done = "signal=KILL" if', 'done = "delay_enter=1" if'),),
    "step renamed": (Replace("chaos/syscalls/inject.py", "inject={target.name}:{done}", "inject=getpid:{done}"),),
    "log emptied": LOG_EMPTIED,
    "driver ends before its kill": (
        Replace(
            "chaos/syscalls/play.py",
            '        return [sys.executable, "-m", "recovery", "run", str(self._place.session)]',
            '        ended = ["sh", "-c", "exit 1"]\n'
            '        real = [sys.executable, "-m", "recovery", "run", str(self._place.session)]\n'
            "        return ended if self._aim and not self.ends else real",
        ),
    ),
}
SAMPLE = {
    ("transactional", "kill removed"), ("recovery", "step renamed"), ("lost", "driver ends before its kill"), ("stale", "log emptied"),
    ("checkpoint", "kill removed"), ("auto", "step renamed"), (SYSCALL, "kill removed"),
}  # fmt: skip
"""Without redrivers: such a trial starts several interpreters, each from nothing."""
PAIRS = [
    pytest.param(mode, name, marks=() if (mode, name) in SAMPLE else pytest.mark.soak, id=f"{mode}-{name.replace(' ', '-')}")
    for mode in CASES
    for name in MANIPULATIONS
]


def select(mode: str) -> Selection:
    """The campaign of one trial that stands for a mode."""
    case = CASES[mode]
    return Selection(
        "harness", case.scenario, case.step, "", case.plan, None, (), mode="ci" if mode == SYSCALL else mode, level=case.level
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is wrong with the sound campaign of each mode that was run here."""
    return {}


def test_every_mode_has_a_case() -> None:
    assert set(CASES) - {SYSCALL} <= set(MODES) <= {*CASES, *ELSEWHERE, *SEARCHES}
    assert all(list((INSTALLED / ELSEWHERE[mode]).glob("test_*.py")) for mode in MODES if mode in ELSEWHERE)
    assert {name for _, name in SAMPLE} == set(MANIPULATIONS) and len({mode for mode, _ in SAMPLE}) == len(SAMPLE)
    assert set(SYSCALL_MANIPULATIONS) == set(MANIPULATIONS)


@pytest.mark.parametrize(("mode", "name"), PAIRS)
def test_a_campaign_that_proves_nothing_does_not_pass(mode: str, name: str, sound: dict[str, str], tmp_path: Path) -> None:
    if mode == SYSCALL and LACK:
        pytest.skip(f"the syscall level is unavailable here: {LACK}")
    selection = select(mode)
    changes = (SYSCALL_MANIPULATIONS if mode == SYSCALL else MANIPULATIONS)[name]
    plant(name, "harness", changes, tmp_path / "copy")
    ran = run_campaign(selection, tmp_path)
    assert ran.verdict in (Verdict.UNKNOWN, Verdict.FAIL), f"the campaign ended {ran.code}: {ran.words}"
    # Whatever it is that does not pass, without the manipulation it does.
    if mode not in sound:
        place = tmp_path / "sound"
        place.mkdir()
        sound[mode] = run_sound(selection, place)
    assert sound[mode] == ""
