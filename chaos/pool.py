"""Zygotes at work: one thread per zygote takes requests from one queue; answers come back in the order of their ends.

What must hold: every request taken gets exactly one answer, a value or trouble. A lost zygote is replaced, `RESTARTS` times per slot;
a slot that has used them up stops. When all have stopped and requests are left, `AllLostError`: the harness is broken, and
a campaign that went on would only count unknowns.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from chaos.zygote_client import Zygote, ZygoteError, ZygoteLostError

RESTARTS = 3
AHEAD = 2
"""Requests per zygote that may be begun before the caller has taken the answers: `stop` is felt after at most as many more."""

Request = TypeVar("Request")
Value = TypeVar("Value")


class AllLostError(Exception):
    """No zygote is left. The message says why the last one went."""


@dataclass(frozen=True, slots=True)
class Began(Generic[Request]):
    """A zygote took this request."""

    request: Request


@dataclass(frozen=True, slots=True)
class Answered(Generic[Request, Value]):
    """A request ended: `value`, or None and the `trouble` there was."""

    request: Request
    value: Value | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """The zygote of a slot went away."""

    slot: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Crashed:
    """A thread met an exception that is no trouble of a zygote: a bug, raised again in the caller's thread."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class _Stopped:
    """A thread ended."""


class _Slot:
    """The place of one zygote; used by one thread at a time."""

    def __init__(self, number: int, start: Callable[[int], Zygote]) -> None:
        self.number = number
        self.restarts_left = RESTARTS
        self._start = start
        self._zygote: Zygote | None = None

    def get(self) -> Zygote:
        if self._zygote is None:
            self._zygote = self._start(self.number)
        return self._zygote

    def drop(self) -> bool:
        """Close a lost zygote; whether another may be started."""
        self.close()
        self.restarts_left -= 1
        return self.restarts_left >= 0

    def close(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None


def _one_group(request: object) -> Hashable:
    """All requests alike."""
    return ""


class _Queue(Generic[Request]):
    """Requests in groups that are best answered by one zygote, which then need not make for each group what another has made already.

    A slot takes from the group it works on, then from one that it worked on before (`homes`), then from the largest that nobody works
    on, then from the largest.
    """

    def __init__(self, requests: Sequence[Request], group_of: Callable[[Request], Hashable], homes: dict[Hashable, int]) -> None:
        self._lock = threading.Lock()
        self._groups: dict[Hashable, deque[Request]] = {}
        for request in requests:
            self._groups.setdefault(group_of(request), deque()).append(request)
        self._homes = homes
        self._current: dict[int, Hashable] = {}

    def take(self, slot: int) -> Request:
        """The next request for a slot; IndexError when none is left."""
        with self._lock:
            group = self._current.get(slot)
            if group not in self._groups:
                group = self._choose(slot)
                self._current[slot] = group
                self._homes.setdefault(group, slot)
            waiting = self._groups[group]
            request = waiting.popleft()
            if not waiting:
                del self._groups[group]
            return request

    def _choose(self, slot: int) -> Hashable:
        if not self._groups:
            raise IndexError("no request is left")
        taken = {group for other, group in self._current.items() if other != slot}
        home = {group for group in self._groups if self._homes.get(group) == slot}
        free = {group for group in self._groups if group not in taken and group not in self._homes}
        idle = {group for group in self._groups if group not in taken}
        chosen = home or free or idle or set(self._groups)
        return max((group for group in self._groups if group in chosen), key=lambda group: len(self._groups[group]))

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._groups.values()))

    def clear(self) -> None:
        """Forget what is left."""
        with self._lock:
            self._groups.clear()


class Pool:
    """Up to `jobs` zygotes, started by `start(slot)` when first needed and kept from one batch to the next."""

    def __init__(self, start: Callable[[int], Zygote], jobs: int) -> None:
        self._slots = [_Slot(number, start) for number in range(1, jobs + 1)]
        self._stop: Callable[[], None] = _do_nothing
        self._homes: dict[Hashable, int] = {}

    def stop(self) -> None:
        """Begin no more requests of the batch under way; those begun are answered."""
        self._stop()

    def close(self) -> None:
        """End all zygotes."""
        for slot in self._slots:
            slot.close()

    def work(
        self, requests: Sequence[Request], ask: Callable[[Zygote, Request], Value], group_of: Callable[[Request], Hashable] = _one_group
    ) -> "Iterator[Began[Request] | Answered[Request, Value] | Lost]":
        """Answer `requests`, those of one group in order; a group stays with one zygote as far as that keeps all at work. Leaving the
        iterator early begins no more and waits for those under way.

        Raises AllLostError when requests are left and no zygote is.
        """
        waiting = _Queue(requests, group_of, self._homes)
        self._stop = waiting.clear
        news: queue.SimpleQueue[Began[Request] | Answered[Request, Value] | Lost | _Crashed | _Stopped] = queue.SimpleQueue()
        usable = [slot for slot in self._slots if slot.restarts_left >= 0]
        permits = threading.Semaphore(AHEAD * len(usable))
        threads = [threading.Thread(target=_serve, args=(slot, waiting, permits, ask, news.put), daemon=True) for slot in usable]
        reason = "no zygote could be kept alive"
        running = len(threads)
        try:
            for thread in threads:
                thread.start()
            while running:
                match news.get():
                    case _Stopped():
                        running -= 1
                    case _Crashed(error):
                        raise error
                    case one:
                        reason = one.reason if isinstance(one, Lost) else reason
                        yield one
                        if isinstance(one, Answered):
                            permits.release()
        finally:
            unbegun = len(waiting)
            waiting.clear()
            permits.release(len(threads) + 1)
            for thread in threads:
                thread.join()
        if unbegun:
            raise AllLostError(f"all zygotes are lost, {unbegun} requests are left: {reason}")


def _do_nothing() -> None:
    """What `stop` does before the first batch."""


def _serve(
    slot: _Slot,
    waiting: _Queue[Request],
    permits: threading.Semaphore,
    ask: Callable[[Zygote, Request], Value],
    tell: Callable[[object], None],
) -> None:
    """The life of one thread: take, ask, tell, until nothing waits or the slot is used up."""
    try:
        while permits.acquire():
            try:
                request = waiting.take(slot.number)
            except IndexError:
                return
            tell(Began(request))
            try:
                tell(Answered(request, ask(slot.get(), request)))
            except ZygoteLostError as error:
                tell(Answered(request, None, str(error)))
                tell(Lost(slot.number, str(error)))
                if not slot.drop():
                    return
            except ZygoteError as error:
                tell(Answered(request, None, str(error)))
    except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
        tell(_Crashed(error))
    finally:
        tell(_Stopped())
