"""One trial: play the plan on real processes, drive on until the session ends, then have it judged.

A trial passes only if every fault provably fired where it was aimed and every oracle says pass. A fault that did not fire, a
deadline that passed and trouble of the harness itself are unknown.
"""

import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from chaos.drivers import Place, base_environment
from chaos.judging import Judgement, OracleProcess
from chaos.plan import find_unfired, parse_step
from chaos.processes import end_everything, kill_child, kill_other, list_alive
from chaos.reference import Reference, make_reference
from chaos.results import Action, Fault, OracleVerdict, Recording, Trial, TrialResult, Verdict, merge_verdicts
from chaos.scenario import Scenario
from chaos.seed import plant_seed
from chaos.stage import Ended, Reached, Stage, left_behind, read_roles, read_steps, wait_until, wants_live_command

MOST_DRIVERS = 6
QUIET_SECS = 10.0
STALE = 75


@dataclass(slots=True)
class Bench:
    """What one runner keeps between trials: its oracle, and each scenario's reference."""

    oracle: OracleProcess
    references: dict[str, Reference] = field(default_factory=dict)

    def reference(self, scenario: Scenario, directory: Path) -> Reference:
        """The plain run's end, made once per scenario."""
        if scenario.name not in self.references:
            self.references[scenario.name] = make_reference(scenario, directory / "plain", base_environment(), self.oracle)
        return self.references[scenario.name]


def record_scenario(bench: Bench, scenario: Scenario, directory: Path) -> Recording:
    """A clean run: its steps, and its own verdict."""
    result = run_trial(bench, scenario, Trial(0, scenario.name, ()), directory, ())
    place = Place(directory)
    return Recording(scenario.name, read_steps(place), result, read_kill_mark(place))


def read_kill_mark(place: Place) -> str:
    """The kind of mark that the clean run's ledger names."""
    ledger = place.state / "space" / "ledger"
    return "environment" if ledger.exists() and '"mark":"environment:' in ledger.read_text("utf-8", "replace") else "cgroup"


def run_trial(bench: Bench, scenario: Scenario, trial: Trial, directory: Path, steps: Sequence[str]) -> TrialResult:
    """Run and judge one trial in an empty directory. Never raises for what the engine does."""
    began = time.monotonic()
    place = set_stage(scenario, directory)
    bench.reference(scenario, directory)
    played = _Play(scenario, trial, place, bench.oracle.pid)
    played.run()
    return judge_trial(bench, scenario, trial, place, played, began)


class Played(Protocol):
    """A play that has been run: the faults that fired, the runner's own findings, its drivers' ends, trouble of the harness."""

    faults: list[Fault]
    findings: list[OracleVerdict]
    ends: list[Ended]
    trouble: str


def judge_trial(bench: Bench, scenario: Scenario, trial: Trial, place: Place, played: Played, began: float) -> TrialResult:
    """Have what was played in `place` since `began` (monotonic seconds) judged."""
    reference = bench.reference(scenario, place.directory)
    judgement = bench.oracle.judge(_question(scenario, place, reference, played))
    oracles = (*judgement.verdicts, *played.findings)
    return _conclude(trial, played, judgement, oracles, time.monotonic() - began)


def set_stage(scenario: Scenario, directory: Path) -> Place:
    """The directories of a trial, made in `directory`, with the scenario's seed planted."""
    place = Place(directory)
    for path in (place.work, place.outside, directory / "scratch"):
        path.mkdir()
    plant_seed(scenario.seed, place.work)
    return place


