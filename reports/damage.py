"""What became of damage, by what was damaged and how. Pure: read from the oracle `damage` of each trial."""

from collections import Counter
from collections.abc import Sequence

from chaos.results import TrialResult, Verdict
from reports.words import escape

ORACLE = "damage"
ENDS = ("detected", "harmless", "cut tail")


def count_damage(results: Sequence[TrialResult]) -> dict[str, Counter[str]]:
    """For each `ROLE KIND` of damage that was tried: `trials`, and how many ended how: by ENDS, `lost` (acknowledged calls were lost),
    `bad` (it did not pass)."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        for action in result.trial.plan:
            if action.do == "corrupt":
                name = f"{action.path.partition('.')[0]} {(action.content or '').partition(' ')[0]}"
                counts.setdefault(name, Counter()).update(["trials", *_find_ends(result)])
    return dict(sorted(counts.items()))


def _find_ends(result: TrialResult) -> list[str]:
    said = next((one for one in result.oracles if one.oracle == ORACLE and one.verdict is Verdict.PASS), None)
    ends = [] if said is None else [end for end in ENDS if said.detail.startswith(end)]
    return [*ends, *(["lost"] if result.lost_calls else []), *(["bad"] if result.verdict is not Verdict.PASS else [])]


def render_damage(results: Sequence[TrialResult]) -> list[str]:
    """A line DAMAGE for each; none where nothing was damaged."""
    names = ("trials", *ENDS, "lost", "bad")
    return [
        f"DAMAGE {escape(name)} " + " ".join(f"{one.replace(' ', '_')}={counts[one]}" for one in names)
        for name, counts in count_damage(results).items()
    ]
