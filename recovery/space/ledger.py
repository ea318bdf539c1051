"""The ledger: the space's record of commands by key. One append-only file, one lock.

Format. One record per line: 32 hex digits, a blank, a JSON object, a newline. The digits are the first 16 bytes of BLAKE3 over the
digits of the line before (nothing for the first line) followed by the JSON bytes, so that a line changed, lost or moved breaks
every line after it.

Validity. Every complete line must verify, else the ledger is damaged and nothing is read past it. Bytes after the last newline are a torn
end: never read, closed by the next writer with a `sealed` record written over them (case 22).

Sync points. Every append is one write and one fdatasync before the function returns, under the lock: a record that was told to
anybody is on disk. Every record of a driver (prepare, advance, collect, void ...) and every starting mark is refused below the
floor; exit records never are.
"""

import contextlib
import os
from collections.abc import Iterator

import msgspec
from blake3 import blake3

from eventlog import durable, steps
from eventlog.errors import CorruptError, LogMissingError, StaleEpochError
from eventlog.ports import Clock
from eventlog.show import show_text
from recovery.space.lock import FileLock
from recovery.space.records import Header, LedgerState, Record, Sealed, fold_record

LEDGER_FORMAT = 1
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def _check(previous: bytes, body: bytes) -> bytes:
    return blake3(previous + body).hexdigest(16).encode()


def create_ledger(path: str, header: Header) -> None:
    """Make the ledger file, all or nothing; FileExistsError when there is one."""
    body = _encoder.encode(header)
    durable.publish(path, _check(b"", body) + b" " + body + b"\n", "ledger.create", replace=False)


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
            self._descriptor = os.open(path, self._FLAGS | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise LogMissingError(
                f"{self.name}: the ledger is missing; put it back from where it went: a missing ledger is never made anew"
            ) from error
        try:
            self.refresh()
        except CorruptError:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)

    def refresh(self) -> None:
        """Read the records appended since the last look."""
        end = os.fstat(self._descriptor).st_size
        if end < self._offset:
            raise CorruptError(f"{self.name}: shorter than it was (line {self._line} was its last good one); put the whole file back")
        data = os.pread(self._descriptor, end - self._offset, self._offset)
        while (length := data.find(b"\n")) >= 0:
            self._read_line(data[:length])
            data = data[length + 1 :]
            self._offset += length + 1

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
        fold_record(self.state, record, where)
        self._last, self._line = digits, self._line + 1


class Ledger(LedgerView):
    """A ledger that this process may append to, under the lock."""

    _FLAGS = os.O_RDWR

    def __init__(self, path: str, clock: Clock) -> None:
        self._lock = FileLock(path + ".lock", clock)
        super().__init__(path)

    def close(self) -> None:
        """Give the file and its lock file back."""
        super().close()
        self._lock.close()

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

    def _encode(self, record: Record) -> bytes:
        body = _encoder.encode(record)
        return _check(self._last, body) + b" " + body + b"\n"

    def append_locked(self, record: Record, name: str) -> None:
        """Append under the lock; called by LedgerTransaction only."""
        line = self._encode(record)
        os.lseek(self._descriptor, 0, os.SEEK_END)
        durable.append_record(self._descriptor, line, f"ledger.{name}")
        self.refresh()


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
