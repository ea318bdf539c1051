"""Zygotes at work: one thread per zygote takes requests from one queue; answers come back in the order of their ends.

What must hold: every request taken gets exactly one answer, a value or trouble. A lost zygote is replaced, `RESTARTS` times per slot;
a slot that has used them up stops. When all have stopped and requests are left, `AllLostError`: the harness is broken, and
a campaign that went on would only count unknowns.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
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


class Pool:
    """Up to `jobs` zygotes, started by `start(slot)` when first needed and kept from one batch to the next."""

    def __init__(self, start: Callable[[int], Zygote], jobs: int) -> None:
        self._slots = [_Slot(number, start) for number in range(1, jobs + 1)]
        self._stop: Callable[[], None] = _do_nothing

    def stop(self) -> None:
        """Begin no more requests of the batch under way; those begun are answered."""
        self._stop()

    def close(self) -> None:
        """End all zygotes."""
        for slot in self._slots:
            slot.close()

    def work(
        self, requests: Sequence[Request], ask: Callable[[Zygote, Request], Value]
    ) -> "Iterator[Began[Request] | Answered[Request, Value] | Lost]":
        """Answer `requests`, begun in order. Leaving the iterator early begins no more and waits for those under way.

        Raises AllLostError when requests are left and no zygote is.
        """
        waiting = deque(requests)
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
    waiting: deque[Request],
    permits: threading.Semaphore,
    ask: Callable[[Zygote, Request], Value],
    tell: Callable[[object], None],
) -> None:
    """The life of one thread: take, ask, tell, until nothing waits or the slot is used up."""
    try:
        while permits.acquire():
            try:
                request = waiting.popleft()
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
