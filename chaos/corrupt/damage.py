"""What is done to the bytes of one file, as a value with a text form; and the bytes afterwards. Pure.

    flip OFFSET BIT             one bit is another
    zero OFFSET LENGTH          a block is all zeroes
    cut LENGTH                  the last LENGTH bytes are gone
    swap OFFSET OFFSET LENGTH   two blocks stand in each other's place
    stale OFFSET LENGTH         a block is as it was at an earlier moment: a write that never arrived
    stale                       the whole file is as it was then

An offset is counted modulo the file's size: two plays of one session make files that differ by a few bytes, and a position must mean
something in each. What must hold: damage that leaves the bytes as they were is no damage (`apply_damage` gives None), never a trial.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from eventlog.errors import MisuseError

ROLES = ("log", "wal", "ledger", "record", "blob", "manifest", "content")
"""What can be damaged; those of which there are several are numbered from 1 (chaos/corrupt/targets.py)."""
_TARGET = re.compile(r"(log|wal|ledger|(record|blob|manifest|content)\.[1-9][0-9]*)\Z")


@dataclass(frozen=True, slots=True)
class Damage:
    """One kind of damage with its numbers, in the order of its text form."""

    kind: str
    numbers: tuple[int, ...] = ()


def check_target(name: str, where: str = "damage") -> str:
    """The name of what is damaged; MisuseError when nothing is called so."""
    if _TARGET.match(name) is None:
        known = "log, wal, ledger, record.1, blob.1, manifest.1 or content.1 (or another number)"
        raise MisuseError(f"{where}: {name!r} cannot be damaged; use {known}")
    return name


def parse_damage(text: str, where: str = "damage") -> Damage:
    """The damage that a text says; MisuseError shows the forms there are."""
    kind, *words = text.split() or [""]
    form = FORMS.get(kind)
    if form is None or len(words) not in form.counts or not all(word.isascii() and word.isdigit() for word in words):
        forms = ", ".join(repr(f"{name} {one.words}".strip()) for name, one in FORMS.items())
        raise MisuseError(f"{where}: {text!r} is no damage; use {forms}, with numbers of bytes")
    return Damage(kind, tuple(map(int, words)))


def format_damage(damage: Damage) -> str:
    """Its text form."""
    return " ".join([damage.kind, *map(str, damage.numbers)])


def apply_damage(damage: Damage, data: bytes, older: bytes) -> bytes | None:
    """The bytes after it, None when they are the same. `older` is what the file held at the earlier moment, empty when it was not there."""
    changed = FORMS[damage.kind].change(data, older, damage.numbers) if data else data
    return None if changed == data else changed


def apply_near(damage: Damage, data: bytes, older: bytes) -> tuple[Damage, bytes] | None:
    """The damage done at its place or, where that changes nothing in this play of the session, at the next blocks after it; None when no
    place is left. Tells where it was done."""
    if damage.kind == "flip" or len(damage.numbers) < 2:
        changed = apply_damage(damage, data, older)
        return None if changed is None else (damage, changed)
    length = max(1, damage.numbers[-1])
    for number in range(len(data) // length + 1):
        moved = replace(damage, numbers=(*((at + number * length) % max(1, len(data)) for at in damage.numbers[:-1]), length))
        changed = apply_damage(moved, data, older)
        if changed is not None:
            return moved, changed
    return None


def _flip(data: bytes, older: bytes, numbers: tuple[int, ...]) -> bytes:
    at = numbers[0] % len(data)
    return data[:at] + bytes([data[at] ^ 1 << numbers[1] % 8]) + data[at + 1 :]


def _put(data: bytes, at: int, block: bytes) -> bytes:
    return data[:at] + block + data[at + len(block) :]


def _zero(data: bytes, older: bytes, numbers: tuple[int, ...]) -> bytes:
    at = numbers[0] % len(data)
    return _put(data, at, bytes(min(numbers[1], len(data) - at)))


def _cut(data: bytes, older: bytes, numbers: tuple[int, ...]) -> bytes:
    return data[: max(0, len(data) - numbers[0])]


def _swap(data: bytes, older: bytes, numbers: tuple[int, ...]) -> bytes:
    one, other = sorted(number % len(data) for number in numbers[:2])
    length = min(numbers[2], other - one, len(data) - other)
    first, second = data[one : one + length], data[other : other + length]
    return _put(_put(data, one, second), other, first)


def _make_stale(data: bytes, older: bytes, numbers: tuple[int, ...]) -> bytes:
    if not numbers:
        return older
    at = numbers[0] % len(data)
    return _put(data, at, older[at : at + numbers[1]])


@dataclass(frozen=True, slots=True)
class Form:
    """How one kind is written (`words`, as many numbers as `counts` says) and what it does."""

    words: str
    counts: tuple[int, ...]
    change: Callable[[bytes, bytes, tuple[int, ...]], bytes]


FORMS: Mapping[str, Form] = {
    "flip": Form("OFFSET BIT", (2,), _flip),
    "zero": Form("OFFSET LENGTH", (2,), _zero),
    "cut": Form("LENGTH", (1,), _cut),
    "swap": Form("OFFSET OFFSET LENGTH", (3,), _swap),
    "stale": Form("[OFFSET LENGTH]", (0, 2), _make_stale),
}
