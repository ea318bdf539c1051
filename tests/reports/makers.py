"""Results and runs made by hand."""

from typing import Any

from chaos.results import Action, Alive, Fault, OracleVerdict, Trial, TrialResult, Verdict
from reports.load import Judgement, KnownLabel, Run, RunConfig, ScenarioSteps, UnreachableStep

LABELS = (KnownLabel("reattach"), KnownLabel("adopt_exit"), KnownLabel("ask", False), KnownLabel("settled"))
CONFIG = RunConfig(format=2, seed=7, mode="ci", command="chaos --seed 7", arguments={"small": "small"}, labels=LABELS)
COMMAND = Alive(3, "command", "bash")
SHIM = Alive(4, "shim.1", "python")


def make_run(*results: TrialResult, steps: tuple[str, ...] = (), **more: Any) -> Run:
    """A run of the scenario `small`; it passed unless `judgement` says otherwise."""
    scenarios = (ScenarioSteps("small", steps, (UnreachableStep("driver@2:start:1", "not yet"),) if steps else (), 1),)
    values: dict[str, Any] = {"config": CONFIG, "judgement": Judgement(Verdict.PASS, ()), "seconds": 2.0}
    return Run("runs/1", results=results, **{"scenarios": scenarios} | values | more)


def make_trial(number: int, verdict: Verdict, do: str = "kill", entry: str = "fork", **more: Any) -> TrialResult:
    """A trial of one action, at `at`, counted under the fault's own name; `fault` changes what became of it."""
    at = more.pop("at", f"driver@1:s:{number}")
    became = {"reached": True, "fired": True, "alive": (), "half_written": False} | more.pop("fault", {})
    name = "exec" if entry == "exec" else do
    return make_result(Trial(number, "small", (Action(at, do),), entry, name), verdict, (Fault(at, do, **became),), **more)


def make_plan(number: int, name: str, *actions: Action, **more: Any) -> TrialResult:
    """A trial of several actions that passed; each of them fired, but for the indexes in `unfired`."""
    unfired, alive = more.pop("unfired", ()), more.pop("alive", {})
    faults = tuple(
        Fault(one.at, one.do, True, index not in unfired, alive=alive.get(index, ()), who=one.who) for index, one in enumerate(actions)
    )
    trial = Trial(number, more.pop("scenario", "small"), actions, more.pop("entry", "fork"), name)
    return make_result(trial, more.pop("verdict", Verdict.PASS), faults, **more)


def make_clean(verdict: Verdict = Verdict.PASS, **more: Any) -> TrialResult:
    """A clean run."""
    return make_result(Trial(0, "small", ()), verdict, (), **more)


def make_result(trial: Trial, verdict: Verdict, faults: tuple[Fault, ...], **more: Any) -> TrialResult:
    """The result of a trial, 0.1 seconds long."""
    values: dict[str, Any] = {"oracles": (), "labels": {}, "restored": 0, "displaced": 0, "kept": "", "seconds": 0.1} | more
    return TrialResult(trial, verdict, values.pop("reason", "why"), faults, drivers=values.pop("drivers", ()), **values)


def say(name: str, verdict: Verdict) -> OracleVerdict:
    """An oracle that says no more than its verdict."""
    return OracleVerdict(name, verdict)
