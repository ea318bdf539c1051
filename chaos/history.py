"""The history of a campaign: JSON Lines, one line per operation and per change of a fault, appended as they happen.

Every line has `at_ms` (milliseconds since the campaign began) and `what`:

- `trial started` with `trial`, `scenario`, `entry`; a clean run is trial 0 of its scenario
- `trial ended` with `trial`, `scenario`, `end` (`ok`, `failed`, `unknown`), `reason`
- `fault armed`, `fault reached`, `fault fired` with `trial`, `scenario`, `at`, `do`, `who`, and for fired `pid` and `signal`
- `zygote lost` with `slot` and `reason`; `campaign resumed`; `campaign ended` with `verdict`

A line is whole or it is the last one, cut by a crash of the harness: readers stop there.
"""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, assert_never

import msgspec

from chaos.results import Trial, TrialResult, Verdict

Clock = Callable[[], float]


class History:
    """Appends to a history file. Used by one thread."""

    def __init__(self, path: Path, clock: Clock, since_secs: float = 0.0) -> None:
        """`clock` counts seconds; its zero is taken here, `since_secs` before now."""
        self._file = path.open("ab", buffering=0)
        self._clock = clock
        self._start = clock() - since_secs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def note(self, what: str, **details: object) -> None:
        """Append one line."""
        line = {"at_ms": round((self._clock() - self._start) * 1000), "what": what} | details
        self._file.write(msgspec.json.encode(line) + b"\n")

    def note_started(self, trial: Trial) -> None:
        """A trial begins, and its faults are armed."""
        self.note("trial started", trial=trial.number, scenario=trial.scenario, entry=trial.entry)
        for action in trial.plan:
            self.note("fault armed", trial=trial.number, scenario=trial.scenario, at=action.at, do=action.do, who=action.who)

    def note_ended(self, result: TrialResult) -> None:
        """What became of each fault, then how the trial ended."""
        number, scenario = result.trial.number, result.trial.scenario
        for fault in result.faults:
            if fault.reached:
                self.note("fault reached", trial=number, scenario=scenario, at=fault.at, do=fault.do, who=fault.who)
            if fault.fired:
                what = {"at": fault.at, "do": fault.do, "who": fault.who, "pid": fault.pid, "signal": fault.signal}
                self.note("fault fired", trial=number, scenario=scenario, **what)
        end = end_word(result.verdict)
        self.note("trial ended", trial=number, scenario=result.trial.scenario, end=end, reason=result.reason)


def end_word(verdict: Verdict) -> str:
    """How the end of a trial is called here."""
    match verdict:
        case Verdict.PASS:
            return "ok"
        case Verdict.FAIL:
            return "failed"
        case Verdict.UNKNOWN:
            return "unknown"
        case _:
            assert_never(verdict)
