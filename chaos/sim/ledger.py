"""The ledger in memory with the face of the file: records, fold, floors and transactions are the engine's own; the lines are a list.

A handle sees the ledger as it was at its last look, as far as that matters: what was there before the newest takeover. A torn or damaged
file is not simulated.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from eventlog import durable, steps
from eventlog.errors import BusyError
from eventlog.ports import Clock
from recovery.space.ledger import Ledger, LedgerTransaction
from recovery.space.memory import MemoryWorld
from recovery.space.records import Advance, Attempt, LedgerState, Record

NAME = "/simulated/state/space/ledger"


class Ledgers:
    """All handles on the ledger of one space."""

    def __init__(self, space: MemoryWorld, hold: Callable[[str], None]) -> None:
        self.space = space
        self.hold = hold
        """Tells the table of processes that the running one has the lock, or ("") none."""
        self.handles: list[SimLedger] = []

    def append(self, record: Record, writer: "SimLedger") -> None:
        """One more record. Of a takeover the others know nothing until they look."""
        if isinstance(record, Advance) and len(self.handles) > 1:
            before = copy_state(self.space.state)
            for handle in self.handles:
                if handle is not writer:
                    handle.fall_behind(before)
        self.space.append(record)


class SimLedger:
    """One handle."""

    is_large = False
    has_torn_end = False

    def __init__(self, ledgers: Ledgers) -> None:
        self.path = self.name = NAME
        self._ledgers = ledgers
        self._space = ledgers.space
        self._seen: LedgerState | None = None
        ledgers.handles.append(self)

    def fall_behind(self, before: LedgerState) -> None:
        """Until the next look this is what the handle knows."""
        self._seen = self._seen or before

    @property
    def state(self) -> LedgerState:
        return self._seen or self._space.state

    def state_of(self, key: str) -> LedgerState:
        return self.state

    @property
    def floor(self) -> int:
        return self.state.floor

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        """Hold the lock and append through the engine's own transaction."""
        self._ledgers.hold("ledger")
        self._seen = None
        transaction = LedgerTransaction(cast(Ledger, self))
        try:
            yield transaction
        finally:
            self._ledgers.hold("")
        durable.tell_appended(transaction.unsynced)

    def append_locked(self, record: Record, name: str, *, is_shared: bool = False) -> None:
        """One more line, with the steps of the file's."""
        steps.reach(f"ledger.{name}.append.before")
        self._ledgers.append(record, self)
        steps.reach(f"ledger.{name}.append.unsynced")
        if not is_shared:
            steps.reach(f"ledger.{name}.append.after")

    def refresh(self) -> None:
        """Look."""
        self._seen = None

    def sync(self, unsynced: Sequence[str] = ()) -> None:
        """Everything is there."""

    def judge_holders(self, seconds: float, unlock: Callable[[BusyError], bool]) -> None:
        """Nobody is ever waited for."""

    def close(self) -> None:
        """Nothing is held."""


def copy_world(space: MemoryWorld, clock: Clock) -> MemoryWorld:
    """A space with the same ledger, in which nothing runs."""
    made = MemoryWorld(space.programs, clock, space.host, "")
    made.records = list(space.records)
    made.state = copy_state(space.state)
    return made


def copy_state(state: LedgerState) -> LedgerState:
    """The fold as it is now; records are never changed, attempts are."""
    return LedgerState(
        state.header, state.floor, {key: _copy(one) for key, one in state.attempts.items()}, dict(state.ended), dict(state.helpers),
        state.log_seq, state.log_hash, state.highest_call, state.collected, state.collected_work, dict(state.scan_failures),
        dict(state.moved), state.compactions, dict(state.shims), {call: list(keys) for call, keys in state.keys_by_call.items()},
        list(state.work_keys),
    )  # fmt: skip


def _copy(one: Attempt) -> Attempt:
    return Attempt(
        one.prepared, one.epoch, one.start, one.exit, one.fate, one.cut, one.void, one.torn, one.is_proved_dead, one.condemned_by,
        one.is_lost,
    )  # fmt: skip
