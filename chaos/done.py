"""What a campaign that was killed has behind it. Pure."""

from collections import Counter
from dataclasses import dataclass

from chaos.results import Action, Recording, TrialResult


@dataclass(frozen=True, slots=True)
class Done:
    """What a campaign has behind it: clean runs and trials with their results, how many sets have their steps recorded, the seconds that
    it took."""

    recordings: tuple[Recording, ...] = ()
    results: tuple[TrialResult, ...] = ()
    sets: int = 0
    seconds: float = 0.0

    @property
    def missing(self) -> list[TrialResult]:
        """The results of clean runs that a crash kept from being written beside their recordings."""
        written = Counter(one.trial for one in self.results if not one.trial.number)
        found = []
        for recording in self.recordings:
            if written[recording.result.trial] > 0:
                written[recording.result.trial] -= 1
            else:
                found.append(recording.result)
        return found

    def find_trials(self) -> dict[tuple[str, int], TrialResult]:
        """The results of trials by scenario and number."""
        return {(one.trial.scenario, one.trial.number): one for one in self.results if one.trial.number}

    def group_recordings(self) -> dict[tuple[str, tuple[Action, ...]], list[Recording]]:
        """The clean runs by scenario and what comes before, in the order of their ends."""
        grouped: dict[tuple[str, tuple[Action, ...]], list[Recording]] = {}
        for one in self.recordings:
            grouped.setdefault((one.scenario, one.prefix), []).append(one)
        return grouped


NOTHING = Done()
