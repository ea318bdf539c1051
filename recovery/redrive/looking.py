"""What a redriver sees of a session: its log, and who of its drivers lives. Starts nothing, writes nothing."""

from eventlog import events
from eventlog.errors import CrashworthyError
from eventlog.identity_files import highest_intended, read_identities
from eventlog.ports import Host
from eventlog.process_identity import ProcessIdentity, is_alive
from eventlog.reader import BEGINNING, Position, Reader
from recovery.journal import only_stream
from recovery.labels import BEHIND
from recovery.opening import check_log_exists, log_path, space_paths
from recovery.redrive.policy import Seen
from recovery.redrive.progress import Progress
from recovery.redrive.record import RedriveRecord
from recovery.space.epochs import check_epoch
from recovery.space.ledger import LedgerView

BY_ANYBODY = events.InputAdmitted | events.Noted | events.PauseRequested | events.ApprovalAnswered
"""What any process may append beside a driver (L2)."""


class LogWatch:
    """The log of one session, read on from where it was read last; no handle is held in between. Every event is verified once."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._position = BEGINNING
        self._progress = Progress()
        self._progress_seq = 0
        self._is_finished = False
        self._is_paused = False
        self._driven_seq = 0

    def look(self) -> Seen:
        """What stands now. Raises LogMissingError, MisuseError, CorruptError, NeedsPersonError."""
        check_log_exists(self._state)
        reader = Reader.open(log_path(self._state))
        try:
            stream = only_stream(reader)
            for stored in reader.events(stream, self._position):
                self._take(stored.event, stored.seq)
                self._position = Position(stored.seq, stored.hash, stored.epoch)
        finally:
            reader.close()
        return Seen(self._position.seq, self._progress_seq, self._is_finished, self._is_paused, self._driven_seq)

    @property
    def floor(self) -> int:
        """The log's floor as of the last look."""
        return self._position.epoch

    def _take(self, event: events.Event, seq: int) -> None:
        if self._progress.take(event):
            self._progress_seq = seq
        if not isinstance(event, BY_ANYBODY):
            self._driven_seq = seq
        match event:
            case events.SessionFinished():
                self._is_finished = True
            case events.SessionPaused():
                self._is_paused = True
            case events.SessionResumed():
                self._is_paused = False
            case events.RecoveryDecided(label=label) if label in BEHIND:
                self._is_paused = False  # what said that it had gone on was lost with the tail
            case _:
                pass


def find_living(state: str, record: RedriveRecord, host: Host) -> ProcessIdentity | None:
    """The newest driver that lives, by its identity file or by the record of who was started last, else None. Raises CorruptError."""
    intended = [(one.epoch, one.identity) for one in read_identities(state) if one.is_driver]
    started = [(one.epoch, one.driver) for one in record.attempts[-1:]]
    for _, identity in sorted([*intended, *started], key=lambda pair: pair[0], reverse=True):
        if identity.pid_namespace == host.pid_namespace() and is_alive(identity, host):
            return identity
    return None


def choose_epoch(state: str, log_floor: int, record: RedriveRecord) -> int:
    """L1: one above everything that was ever used, intended or issued. A ledger that cannot be read is the driver's to judge."""
    return check_epoch(max(log_floor, _ledger_floor(state), record.epoch, highest_intended(state)) + 1)


def _ledger_floor(state: str) -> int:
    try:
        view = LedgerView(space_paths(state).ledger)
    except (CrashworthyError, OSError):
        return 0
    view.close()
    return view.floor
