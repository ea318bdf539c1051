"""Killing what is condemned and proving it dead (rules T3, S8, S9): by its marks, by the lock of a container's first process, or taken for
dead by what a person says, which the ledger then records as such.

Repeating is safe: what is dead is dead, and `proved_dead` stands only after the last of it.
"""


import msgspec

from eventlog import steps
from eventlog.errors import DeathUnprovedError, FenceIncompleteError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity
from recovery.space.containers import is_ended, tell_ways_out
from recovery.space.identity import kill_and_wait
from recovery.space.ledger import Ledger
from recovery.space.marks import forget_mark, kill_cgroup, kill_mark, list_shim_marks
from recovery.space.marks.values import DEATH_SECS, NOTHING_TOUCHED
from recovery.space.records import Attempt, Helper, IdleShim, LedgerState, ProvedDead


class Trust(msgspec.Struct, frozen=True):
    """What a person says where nothing is proved: `ends_all`: containers end all their processes when they end; `all_dead`: nothing of
    this session lives (`recovery settle --processes-dead`)."""

    ends_all: bool = False
    all_dead: bool = False


NO_TRUST = Trust()
SETTLE = "recovery settle STATE_DIR --processes-dead"


class Sweep(msgspec.Struct):
    """One takeover's kills. `directory` is the space's own; `assumed` are keys and marks that were taken for dead without proof,
    `way_out` the command that takes a person's word for what is not proved."""

    directory: str
    clock: Clock
    host: Host
    trust: Trust = NO_TRUST
    way_out: str = SETTLE
    assumed: list[str] = msgspec.field(default_factory=list)

    def kill_condemned(self, ledger: Ledger, epoch: int, spare: frozenset[int]) -> None:
        """Kill all that the ledger says is condemned and not proved dead; `spare` are the pids of claimed shims.

        Raises FenceIncompleteError, StaleEpochError.
        """
        ledger.refresh()
        condemned, helpers = _find_condemned(ledger.state)
        shims = [shim for shim in ledger.state.shims.values() if shim.epoch < epoch and shim.identity.pid not in spare]
        if not condemned and not helpers and not shims:
            return
        # The spawner dies first: then no fork of it can still join an attempt's mark. With the environment mark the shims die first, while
        # they live as subreapers: what is below a spawner is killed with it. A fork that is not registered yet is stopped by the floor.
        by_descent = {mark: helper for mark, helper in helpers.items() if mark.startswith("environment:")}
        self._kill_helpers({mark: helper for mark, helper in helpers.items() if mark not in by_descent}, spare)
        self._kill_attempts(condemned)
        self._kill_helpers(by_descent, spare)
        self._kill_shims(shims)
        self._kill_unmarked_shims(ledger.state, helpers, epoch)
        self._record(ledger, epoch, sorted(condemned), sorted(helpers))

    def end_kept(self, ledger: Ledger, epoch: int) -> int:
        """Kill what this epoch's own commands left behind and were allowed to keep (C6); how many commands that concerned."""
        ledger.refresh()
        kept = {key: attempt for key, attempt in ledger.state.attempts.items() if attempt.has_kept}
        if kept:
            self._kill_attempts(kept)
            self._record(ledger, epoch, sorted(kept), [])
        return len(kept)

    def _kill_shims(self, shims: list[IdleShim]) -> None:
        """Those that own nothing any more: a stopped one does not see that its driver is gone. Of another boot or pid namespace nothing
        is signalled; the floor keeps such a one from starting anything."""
        for shim in shims:
            here = (self.host.boot_id(), self.host.pid_namespace())
            is_here = (shim.identity.boot_id, shim.identity.pid_namespace) == here
            if is_here and not kill_and_wait(shim.identity, self.host, self.clock, DEATH_SECS):
                raise FenceIncompleteError(f"shim {shim.identity.pid} does not die (waited {DEATH_SECS:g} s); {NOTHING_TOUCHED}")

    def _kill_unmarked_shims(self, state: LedgerState, helpers: dict[str, Helper], epoch: int) -> None:
        """Those that have made no starting mark yet, so that no record names them: a stopped one does not see that its driver is gone.
        They are known by their leaves, where there are such, and start nothing below the floor; who owns a claimed attempt is named."""
        named = {attempt.start.mark for attempt in state.attempts.values() if attempt.start is not None and attempt.is_open}
        for mark in sorted({mark for helper in helpers for mark in list_shim_marks(helper, epoch)} - named):
            leaf = mark.partition(":")[2]
            if not kill_cgroup(leaf, self.clock):
                raise FenceIncompleteError(f"a shim in {leaf} does not die (waited {DEATH_SECS:g} s); {NOTHING_TOUCHED}")
            forget_mark(mark)

    def _kill_helpers(self, helpers: dict[str, Helper], spare: frozenset[int]) -> None:
        for mark, helper in sorted(helpers.items()):
            self._kill(mark, mark, helper.registered.identity, has_command=False, spare=spare)

    def _kill_attempts(self, attempts: dict[str, Attempt]) -> None:
        for key, attempt in sorted(attempts.items()):
            if attempt.prepared.kind == "command":
                self._kill_attempt(key, attempt)

    def _kill_attempt(self, key: str, attempt: Attempt) -> None:
        start = attempt.start
        if start is None:
            self._kill(key, attempt.prepared.mark, None, has_command=False)
            return
        has_ended = attempt.exit is not None  # then its shim may own another attempt by now, which may be claimed
        if start.mark and not has_ended:
            # A shim beside its command's mark dies first: then it forks nothing more into that.
            self._kill(key, start.mark, start.identity, has_command=False)
        self._kill(
            key, attempt.prepared.mark, start.identity, has_command=not has_ended, first=start.first, is_owner_spared=has_ended
        )  # fmt: skip

    def _kill(
        self, name: str, mark: str, owner: ProcessIdentity | None, *, has_command: bool, spare: frozenset[int] = frozenset(),
        first: ProcessIdentity | None = None, is_owner_spared: bool = False,
    ) -> None:  # fmt: skip
        try:
            kill_mark(
                mark, owner, self.host, self.clock, has_command=has_command, spare=spare, first=first, is_owner_spared=is_owner_spared
            )  # fmt: skip
        except DeathUnprovedError as error:
            if error.is_elsewhere and owner is not None and is_ended(self.directory, owner, self.clock):
                return
            if not (self.trust.all_dead or (error.is_elsewhere and self.trust.ends_all)):
                raise tell_ways_out(error, self.way_out) from error
            self.assumed.append(name)

    def _record(self, ledger: Ledger, epoch: int, keys: list[str], helpers: list[str]) -> None:
        steps.reach("ledger.proved_dead.before")
        by = "" if not self.assumed else "person" if self.trust.all_dead else "container_ends_all"
        with ledger.transaction() as transaction:
            transaction.check_floor(epoch)
            transaction.append_shared(ProvedDead(epoch, keys, helpers, sorted(set(self.assumed)), by))


def _find_condemned(state: LedgerState) -> tuple[dict[str, Attempt], dict[str, Helper]]:
    attempts = {key: attempt for key, attempt in state.attempts.items() if attempt.fate == "condemned" and not attempt.is_proved_dead}
    return attempts, {mark: helper for mark, helper in state.helpers.items() if helper.condemned}
