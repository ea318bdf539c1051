"""Trials that passed counted together: a million rows would say no more. What did not pass stands alone."""

from collections.abc import Iterable
from typing import Any

import msgspec

from chaos.results import TrialResult, Verdict

DRAWN = "sim-drawn"
"""The name under which drawn trials that passed stand in a run directory."""
Key = tuple[Any, ...]


class Tally:
    """Gathers results: one for each way in which trials passed, with how many there were, and every other one."""

    def __init__(self) -> None:
        self._passed: dict[Key, TrialResult] = {}
        self.others: list[TrialResult] = []

    def add(self, result: TrialResult) -> None:
        """One more result, which may stand for several."""
        if result.verdict is not Verdict.PASS:
            self.others.append(result)
            return
        key = _key_of(result)
        known = self._passed.get(key)
        if known is None:
            trial = msgspec.structs.replace(result.trial, scenario=DRAWN)
            self._passed[key] = msgspec.structs.replace(result, trial=trial, digest="", final="")
        else:
            self._passed[key] = msgspec.structs.replace(known, count=known.count + result.count, seconds=known.seconds + result.seconds)

    def add_all(self, results: Iterable[TrialResult]) -> None:
        """Several."""
        for result in results:
            self.add(result)

    @property
    def results(self) -> tuple[TrialResult, ...]:
        """All that is to be told, in a fixed order."""
        return (*(self._passed[key] for key in sorted(self._passed, key=repr)), *self.others)


def _key_of(result: TrialResult) -> Key:
    """What reports count of a passed trial."""
    fired = tuple((fault.do, bool(fault.alive)) for fault in result.faults)
    codes = tuple(code for _, code in result.drivers)
    oracles = tuple(one.oracle for one in result.oracles)
    return result.trial.fault, fired, result.decisions, codes, result.restored > 0, result.displaced > 0, oracles
