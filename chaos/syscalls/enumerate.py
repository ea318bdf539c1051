"""From one clean traced run to the kills: a sample of its system calls, spread over the whole run, decided by the seed. Pure.

What must hold: every kind gets an equal share of the kills as far as it has calls; the first and the last pass of each call are among
them; the same recording, number and seed give the same kills. Every other pass is in the enumeration as `NOT_DRAWN`.
"""

import random
from collections.abc import Mapping, Sequence

from chaos.enumeration import Enumeration, Unreachable
from chaos.results import Action, Recording, Trial
from chaos.syscalls.inject import KINDS, Pass, format_pass, parse_target
from eventlog.errors import MisuseError

DEFAULT_KILLS = 50
ENTRY = "syscall"
FAULT = "syscall"
NOT_DRAWN = "not drawn"
"""Why a pass is unreachable here: the sample does not hold it. Another seed, or `--step`, reaches it."""


def enumerate_kills(recording: Recording, first_number: int, kills: int, seed: int, step: str = "") -> Enumeration:
    """The trials of one scenario: `kills` of its passes, or only the one that `step` names. MisuseError when there is no such pass."""
    passes = [parse_target(one) for one in recording.steps]
    drawn = draw_passes(passes, kills, random.Random(seed)) if not step else _choose_one(passes, step)
    aimed = {format_pass(one) for one in drawn}
    plans = [(Action(one, "kill"),) for one in recording.steps if one in aimed]
    trials = tuple(Trial(number, recording.scenario, plan, ENTRY, FAULT) for number, plan in enumerate(plans, first_number))
    unreachable = tuple(Unreachable(one, NOT_DRAWN) for one in recording.steps if one not in aimed)
    return Enumeration(recording.scenario, recording.steps, trials, unreachable, recording.kill_mark)


def _choose_one(passes: Sequence[Pass], step: str) -> list[Pass]:
    chosen = [one for one in passes if format_pass(one) == step]
    if not chosen:
        last = {one.name: format_pass(one) for one in passes}
        raise MisuseError(f"--step {step}: the clean run passes no such call; the last ones it passes are {', '.join(last.values())}")
    return chosen


def draw_passes(passes: Sequence[Pass], kills: int, draw: random.Random) -> list[Pass]:
    """At most `kills` of `passes`, each kind's share drawn by itself."""
    by_kind = {kind: [one for one in passes if one.name in names] for kind, names in KINDS.items()}
    shares = share_kills({kind: len(members) for kind, members in by_kind.items()}, kills)
    return [one for kind, members in by_kind.items() for one in _draw_spread(members, shares[kind], draw)]


def share_kills(sizes: Mapping[str, int], kills: int) -> dict[str, int]:
    """How many kills each kind gets: one each in turn, until all are given or every kind has one for each of its calls."""
    shares = dict.fromkeys(sizes, 0)
    left = min(kills, sum(sizes.values()))
    while left:
        for kind in sizes:
            if left and shares[kind] < sizes[kind]:
                shares[kind] += 1
                left -= 1
    return shares


def _draw_spread(members: Sequence[Pass], count: int, draw: random.Random) -> list[Pass]:
    """The ends of each call, then one from each of as many equal stretches of the rest as are left to draw."""
    ends = [one for one in members if one.count in (1, _last(members, one.name))]
    if count <= len(ends):
        return draw.sample(ends, count)
    rest = [one for one in members if one not in ends]
    wanted = count - len(ends)
    borders = [len(rest) * number // wanted for number in range(wanted + 1)]
    return ends + [draw.choice(rest[begin:end]) for begin, end in zip(borders, borders[1:], strict=False)]


def _last(members: Sequence[Pass], name: str) -> int:
    return max(one.count for one in members if one.name == name)
