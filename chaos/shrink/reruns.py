"""Flakiness: how often a failure comes back, and what follows for how often a case is tried. Pure."""

import math

MISSED = 0.05
"""How likely it may be that a case which fails alike is taken for one that does not."""
MOST_TRIES = 20


def choose_tries(returned: int, reruns: int) -> int:
    """How many trials a case gets to show its failure: one where it came back every time, else so many that all of them miss it with a
    likelihood of `MISSED` at most, by the rate that was measured; never more than `MOST_TRIES`."""
    if returned >= reruns:
        return 1
    return min(MOST_TRIES, math.ceil(math.log(MISSED) / math.log(1 - returned / reruns)))


def describe_rate(when: str, returned: int, reruns: int) -> str:
    """The line for people."""
    rate = f"FLAKINESS {when}: the failure came back in {returned} of {reruns} reruns, rate {returned / reruns:.2f}"
    if 0 < returned < reruns:
        return f"{rate}; it is flaky: each case gets {choose_tries(returned, reruns)} trials to show it"
    return rate
