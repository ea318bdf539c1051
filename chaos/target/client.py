"""A runner of targets seen from the campaign: a zygote that knows its target, whatever scenario it is asked about."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.results import Action, Recording, Trial, TrialResult
from chaos.scenario import Scenario
from chaos.target.target import Target
from chaos.zygote_client import ProcessZygote, zygote_command

RUNNER = "chaos.target.runner"
SPARE_SECS = 120.0


class TargetZygote(ProcessZygote):
    """Plays trials of one target. `log` is the file its standard error goes to."""

    def __init__(self, target: Target, log: Path, slot: int = 1) -> None:
        # Two clean runs, or a kill and as many starts as there may be, and the check: each has the target's own patience.
        answer_secs = (target.starts + 4) * target.patience_secs + SPARE_SECS
        super().__init__([*zygote_command(None), "--runner", RUNNER], log, answer_secs, slot)
        self.target = target

    def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
        return self.record_target(directory, prefix)

    def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
        return self.run_target(trial, directory)

    def record_target(self, directory: Path, prefix: Sequence[Action] = ()) -> Recording:
        """Clean runs in `directory`, which exists and is empty, or the run with the kills of `prefix`. Raises ZygoteError."""
        answer = self._ask({"op": "record", "target": self.target, "directory": os.fspath(directory), "prefix": list(prefix)})
        if answer.recording is None or answer.recording.prefix != tuple(prefix):
            raise self._lose("it answered a request for a clean run with something else")
        return answer.recording

    def run_target(self, trial: Trial, directory: Path, op: str = "trial") -> TrialResult:
        """One trial in `directory`, which exists and is empty; with the `op` replay its transcript stays there whatever the verdict. Raises
        ZygoteError."""
        answer = self._ask({"op": op, "target": self.target, "trial": trial, "directory": os.fspath(directory)})
        if answer.result is None or answer.result.trial != trial:
            raise self._lose(f"it answered a request for trial {trial.number} with something else")
        return answer.result
