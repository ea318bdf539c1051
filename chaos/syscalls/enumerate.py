"""From clean traced runs to the kills: a sample of their system calls, spread over the whole run, decided by the seed. Pure.

What must hold: every kind gets an equal share of the kills as far as it has calls, within a kind every role; the first and the last pass of
each call, before and after it, are among them as far as the share goes; the same recording, number and seed give the same kills. Every
other pass is in the enumeration as `NOT_DRAWN`.
"""

import random
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from chaos.enumeration import Enumeration, Unreachable
from chaos.results import Action, Recording, Trial
from chaos.syscalls.calls import KIND_OF, KINDS, MOMENTS, ROLES, Aim, Target, format_aim, parse_aim
from chaos.syscalls.inject import Pass
from eventlog.errors import MisuseError

DEFAULT_KILLS = 72
ENTRY = "syscall"
FAULT = "syscall"
NOT_DRAWN = "not drawn"
"""Why a pass is unreachable here: the sample does not hold it. Another seed, or `--step`, reaches it."""

Group = TypeVar("Group", bound=Hashable)


def list_aims(role: str, passes: Sequence[Pass], start: int = 1) -> list[Aim]:
    """Where a process that made these calls can be killed, in their order."""
    return [Aim(role, Target(one.name, one.count, moment), start) for one in passes for moment in MOMENTS]


def enumerate_kills(recording: Recording, first_number: int, kills: int, seed: int, step: str = "") -> Enumeration:
    """The trials of one scenario: `kills` of its passes, or only the one that `step` names. MisuseError when there is no such pass. Where
    kills came before, in earlier starts, the passes are those of the start after them."""
    before = recording.prefix
    aims = [parse_aim(one, len(before) + 1) for one in recording.steps]
    drawn = draw_aims(aims, kills, random.Random(seed)) if not step else _choose_one(aims, step)
    aimed = {format_aim(one) for one in drawn}
    plans = [(*before, Action(one, "kill")) for one in recording.steps if one in aimed]
    trials = tuple(Trial(number, recording.scenario, plan, ENTRY, FAULT) for number, plan in enumerate(plans, first_number))
    unreachable = tuple(Unreachable(one, NOT_DRAWN) for one in recording.steps if one not in aimed)
    return Enumeration(recording.scenario, recording.steps, trials, unreachable, recording.kill_mark, before)


def _choose_one(aims: Sequence[Aim], step: str) -> list[Aim]:
    wanted = parse_aim(step)
    chosen = [one for one in aims if one == wanted]
    if not chosen:
        last = {(one.role, one.target.name): format_aim(one) for one in aims if one.role == wanted.role}
        there = ", ".join(last.values()) or "none of that process"
        raise MisuseError(f"--step {step}: the clean run passes no such call; the last ones it passes are {there}")
    return chosen


def draw_aims(aims: Sequence[Aim], kills: int, draw: random.Random) -> list[Aim]:
    """At most `kills` of `aims`: each kind's share, in it each role's, drawn by itself."""
    by_kind = {kind: [one for one in aims if KIND_OF[one.target.name] == kind] for kind in KINDS}
    drawn: list[Aim] = []
    for kind, share in share_kills({kind: len(members) for kind, members in by_kind.items()}, kills).items():
        by_role = {role: [one for one in by_kind[kind] if one.role == role] for role in ROLES}
        shares = share_kills({role: len(members) for role, members in by_role.items()}, share)
        drawn += [one for role, members in by_role.items() for one in _draw_spread(members, shares[role], draw)]
    return drawn


def share_kills(sizes: Mapping[Group, int], kills: int) -> dict[Group, int]:
    """How many kills each group gets: one each in turn, until all are given or every group has one for each of its passes."""
    shares = dict.fromkeys(sizes, 0)
    left = min(kills, sum(sizes.values()))
    while left:
        for group in sizes:
            if left and shares[group] < sizes[group]:
                shares[group] += 1
                left -= 1
    return shares


def _draw_spread(members: Sequence[Aim], count: int, draw: random.Random) -> list[Aim]:
    """The ends of each call, then one from each of as many equal stretches of the rest as are left to draw."""
    names = {one.target.name: [other.target.count for other in members if other.target.name == one.target.name] for one in members}
    ends = [one for one in members if one.target.count in (min(names[one.target.name]), max(names[one.target.name]))]
    if count <= len(ends):
        return draw.sample(ends, count)
    rest = [one for one in members if one not in ends]
    wanted = count - len(ends)
    borders = [len(rest) * number // wanted for number in range(wanted + 1)]
    return ends + [draw.choice(rest[begin:end]) for begin, end in zip(borders, borders[1:], strict=False)]