class _Play:
    """The plan in the making: faults fired so far, ends seen, findings of the runner's own."""

    def __init__(self, scenario: Scenario, trial: Trial, place: Place, oracle_pid: int) -> None:
        self._scenario = scenario
        self._trial = trial
        self._place = place
        self._oracle_pid = oracle_pid
        self.faults: list[Fault] = []
        self.findings: list[OracleVerdict] = []
        self.ends: list[Ended] = []
        self.trouble = ""

    def run(self) -> None:
        """Play to the end; trouble of the harness is kept as a sentence."""
        armed = {action.at: action for action in self._trial.plan}
        with Stage(self._scenario, self._place) as stage:
            try:
                self._drive(stage, armed)
                self._wait_quiet()
            except TimeoutError as error:
                self.trouble = str(error)
            except OSError as error:
                self.trouble = f"{type(error).__name__}: {error}"
            self.ends = stage.ends
        left = end_everything(os.getpid(), self._oracle_pid)
        if left and not self.trouble:
            self.findings.append(OracleVerdict("processes", Verdict.FAIL, f"processes {left} outlived the session"))
        remove_cgroups(self._place)

    def _wait_quiet(self) -> None:
        """Give the session's helpers their time to end; whoever is then still there is a finding, not trouble of the harness."""
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: not left_behind(self._oracle_pid), QUIET_SECS, "every process of the trial to end")

    def _drive(self, stage: Stage, armed: dict[str, Action]) -> None:
        stage.holds_gate = any(wants_live_command(parse_step(step)) for step in armed)
        epoch = code = 0
        for number in range(MOST_DRIVERS):
            epoch = self._next_epoch(stage)
            code = self._drive_epoch(stage, epoch, armed if number == 0 else {})
            if code == 0:
                return
            if code not in (1, -9) or (code == -9 and not self._killed_driver(epoch)):
                break
        detail = f"driver {epoch} ended with {code} and the session is not finished: {self._last_words(epoch)}"
        self.findings.append(OracleVerdict("liveness", Verdict.FAIL, detail))

    def _next_epoch(self, stage: Stage) -> int:
        """One more than the last, but 1 again while no log was made: an epoch above 1 says that there was one (rule L9)."""
        has_log = (self._place.state / "log.sqlite").exists()
        return max(ended.epoch for ended in stage.ends) + 1 if has_log and stage.ends else 1

    def _killed_driver(self, epoch: int) -> bool:
        return any(fault.fired and fault.at.startswith(f"driver@{epoch}:") for fault in self.faults)

    def _last_words(self, epoch: int) -> str:
        lines = self._place.errors(epoch).read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:400] if lines else "(nothing on stderr)"

    def _drive_epoch(self, stage: Stage, epoch: int, armed: dict[str, Action]) -> int:
        driver = stage.start(epoch, self._trial.entry, frozenset(armed))
        while True:
            happening = stage.next(f"driver {epoch} to end or reach its step", epoch)
            match happening:
                case Ended(code=code):
                    return code
                case Reached(step=step):
                    if armed[step].do == "supersede":
                        return self._supersede(stage, happening, epoch)
                    ended = self._kill(stage, happening, driver)
                    if ended is not None:
                        return ended

    def _kill(self, stage: Stage, reached: Reached, driver: int) -> int | None:
        """Record what lives, SIGKILL the process that waits at the step, read back how it died; the driver's end when it was the driver."""
        if self._scenario.ready and not stage.is_gate_open() and self._has_command():
            stage.wait_ready()
        alive = list_alive(os.getpid(), self._oracle_pid, read_roles(self._place))
        half = _is_half_written(reached.step) or (stage.is_ready() and not stage.is_gate_open())
        code = None
        if reached.pid == driver:
            kill_child(driver)
            code = stage.wait_end("the killed driver's wait status", parse_step(reached.step).epoch).code
            signal = -code
        else:
            signal = kill_other(reached.pid)
        reached.connection.close()
        note = "" if signal == 9 else f"the process ended with signal {signal}, not 9"
        self.faults.append(Fault(reached.step, "kill", True, signal == 9, reached.pid, max(signal, 0), alive, half, note))
        stage.holds_gate = False
        return code

    def _has_command(self) -> bool:
        return any(one.role == "command" for one in list_alive(os.getpid(), self._oracle_pid, read_roles(self._place)))

    def _supersede(self, stage: Stage, reached: Reached, epoch: int) -> int:
        """Hold the process at its step, drive a successor to its end, release it: it must end with 75 and add nothing."""
        alive = list_alive(os.getpid(), self._oracle_pid, read_roles(self._place))
        code = self._drive_epoch(stage, epoch + 1, {})
        reached.connection.sendall(b"\0")
        stale = stage.wait_end(f"the superseded driver {epoch} to end", epoch).code
        reached.connection.close()
        self.faults.append(Fault(reached.step, "supersede", True, True, reached.pid, 0, alive))
        if stale != STALE:
            detail = f"the superseded driver {epoch} ended with {stale} instead of {STALE}: {self._last_words(epoch)}"
            self.findings.append(OracleVerdict("fencing-exit", Verdict.FAIL, detail))
        return code


