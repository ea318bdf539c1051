"""A lock that is not to be had: its holder found, judged, and ended where it is a process of an older epoch (rule L4).

Order: the bound of the lock has passed; the holder is asked for; judged; held by its pidfd; its start time compared and the lock asked for
again; only then SIGKILL through the pidfd, and its death waited for. So a pid that is somebody else's by now, and a process that has let
go meanwhile, are left alone. What the dead one had begun is undone by SQLite (its transaction never stood) or sealed by the next writer
of the ledger (a torn line). Nobody else ends a lock's holder, and only a driver does this: its helpers wait longer and give up.

Steps: `unlock.kill.before`, `unlock.kill.after`.
"""

from collections.abc import Callable

from eventlog import steps
from eventlog.connection import find_holder
from eventlog.errors import BusyError
from eventlog.holder import Holder
from eventlog.identity_files import read_identities
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity
from recovery.holder_judgement import End, Leave, Suspect, judge_holder
from recovery.opening import log_path
from recovery.space.epoch_mark import read_epoch
from recovery.space.identity import kill_and_wait
from recovery.space.ledger import Ledger
from recovery.space.ledger_lines import LEDGER_FORMAT
from recovery.space.lock import FileLock
from recovery.space.records import Header, LedgerState

DEATH_SECS = 10.0
MOST_TRIES = 4
WINDOW_SECS = 60.0
"""How often one driver tries a lock again within this time: more holders than that are a session that is busy, not one that is stuck."""


class Unlock:
    """One driver's way past the holders of the log's and the ledger's lock. `epoch` is the one that it intends to have."""

    def __init__(self, state: str, epoch: int, clock: Clock, host: Host, tell: Callable[[str], None]) -> None:
        self._state = state
        self._epoch = epoch
        self._clock = clock
        self._host = host
        self._tell = tell
        self._tries: list[float] = []

    def free_log(self, error: BusyError) -> bool:
        """Whether the log's lock may be had now. Raises BusyError when not, and why is known."""
        return self._free(error, None, lambda: find_holder(log_path(self._state)), "log")

    def free_ledger(self, ledger: Ledger) -> Callable[[BusyError], bool]:
        """The same for the lock of this ledger."""

        def free(error: BusyError) -> bool:
            ledger.refresh()  # without the lock: whole lines only
            return self._free(error, ledger.state, ledger.find_holder, "ledger")

        return free

    def free_lock(self, lock: FileLock, space_id: str) -> Callable[[BusyError], bool]:
        """The same for the lock of a ledger that cannot be read: its holder is known by its identity file or the mark of its epoch."""
        known = LedgerState(Header(LEDGER_FORMAT, space_id, 0))
        return lambda error: self._free(error, known, lock.find_holder, "ledger")

    def _free(self, error: BusyError, ledger: LedgerState | None, ask: Callable[[], Holder | None], what: str) -> bool:
        now = self._clock.monotonic()
        self._tries = [*(at for at in self._tries if now - at < WINDOW_SECS), now]
        if len(self._tries) > MOST_TRIES:
            return False
        if error.holder is None:
            return True  # it had let go by the time it was asked for, or nobody could be asked
        match judge_holder(self._look_at(error.holder, ledger), read_identities(self._state), ledger, self._epoch):
            case Leave(reason=reason):
                if reason:
                    raise BusyError(f"{error}; {reason}", error.holder)
                return False
            case End(identity=identity, epoch=epoch):
                if self._end(identity, ask):
                    self._tell(
                        f"recovery: ended process {identity.pid} of epoch {epoch}: it held the lock of the {what} and did not let go"
                    )
                return True

    def _look_at(self, holder: Holder, ledger: LedgerState | None) -> Suspect:
        identity = holder.identify(self._host)
        if identity is None or ledger is None or ledger.header is None:
            return Suspect(identity)
        return Suspect(identity, read_epoch(identity.pid, ledger.header.ledger_id))

    def _end(self, identity: ProcessIdentity, ask: Callable[[], Holder | None]) -> bool:
        """Whether it was killed; nothing is done to one that has let go meanwhile."""
        is_holder = False

        def still_holds() -> bool:
            nonlocal is_holder
            holder = ask()
            is_holder = holder is not None and holder.identify(self._host) == identity
            if is_holder:
                steps.reach("unlock.kill.before")
            return is_holder

        if not kill_and_wait(identity, self._host, self._clock, DEATH_SECS, still_holds):
            raise BusyError(f"process {identity.pid} holds a lock and does not die (waited {DEATH_SECS:g} s); end it and drive again")
        if is_holder:
            steps.reach("unlock.kill.after")
        return is_holder
