"""The shrinker: it knows a value, what makes smaller ones of it, and a predicate; nothing of trials.

What must hold:
- Every value that is kept passed `consider`, the one place that asks the predicate; nobody is asked twice of one value.
- Every value that is kept is smaller than the one before by one order (`measure`): so it comes to an end.
- When the time is up the smallest one so far is the result, and `is_complete` says that more might have been found.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Shrinker(Generic[Value]):
    """Shrinks one value. `is_same` is the predicate, `is_time_up` is asked before each question, `tell` hears of each smaller value."""

    def __init__(
        self,
        is_same: Callable[[Value], bool],
        measure: Callable[[Value], Any],
        is_time_up: Callable[[], bool],
        tell: Callable[[Value], None] = lambda value: None,
    ) -> None:
        self._is_same = is_same
        self._measure = measure
        self._is_time_up = is_time_up
        self._tell = tell
        self._known: dict[Value, bool] = {}
        self.is_complete = True

    @property
    def asked(self) -> int:
        """Of how many values the predicate was asked."""
        return len(self._known)

    def shrink(self, value: Value, passes: Sequence[Callable[[Value], Iterator[Value]]]) -> Value:
        """The smallest value found: pass after pass, each again from the start when it found one, until none of them finds any."""
        smallest = value
        has_found = True
        while has_found and self.is_complete:
            has_found = False
            for propose in passes:
                while (better := self._find(smallest, propose)) is not None:
                    smallest, has_found = better, True
                    self._tell(smallest)
        return smallest

    def _find(self, value: Value, propose: Callable[[Value], Iterator[Value]]) -> Value | None:
        size = self._measure(value)
        return next((one for one in propose(value) if self._measure(one) < size and self.consider(one)), None)

    def consider(self, value: Value) -> bool:
        """Whether it does what the first one does; False without a question once the time is up."""
        if value not in self._known:
            if self._is_time_up():
                self.is_complete = False
                return False
            self._known[value] = self._is_same(value)
        return self._known[value]