def _is_half_written(step: str) -> bool:
    """Whether the file worker stands between the two halves of a file's content."""
    parsed = parse_step(step)
    return parsed.role == "worker" and parsed.name.endswith(".write.half")


def _question(scenario: Scenario, place: Place, reference: Reference, played: Played) -> dict[str, object]:
    epochs = sorted({ended.epoch for ended in played.ends})
    return {
        "log": str(place.state / "log.sqlite"),
        "scratch": str(place.directory / "scratch"),
        "stream": scenario.name,
        "workspace": str(place.work),
        "witness": str(place.witness),
        "acknowledged": [str(place.output(epoch)) for epoch in epochs],
        "reference": reference.listing if scenario.on_interrupted == "reissue" else None,
        "reference_outputs": reference.outputs if scenario.compare_output else None,
        "witnessed": list(scenario.witnessed),
        "on_interrupted": scenario.on_interrupted,
        "script_length": len(scenario.calls),
        "expect_finished": True,
        "outside_edits": False,
        "superseded": [],
        "quarantine": str(_find_quarantine(place)),
    }


def _find_quarantine(place: Place) -> Path:
    for name in sorted(os.listdir(place.directory)):
        if name.startswith(".crashworthy-"):
            return place.directory / name / "quarantine"
    return place.work / ".crashworthy-side" / "quarantine"


def _conclude(trial: Trial, played: Played, judgement: Judgement, oracles: tuple[OracleVerdict, ...], seconds: float) -> TrialResult:
    unfired = find_unfired(trial, played.faults)
    verdicts = [one.verdict for one in oracles]
    reasons = [f"{one.oracle}: {one.detail}" for one in oracles if one.verdict is not Verdict.PASS]
    if unfired:
        verdicts.append(Verdict.UNKNOWN)
        reasons.append("did not fire: " + ", ".join(f"{action.do} at {action.at}" for action in unfired))
    if played.trouble:
        # Trouble of the harness is never a failure of the product: what the oracles then find is an unfinished session.
        verdicts = [Verdict.UNKNOWN]
        reasons.insert(0, played.trouble)
    return TrialResult(
        trial=trial,
        verdict=merge_verdicts(verdicts),
        reason="; ".join(reasons),
        faults=(*played.faults, *(Fault(action.at, action.do, False, False) for action in unfired)),
        oracles=oracles,
        drivers=tuple((ended.epoch, ended.code) for ended in played.ends),
        labels=judgement.labels,
        restored=judgement.restored,
        displaced=judgement.displaced,
        seconds=round(seconds, 4),
    )


def remove_cgroups(place: Place) -> None:
    """Give back the cgroup leaves of a trial whose session did not come to give them back itself."""
    ledger = place.state / "space" / "ledger"
    if not ledger.exists():
        return
    first = ledger.read_text("utf-8", "replace").split("\n", 1)[0].partition(" ")[2]
    name = f"crashworthy.{json.loads(first)['ledger_id']}"
    mounts = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines() if " - cgroup2 " in line]
    own = [line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines() if line.startswith("0::")]
    for top in (Path(mount + path) / name for mount in mounts for path in own):
        for directory, _, _ in os.walk(top, topdown=False):
            os.rmdir(directory)
