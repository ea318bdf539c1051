"""Measuring side by side: what is compared runs in turns in one run, and is told as medians and ratios beside its budget. Nothing fails."""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Work = Callable[[], object]


def interleave(subjects: Mapping[str, Work], rounds: int, warm: int = 5) -> dict[str, list[float]]:
    """Seconds of each subject, once per round, the first of a round changing; the `warm` first rounds are not counted."""
    names = list(subjects)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(warm + rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            before = time.perf_counter()
            subjects[name]()
            passed = time.perf_counter() - before
            if number >= warm:
                seconds[name].append(passed)
    return seconds


def interleave_prepared(subjects: Mapping[str, tuple[Work, Work]], rounds: int, warm: int = 1) -> dict[str, list[float]]:
    """Like `interleave`, for work that can be done once only: of each pair the first prepares a round and is not counted."""
    names = list(subjects)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(warm + rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            prepare, work = subjects[name]
            prepare()
            before = time.perf_counter()
            work()
            passed = time.perf_counter() - before
            if number >= warm:
                seconds[name].append(passed)
    return seconds


def tenth(values: list[float]) -> float:
    """The tenth percentile."""
    return sorted(values)[len(values) // 10]


@dataclass
class Report:
    """Lines for people as they come, and the same as one JSON object at the end."""

    found: dict[str, object] = field(default_factory=dict)

    def head(self, title: str) -> None:
        print(f"\n{title}")

    def compare(self, title: str, seconds: Mapping[str, list[float]], bare: str, budgets: Mapping[str, float]) -> None:
        """A table of medians and their ratios to the subject `bare`, beside the budget where there is one. In brackets the ratio of the
        tenth percentiles, of which a loaded disk hides less."""
        self.head(title)
        base, low_base = statistics.median(seconds[bare]), tenth(seconds[bare])
        rows: dict[str, object] = {}
        for name, values in seconds.items():
            middle = statistics.median(values)
            budget = budgets.get(name)
            verdict = "" if budget is None else f"  budget {budget:g} x: {'kept' if middle <= budget * base else 'MISSED'}"
            low, high = min(values), sorted(values)[int(len(values) * 0.95)]
            low_ratio = tenth(values) / low_base
            told = f"p50 {middle * 1e3:9.3f} ms  p95 {high * 1e3:9.3f}  least {low * 1e3:9.3f}"
            print(f"  {name:<44} {told}  {middle / base:6.2f} x ({low_ratio:.2f}){verdict}")
            found = {"p50_ms": middle * 1e3, "p95_ms": high * 1e3, "least_ms": low * 1e3, "ratio": middle / base}
            rows[name] = {**found, "tenth_ms": tenth(values) * 1e3, "tenth_ratio": low_ratio, "budget": budget}
        self.found[title] = rows

    def figure(self, title: str, value: float, unit: str, budget: float | None = None, at_least: bool = False) -> None:
        """One number, beside its budget where there is one."""
        kept = budget is None or (value >= budget if at_least else value <= budget)
        limit = "" if budget is None else f"  budget {'>=' if at_least else '<='} {budget:g} {unit}: {'kept' if kept else 'MISSED'}"
        print(f"  {title:<60} {value:10.2f} {unit}{limit}")
        self.found[title] = {"value": value, "unit": unit, "budget": budget}

    def note(self, title: str, text: str) -> None:
        """A word in place of a number."""
        print(f"  {title:<60} {text}")
        self.found[title] = text

    def write(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.found, file, indent=2)
