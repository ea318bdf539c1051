"""The calls of a session in order, as a value: never changed, and yet a longer one costs no copy of the ones before it. Pure.

The newest call is held apart, because it is the one that changes (attempts, its end). All before it stand in a list that the values of one
history share: each knows how many of them are its own, and only the longest of them may add to it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class CallList(Sequence[T], Generic[T]):
    """Equal to any sequence of the same items."""

    __slots__ = ("_before", "_length", "_newest")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._before: list[T] = list(items)
        self._newest: list[T] = [self._before.pop()] if self._before else []
        self._length = len(self._before)  # of what is before the newest

    @property
    def newest(self) -> T | None:
        """The last item, None without one."""
        return self._newest[0] if self._newest else None

    def append(self, item: T) -> "CallList[T]":
        """One item longer."""
        made: CallList[T] = CallList()
        before = self._before if len(self._before) == self._length else self._before[: self._length]
        before.extend(self._newest)
        made._before, made._length, made._newest = before, self._length + len(self._newest), [item]
        return made

    def with_newest(self, item: T) -> "CallList[T]":
        """The same with another newest item. Raises IndexError when there is none."""
        if not self._newest:
            raise IndexError("there is no newest call")
        made: CallList[T] = CallList()
        made._before, made._length, made._newest = self._before, self._length, [item]
        return made

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> "tuple[T, ...]": ...
    def __getitem__(self, place: int | slice) -> "T | tuple[T, ...]":
        if isinstance(place, slice):
            return tuple(self)[place]
        length = len(self)
        at = place + length if place < 0 else place
        if not 0 <= at < length:
            raise IndexError(f"{length} calls, and no call {place}")
        return self._before[at] if at < self._length else self._newest[0]

    def __iter__(self) -> Iterator[T]:
        for place in range(self._length):
            yield self._before[place]
        yield from self._newest

    def __len__(self) -> int:
        return self._length + len(self._newest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"CallList({list(self)!r})"
