"""The ledger: the space's record of commands by key. One append-only file, one lock.

Format. One record per line: 32 hex digits, a blank, a JSON object, a newline. The digits are the first 16 bytes of BLAKE3 over the
digits of the line before (nothing for the first line) followed by the JSON bytes, so that a line changed, lost or moved breaks
every line after it.

Validity. Every complete line must verify, else the ledger is damaged and nothing is read past it. Bytes after the last newline are a torn
end: never read, closed by the next writer with a `sealed` record written over them (case 22).

Beside it, `<ledger>.end` holds the number of lines appended so far, written after each append: a ledger with fewer lines was cut,
and is damaged.

Sync points. Every append is one write and one fdatasync before the function returns, under the lock: a record that was told to
anybody is on disk. Every record of a driver (prepare, advance, collect, void ...) and every starting mark is refused below the
floor; exit records never are.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator

import msgspec
from blake3 import blake3

from eventlog import durable, steps
from eventlog.errors import BusyError, CorruptError, LogMissingError, StaleEpochError
from eventlog.holder import Holder
from eventlog.ports import Clock
from eventlog.show import show_text
from recovery.space.lock import FileLock
from recovery.space.records import Header, LedgerState, Record, Sealed, fold_record

LEDGER_FORMAT = 1
END_SUFFIX = ".end"
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def _check(previous: bytes, body: bytes) -> bytes:
    return blake3(previous + body).hexdigest(16).encode()


def create_ledger(path: str, header: Header) -> None:
    """Make the ledger file, all or nothing; FileExistsError when there is one."""
    body = _encoder.encode(header)
    durable.publish(path, _check(b"", body) + b" " + body + b"\n", "ledger.create", replace=False)


def read_end(path: str) -> int:
    """How many lines the ledger at `path` is known to have had; 0 when nobody noted it."""
    try:
        with open(path + END_SUFFIX, "rb") as file:
            text = file.read(32).split(b"\n")[0]
    except FileNotFoundError:
        return 0
    return int(text) if text.isdigit() else 0  # a machine that lost power may have left nothing readable


class LedgerView:
    """A ledger as it can be read without its lock. Opening is fail-closed: damage and absence raise."""

    _FLAGS = os.O_RDONLY

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = show_text(path)
        self.state = LedgerState()
        self._offset = 0
        self._line = 0
        self._last = b""
        try:
            self._descriptor = os.open(path, self._FLAGS | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise LogMissingError(
                f"{self.name}: the ledger is missing; put it back from where it went: a missing ledger is never made anew"
            ) from error
        try:
            self._check_kind()
            noted = read_end(path)  # before the records: other processes append meanwhile
            self.refresh()
            self.check_end(noted)
        except CorruptError:
            os.close(self._descriptor)
            raise

    def _check_kind(self) -> None:
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise CorruptError(f"{self.name}: not a regular file; put the session's own ledger back")

    def check_end(self, noted: int) -> None:
        """Raise CorruptError when fewer lines stand here than were appended: a cut tail would pass for "never started"."""
        if noted > self._line:
            raise CorruptError(
                f"{self.name}: {noted} lines were written and only {self._line} stand here: its end was cut off; put the whole file back"
            )

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)

    def refresh(self) -> None:
        """Read the records appended since the last look."""
        end = os.fstat(self._descriptor).st_size
        if end < self._offset:
            raise CorruptError(f"{self.name}: shorter than it was (line {self._line} was its last good one); put the whole file back")
        data = os.pread(self._descriptor, end - self._offset, self._offset)
        lines = data.split(b"\n")
        for line in lines[:-1]:  # what follows the last newline is no line yet
            self._read_line(line)
            self._offset += len(line) + 1

    @property
    def has_torn_end(self) -> bool:
        """True when bytes of a record that was cut off follow the last whole one: the next writer will seal them."""
        return os.fstat(self._descriptor).st_size > self._offset

    def _read_line(self, line: bytes) -> None:
        digits, _, body = line.partition(b" ")
        where = f"{self.name}: line {self._line + 1}"
        if len(digits) != 32 or digits != _check(self._last, body):
            raise CorruptError(
                f"{where}: damaged; line {self._line} is the last good one; the ledger is not read past it, put a whole copy back"
            )
        try:
            record = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise CorruptError(f"{where}: not a record this version knows ({error}); use the version that wrote it") from error
        if isinstance(record, Header) and record.format != LEDGER_FORMAT:
            raise CorruptError(f"{where}: ledger format {record.format} is not known here; use the version that wrote it")
        fold_record(self.state, record, where)
        self._last, self._line = digits, self._line + 1


class Ledger(LedgerView):
    """A ledger that this process may append to, under the lock."""

    _FLAGS = os.O_RDWR

    def __init__(self, path: str, clock: Clock) -> None:
        self._lock = FileLock(path + ".lock", clock)
        super().__init__(path)
        self._end = os.open(path + END_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        """Give the file, its end note and its lock file back."""
        super().close()
        os.close(self._end)
        self._lock.close()

    def judge_holders(self, seconds: float, unlock: Callable[[BusyError], bool]) -> None:
        """From now on wait `seconds` for the lock and then ask `unlock`: True when its holder is gone and it is to be tried for again."""
        self._lock.judge_holders(seconds, unlock)

    def find_holder(self) -> Holder | None:
        """Who holds the lock, None when nobody else does."""
        return self._lock.find_holder()

    @contextlib.contextmanager
    def transaction(self) -> Iterator["LedgerTransaction"]:
        """Hold the lock, see every record, then append through the transaction."""
        with self._lock.held():
            self.refresh()
            self._seal()
            yield LedgerTransaction(self)

    def _seal(self) -> None:
        end = os.fstat(self._descriptor).st_size
        if end == self._offset:
            return
        torn = os.pread(self._descriptor, end - self._offset, self._offset)
        line = self._encode(Sealed(len(torn), torn[:64].hex()))
        durable.overwrite_tail(self._descriptor, self._offset, line, "ledger.seal")
        self.refresh()
        self._note_end()

    def _encode(self, record: Record) -> bytes:
        body = _encoder.encode(record)
        return _check(self._last, body) + b" " + body + b"\n"

    def append_locked(self, record: Record, name: str) -> None:
        """Append under the lock; called by LedgerTransaction only."""
        line = self._encode(record)
        os.lseek(self._descriptor, 0, os.SEEK_END)
        durable.append_record(self._descriptor, line, f"ledger.{name}")
        self.refresh()
        self._note_end()

    def _note_end(self) -> None:
        # Not synced, and written after the record was: it may tell of fewer lines than stand, never of more.
        os.pwrite(self._end, b"%d\n" % self._line, 0)


class LedgerTransaction:
    """What may be done while the ledger's lock is held."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.state = ledger.state

    def check_floor(self, epoch: int) -> None:
        """Raise StaleEpochError when `epoch` is below the floor (rules S4, S6)."""
        if epoch < self.state.floor:
            raise StaleEpochError(
                f"{self._ledger.name}: epoch {epoch} is below the ledger's floor {self.state.floor}; a newer driver has the space"
            )

    def append(self, record: Record) -> None:
        """Append one record and sync it."""
        tag = record.__struct_config__.tag
        self._ledger.append_locked(record, str(tag))


def append_fenced(ledger: Ledger, epoch: int, record: Record) -> None:
    """One record of the driver or worker at `epoch`, refused below the floor."""
    steps.reach(f"ledger.{record.__struct_config__.tag}.before")
    with ledger.transaction() as transaction:
        transaction.check_floor(epoch)
        transaction.append(record)
