"""Copies of frozen, slotted values with some fields changed, for folds over long histories: `dataclasses.replace` would be most of them."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")
Setter = Callable[[Any, Any], None]
_Plan = tuple[Mapping[str, Setter], Callable[[Any], tuple[Any, ...]]]
_plans: dict[type, _Plan] = {}
"""What is known of each class: derived from the class alone, so that it does not matter who asked first."""


def _plan(kind: type) -> _Plan:
    """How each field of a class is set in a new value, and how all are read, in the order of the fields."""
    known = _plans.get(kind)
    if known is None:
        names = [name for base in reversed(kind.__mro__) for name in getattr(base, "__slots__", ())]
        known = _plans[kind] = {name: getattr(kind, name).__set__ for name in names}, attrgetter(*names)
    return known


def become(value: Any, kind: type[T]) -> T:
    """A new value of a class with the same fields, which are at least two and need nothing to be done after the making."""
    made = object.__new__(kind)
    for place, field in zip(_plan(kind)[0].values(), _plan(type(value))[1](value), strict=True):
        place(made, field)
    return made


def replace(value: T, **changes: Any) -> T:
    """`value` with these fields changed, as another value. Raises KeyError for a field that it has not."""
    kind = type(value)
    made = become(value, kind)
    places = _plan(kind)[0]
    for name, field in changes.items():
        places[name](made, field)
    return made
