"""A zygote that runs nothing: it answers as its script says. In process, or (run as a file) over the real protocol.

The script maps the last step of a plan, or `clean` for the clean run, to what happens there: `pass` (the default), `fail`, `unfired`
(claims a pass although its fault did not fire), `unjudged`, `error` (an answer of that kind), `die`, and for the process only
`babble` (a line that is no answer), `mistake` (answers another question) and `hang`.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaos.required import required_oracles
from chaos.results import Action, Alive, Fault, OracleVerdict, Recording, Trial, TrialResult, Verdict
from chaos.scenario import Scenario
from chaos.step import parse_step
from chaos.zygote_client import ZygoteError, ZygoteLostError
from recovery.script import BashCall

STEPS = (
    "driver@1:start:1",
    "driver@1:intent.commit.before:1",
    "spawner@1:start:1",
    "shim.1@1:start:1",
    "driver@1:outcome.commit.before:1",
    "driver@1:intent.commit.before:2",
    "worker@1:start:1",
)


def make_scenario(name: str = "small", **changes: Any) -> Scenario:
    """A scenario of one call."""
    values: dict[str, Any] = {
        "name": name,
        "about": "",
        "on_interrupted": "reissue",
        "seed": (),
        "calls": (BashCall(b"true"),),
        "witnessed": (),
        "ready": "",
        "gate": "",
        "compare_output": False,
        "plan": (),
    }
    return Scenario(**values | changes)


def all_pass(names: frozenset[str]) -> tuple[OracleVerdict, ...]:
    """A pass of each of these oracles."""
    return tuple(OracleVerdict(name, Verdict.PASS) for name in sorted(names))


ALL_PASS = all_pass(required_oracles(make_scenario()))


class FakeZygote:
    """Answers at once. Leaves a file in each directory it is given, as a trial does. A clean run after a prefix passes the same steps, of
    the epoch after those of the prefix; its recovery decides `settled`."""

    def __init__(self, script: Mapping[str, str], steps: Sequence[str] = STEPS, slot: int = 1) -> None:
        self.slot = slot
        self._script = script
        self._steps = tuple(steps)
        self.lost = False

    def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
        result = self._act(Trial(0, scenario.name, tuple(prefix), fault=""), "clean", directory, required_oracles(scenario, prefix))
        epoch = 1 + max((parse_step(action.at).epoch for action in prefix if action.at), default=0)
        steps = tuple(step.replace("@1:", f"@{epoch}:") for step in self._steps)
        return Recording(scenario.name, steps, result, prefix=tuple(prefix), parts={"recorded": scenario.name})

    def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
        return self._act(trial, last_step(trial), directory, required_oracles(scenario, trial.plan, converges=bool(converges_to)))

    def close(self) -> None:
        self.lost = True

    def _act(self, trial: Trial, key: str, directory: Path, required: frozenset[str]) -> TrialResult:
        if self.lost:
            raise ZygoteLostError("zygote 0 is lost: it was closed")
        assert list(directory.iterdir()) == []
        (directory / "left").write_text("by a trial")
        match self._script.get(key, "pass"):
            case "error":
                raise ZygoteError("the fake was told to err")
            case "die":
                self.lost = True
                raise ZygoteLostError("zygote 0 is lost: it ended")
            case "fail":
                oracle = OracleVerdict("workspace", Verdict.FAIL, "differs", "a\nb", "11", "22", "session 3 call_settled")
                return make_result(trial, Verdict.FAIL, oracles=(oracle,))
            case "unfired":
                return make_result(trial, Verdict.PASS, fired=False, oracles=all_pass(required))
            case "unjudged":
                return make_result(trial, Verdict.PASS, oracles=())
            case _:
                return make_result(trial, Verdict.PASS, oracles=all_pass(required))


class BlindObserver:
    """An observer that sees an empty workspace and an empty log."""

    pid = 0

    def list_tree(self, tree: Path) -> dict[str, Any]:
        return {}

    def read_head(self, log: Path, scratch: Path, stream: str) -> int:
        return 0


def last_step(trial: Trial) -> str:
    """The last step that a trial's plan names."""
    return [action.at for action in trial.plan if action.at][-1]


def make_result(
    trial: Trial,
    verdict: Verdict,
    *,
    fired: bool = True,
    oracles: tuple[OracleVerdict, ...] = ALL_PASS,
    alive: tuple[Alive, ...] = (),
    **more: Any,
) -> TrialResult:
    """The result of a trial whose faults all fired, or none."""
    signals = {"kill": 9}
    faults = tuple(
        Fault(action.at, action.do, True, fired, 7, signals.get(action.do, 0), alive, who=action.who) for action in trial.plan
    )
    values: dict[str, Any] = {"drivers": ((1, -9), (2, 0)), "labels": {"adopt": 1}, "restored": 0, "displaced": 0, "seconds": 0.01}
    values |= {"decisions": ("settled",), "final": "f"}
    return TrialResult(trial, verdict, "as told", faults, oracles, **values | more)


def fake_command(script: Mapping[str, str]) -> list[str]:
    """The command of the fake as a process."""
    boot = "import runpy, sys; sys.path[:] = sys.argv.pop().split(chr(10)); runpy.run_path(sys.argv.pop(), run_name='__main__')"
    return [sys.executable, "-c", boot, json.dumps(dict(script)), __file__, "\n".join(sys.path)]


def _serve(script: Mapping[str, str]) -> None:
    """Speak the protocol until standard input ends."""
    zygote = FakeZygote(script)
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line)
        scenario, directory = make_scenario(request["scenario"]["name"]), Path(request["directory"])
        trial = msgspec.convert(request["trial"], Trial) if request["op"] == "trial" else None
        told = script.get(last_step(trial) if trial else "clean", "pass")
        if told == "hang":
            sys.stdin.buffer.read()
            return
        if told == "babble":
            print("not an answer", flush=True)
            continue
        prefix = msgspec.convert(request.get("prefix", ()), tuple[Action, ...])
        if told == "mistake":
            prefix, trial = (), trial and msgspec.structs.replace(trial, number=trial.number + 1)
        try:
            answer: dict[str, Any] = (
                {"result": zygote.run(scenario, trial, directory, request["converges_to"])}
                if trial
                else {"recording": zygote.record(scenario, prefix, directory)}
            )
        except ZygoteLostError:
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)
        except ZygoteError as error:
            answer = {"error": str(error)}
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
