"""Which damage is tried, from the sizes of what can be damaged. Pure: some positions are enumerated, the rest drawn from the seed.

Enumerated: every page of log and WAL zeroed, swapped with its neighbour and stale; the first bytes of each file; every kind once for each
object; ends cut at a byte, a page, the half, all. Drawn: bits anywhere.
"""

import random
from collections.abc import Iterator, Sequence

from chaos.corrupt.damage import Damage, apply_damage, format_damage
from chaos.enumeration import Enumeration, Unreachable
from chaos.results import Action, Recording, Trial
from chaos.scenario import Scenario
from eventlog.errors import MisuseError

FAULT = "corrupt"
ENTRY = "corrupt"
PAGE_BYTES = 16384
FRAME_BYTES = 24 + PAGE_BYTES
WAL_HEADER_BYTES = 32
BLOCK_BYTES = 512
"""What a small file is cut into: a sector."""
HEADER_BITS = 8
"""So many bits are flipped in the first bytes of each file: in what says what it is."""
DRAWN_BITS = 24
"""So many bits are drawn for each file of the log and the ledger; OBJECT_BITS for each object and blob."""
OBJECT_BITS = 2
WITHIN = ("record", "blob")
"""What is a part of a file that is damaged as a whole besides."""
HEADER_BYTES = 100
"""SQLite's header; what stands first in the others is shorter."""


DULL = "changes nothing"
"""Why damage is unreachable here: in this session the bytes are what they would become."""


def format_size(name: str, length: int) -> str:
    """How a recording names what can be damaged."""
    return f"{name} {length}"


def list_dull(name: str, data: bytes, older: bytes) -> list[str]:
    """The damage of blocks and whole files that would leave these bytes as they are, as a recording names it."""
    enumerated = (one for one in list_damage(name, len(data), random.Random(0)) if one.kind != "flip")
    return [f"{name}: {format_damage(one)}" for one in enumerated if apply_damage(one, data, older) is None]


def enumerate_damage(recording: Recording, first_number: int, seed: int) -> Enumeration:
    """The trials of one recording: each piece of damage that it has room for."""
    dull = [one for one in recording.steps if ": " in one]
    plans = [
        (*recording.prefix, Action("", "corrupt", path=name, content=format_damage(damage)))
        for name, length in (_parse_size(one) for one in recording.steps if ": " not in one)
        for damage in list_damage(name, length, random.Random(f"{seed} {name}"))
        if f"{name}: {format_damage(damage)}" not in dull
    ]
    trials = tuple(Trial(number, recording.scenario, plan, ENTRY, FAULT) for number, plan in enumerate(plans, first_number))
    left_out = tuple(Unreachable(one, DULL) for one in dull)
    return Enumeration(recording.scenario, tuple(dull), trials, left_out, recording.kill_mark, recording.prefix, does="corrupt")


def required_of_damage(scenario: Scenario, plan: Sequence[Action] = (), *, converges: bool = False) -> frozenset[str]:
    """The oracles that must judge a trial of damage, or the sound session before it."""
    has_damage = any(action.do == FAULT for action in plan)
    return frozenset({"damage", "looked-only", "driven"} if has_damage else {"sound"})


def _parse_size(text: str) -> tuple[str, int]:
    name, _, length = text.partition(" ")
    if not name or not length.isdigit():
        raise MisuseError(f"recording: {text!r} does not say what can be damaged, and how many bytes it has")
    return name, int(length)


def list_damage(name: str, length: int, draw: random.Random) -> list[Damage]:
    """What is done to `length` bytes of what `name` says, without repetition."""
    role = name.partition(".")[0]
    grain, first = {"log": (PAGE_BYTES, 0), "wal": (FRAME_BYTES, WAL_HEADER_BYTES)}.get(role, (BLOCK_BYTES, 0))
    found = list(_flip_bits(role, length, draw))
    if role != "record":  # the ledger's own blocks are changed as a whole
        found += _change_blocks(length, grain, first)
    if role not in WITHIN:
        found += [Damage("cut", (cut,)) for cut in (1, grain, length // 2, length) if 0 < cut <= length]
        found.append(Damage("stale"))
    return list(dict.fromkeys(found))


def _flip_bits(role: str, length: int, draw: random.Random) -> Iterator[Damage]:
    bits = DRAWN_BITS if role in ("log", "wal", "ledger") else OBJECT_BITS
    for number in range(1 if role in WITHIN else HEADER_BITS):
        yield Damage("flip", (draw.randrange(min(HEADER_BYTES, length)), number % 8))
    for _ in range(bits):
        yield Damage("flip", (draw.randrange(length), draw.randrange(8)))


def _change_blocks(length: int, grain: int, first: int) -> Iterator[Damage]:
    starts: Sequence[int] = range(first, length, grain)
    for start in starts:
        yield Damage("zero", (start, grain))
        yield Damage("stale", (start, grain))
    for one, other in zip(starts, starts[1:], strict=False):
        yield Damage("swap", (one, other, grain))
