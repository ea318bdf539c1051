"""The ledger: the space's record of commands by key. One append-only file, one lock.

Format. One record a line, chained by check digits (ledger_lines.py), so that a line changed, lost or moved breaks every line after it.
The first is the header. Compaction writes the file anew: header, one `compacted` record that holds what all lines so far come to, and
from there on lines as before.

Validity. Every complete line must verify, else the ledger is damaged and nothing is read past it. A file without one whole line is
damaged: a ledger is made all or nothing. Bytes after the last newline are a torn end: never read, closed by the next writer with a
`sealed` record written over them (case 22).

Beside it, `<ledger>.end` holds the number of lines known to be on disk, written after each sync: a ledger with fewer was cut, and
is damaged. Lines that a compaction folded away go on to count, so the note is true of either file while one takes the other's place.

Sync points. Every append is one write under the lock and one fdatasync, before anybody is told of the record or anything is done for it.
Records of one transaction each (`append_shared`) are synced after the lock was let go: a later writer sees them before they are on disk,
but its own sync, of the same file, covers them too, and a transaction that appends nothing syncs what it saw. So nothing that follows
from a record is ever on disk or told without it, the order of the records decides as before, and nobody waits for another one's sync to
write. They sync in turns (a lock on the note), each for all who have written by then; who finds his line noted has no need to. Of an
attempt that a driver announces, its starting mark is all that follows: it is synced with that. Every record of a driver (prepare, advance,
collect, void ...) and every starting mark is refused below the floor and above it; exit records never are.

Replaced files (rule L5). The path is compared with the held file before every look, for a writer with the lock in hand: a compaction holds
that lock from its last read until the new file has its name and the directory is synced. A newer form of the same ledger is opened and
read whole; anything else under the path is an error.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence

import msgspec

from eventlog import durable, steps
from eventlog.errors import BusyError, CorruptError, InternalError, LogMissingError, MisuseError, ReplacedError
from eventlog.holder import Holder
from eventlog.ports import Clock
from eventlog.show import show_text
from recovery.space.epochs import check_at_floor
from recovery.space.ledger_lines import DIGITS, Reading, encode_line
from recovery.space.lock import FileLock, choose_pause, try_lock, unlock
from recovery.space.private import open_private, tighten
from recovery.space.records import Advance, Header, LedgerState, Prepare, Record, Sealed, compact_state

END_SUFFIX = ".end"
TURN, NOTE = 0, 1
"""Which byte of the note is locked for a turn to sync, and while the note is written."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
COMPACT_BYTES = 1 << 20
"""A ledger below this is left as it is: some 2,000 records, read in 20 ms."""
COMPACT_FACTOR = 2  # of what the last compaction left: so that all compactions together cost no more than the appends did
TURN_SECS = 0.05
"""How long another one's sync is waited for: above what a disk at work takes for one, and little to lose where somebody is frozen in it."""
WHAT = "the ledger"


def create_ledger(path: str, header: Header, advance: Advance | None = None) -> None:
    """Make the ledger file, all or nothing, at once under the floor of a takeover where there is one (S10); FileExistsError when there is
    one."""
    # Its note of the end comes first: the directory's sync that makes the ledger's name durable makes the note's durable too.
    os.close(open_private(path + END_SUFFIX, os.O_RDWR | os.O_CREAT, "its note of the end"))
    first = encode_line(b"", header)
    lines = first if advance is None else first + encode_line(first[:32], advance)
    durable.publish(path, lines, "ledger.create", replace=False)


class LastSeen(msgspec.Struct, frozen=True):
    """The marks of a ledger that is lost: the highest call, up to where calls were collected, and the newest log event seen."""

    highest_call: int = 0
    collected: int = 0
    log_seq: int = 0
    log_hash: str = ""


def set_aside(path: str, epoch: int) -> str:
    """Give a ledger that is not used any more, and its note of the end, names of their own, which nothing replaces; the ledger's ("" when
    it is not there). Repeating is safe: an epoch is one driver's, and what was moved is not there to be moved again."""
    kept = ""
    for suffix in ("", END_SUFFIX):
        aside = f"{path}.aside-e{epoch}{suffix}"
        with contextlib.suppress(FileNotFoundError):
            durable.move(path + suffix, aside, "ledger.aside")
            kept = kept or ("" if suffix else aside)
    return kept


def readable_floor(path: str, ledger_id: str) -> int:
    """The highest floor that can be read of a space's ledger where it is damaged, and of those that were set aside (I5, L1): every line
    that verifies was written. 0 where there is none."""
    return max((one.floor for one in _read_all(path, ledger_id).values()), default=0)


def read_last_seen(path: str, ledger_id: str) -> LastSeen:
    """What can still be read of a space's ledger that is to be made anew, and of those that were set aside: lower bounds, as
    `readable_floor` is. The log event is that of the file at `path` alone: what an older one had seen of the log was decided on since."""
    found = _read_all(path, ledger_id)
    newest = found.get(os.path.basename(path), LedgerState())
    return LastSeen(
        max((one.highest_call for one in found.values()), default=0), max((one.collected for one in found.values()), default=0),
        newest.log_seq, newest.log_hash,
    )  # fmt: skip


def _read_all(path: str, ledger_id: str) -> dict[str, LedgerState]:
    """By file name what the readable lines come to, of this space's ledger and of those of its that were set aside."""
    directory, name = os.path.split(path)
    states: dict[str, LedgerState] = {}
    for found in os.listdir(directory or "."):
        if found == name or (found.startswith(f"{name}.aside-e") and not found.endswith(END_SUFFIX)):
            state = _read_good(os.path.join(directory, found))
            if state.header is not None and state.header.ledger_id == ledger_id:
                states[found] = state
    return states


def _read_good(path: str) -> LedgerState:
    """What the lines come to that verify, as far as they can be read and folded."""
    reading = Reading(show_text(path))
    with contextlib.suppress(CorruptError, LogMissingError, MisuseError):
        descriptor = open_private(path, os.O_RDONLY, WHAT)
        try:
            _take_new(descriptor, reading, 0, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
    with contextlib.suppress(CorruptError):
        reading.state  # noqa: B018 - folds what is not folded yet
    return reading.folded


def read_end(path: str) -> int | None:
    """How many lines the ledger at `path` is known to have had: 0 when the note is unreadable, None when there is no note."""
    try:
        descriptor = open_private(path + END_SUFFIX, os.O_RDONLY, "its note of the end")
    except LogMissingError:
        return None
    try:
        text = os.read(descriptor, 32).split(b"\n")[0]
    finally:
        os.close(descriptor)
    return int(text) if text.isdigit() else 0  # a machine that lost power may have left nothing readable


class LedgerView:
    """A ledger as it can be read without its lock. Opening is fail-closed: damage, emptiness and absence raise.

    Raises LogMissingError, CorruptError, MisuseError (permissions), ReplacedError (another ledger came to stand at the path).
    """

    _FLAGS = os.O_RDONLY

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = show_text(path)
        self._descriptor, self._reading, self._offset = self._open()
        self._size = self._offset  # of the file at the last look
        self._base = self._size_at_opening()

    @property
    def state(self) -> LedgerState:
        """What the records read so far come to. A new object after a compaction: ask again after each look."""
        return self._reading.state

    def state_of(self, key: str) -> LedgerState:
        """The state as far as it concerns one key, which costs what its own lines cost (Reading.state_of)."""
        return self._reading.state_of(key)

    @property
    def floor(self) -> int:
        """`state.floor`, at no cost."""
        return self._reading.floor

    def _open(self) -> tuple[int, Reading, int]:
        noted = read_end(self.path)  # before the records: other processes append meanwhile
        descriptor = open_private(self.path, self._FLAGS, WHAT)
        try:
            reading = Reading(self.name)
            offset = _take_new(descriptor, reading, 0, os.fstat(descriptor).st_size)
            if not reading.lines:
                raise CorruptError(f"{self.name}: holds no whole line, and a ledger is made with one; put the session's own file back")
            self._check_end(reading, noted)
            reading.state  # noqa: B018 - folded now: opening is fail-closed
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, reading, offset

    def _check_end(self, reading: Reading, noted: int | None) -> None:
        """A cut tail would pass for "never started"."""
        if noted is None and reading.written > 1:
            raise CorruptError(
                f"{self.name}{END_SUFFIX}: missing, so it cannot be told whether the ledger's end was cut off; put it back with the ledger"
            )
        if noted is not None and noted > reading.written:
            raise CorruptError(
                f"{self.name}: {noted} lines were written and only {reading.written} stand here: its end was cut off; "
                "put the whole file back"
            )

    def _size_at_opening(self) -> int:
        return self._offset if self.state.compactions else 0

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)

    def refresh(self) -> None:
        """Read the records appended since the last look."""
        held = os.fstat(self._descriptor)
        if self._is_replaced(held):
            self._follow()
            held = os.fstat(self._descriptor)
        if held.st_size < self._offset:
            raise CorruptError(
                f"{self.name}: shorter than it was (line {self._reading.lines} was its last good one); put the whole file back"
            )
        before = self._reading.size
        try:
            _take_new(self._descriptor, self._reading, self._offset, held.st_size)
        finally:  # a line that was taken is not given again, also where one after it was refused
            self._offset += self._reading.size - before
        self._size = held.st_size

    def sync(self) -> None:
        """Have every line read so far on disk: a record that its writer has not synced yet is told to nobody."""
        if (read_end(self.path) or 0) < self._reading.written:
            durable.sync_appended(self._descriptor, ())

    def _is_replaced(self, held: os.stat_result) -> bool:
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError as error:
            raise ReplacedError(f"{self.name}: the ledger was taken away while it was open; put it back and drive again") from error
        return (held.st_dev, held.st_ino) != (found.st_dev, found.st_ino)

    def _follow(self) -> None:
        """Go over to the file that took the held one's place, when it is this ledger, compacted (rule L5)."""
        descriptor, reading, offset = self._open()
        known, found = self._reading, reading.state
        if (
            found.header != known.state.header
            or found.compactions <= known.state.compactions
            or reading.written < known.written
            or found.floor < known.floor
        ):
            os.close(descriptor)
            raise ReplacedError(
                f"{self.name}: another file was put in the ledger's place while it was open; put the ledger's own file back"
            )
        os.close(self._descriptor)
        self._descriptor, self._reading, self._offset = descriptor, reading, offset
        self._base = self._size_at_opening()

    @property
    def has_torn_end(self) -> bool:
        """True when bytes of a record that was cut off follow the last whole one: the next writer will seal them."""
        return os.fstat(self._descriptor).st_size > self._offset


def _take_new(descriptor: int, reading: Reading, offset: int, size: int) -> int:
    """Read the whole lines from `offset` on in a file of this size; where they end."""
    data = os.pread(descriptor, size - offset, offset) if size > offset else b""
    lines = data.split(b"\n")
    for line in lines[:-1]:  # what follows the last newline is no line yet
        reading.take(line)
        offset += len(line) + 1
    return offset


class Ledger(LedgerView):
    """A ledger that this process may append to, under the lock."""

    _FLAGS = os.O_RDWR

    def __init__(self, path: str, clock: Clock) -> None:
        super().__init__(path)
        tighten(self._descriptor, path, WHAT)  # only now: what is no ledger is left as it is
        self._clock = clock
        self._lock = FileLock(path + ".lock", clock)
        self._end = open_private(path + END_SUFFIX, os.O_RDWR | os.O_CREAT, "its note of the end")
        self._failed: OSError | None = None

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
        """Hold the lock, see every record, then append through the transaction.

        Whatever was seen or appended is on disk when this returns, unless it was announced only (`announce`). The sync of what was shared
        (`append_shared`) comes after the lock was let go: others append meanwhile, and one sync may serve several.
        """
        with self._lock.held():
            self.refresh()
            self._seal()
            transaction = LedgerTransaction(self)
            yield transaction
        if transaction.is_covered:
            durable.sync_appended(self._descriptor, transaction.unsynced, is_synced=True)
        else:
            self.sync(transaction.unsynced)

    def sync(self, unsynced: Sequence[str] = ()) -> None:
        """Have every line read or written so far on disk: own ones (with the steps `unsynced`), and those of others who are still at
        their sync."""
        is_ours = self._take_turn(self._reading.written)
        try:
            is_synced = self._read_noted() >= self._reading.written
            if not is_synced:
                self.refresh()  # what others have written meanwhile is covered too, and noted
            self._sync_file(is_synced)
            if not is_synced:
                self._note_end(self._reading.written)
        finally:
            if is_ours:
                unlock(self._end, TURN)
        durable.tell_appended(unsynced)  # with no lock held, whoever waited

    def _sync_file(self, is_synced: bool) -> None:
        """One fdatasync, unless another one's has made it needless. After one that failed none of this handle is believed: the kernel tells
        of an error once and drops what it could not write, so that the next one would succeed without it."""
        if self._failed is not None:
            raise OSError(self._failed.errno, f"{self._failed.strerror} (a sync of the ledger failed before)")
        try:
            durable.sync_appended(self._descriptor, (), is_synced=is_synced)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                self._failed = error
            raise

    def reopen(self) -> None:
        """In a process that was forked with this handle: have an open file of its own. The kernel tells each open file once that a write
        failed; of one that is shared, a sync of another process may have been told in this one's place."""
        held = os.fstat(self._descriptor)
        fresh = open_private(self.path, self._FLAGS, WHAT)
        try:
            found = os.fstat(fresh)
            if (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino):  # else the next look follows
                os.dup2(fresh, self._descriptor, inheritable=False)
        finally:
            os.close(fresh)

    def _take_turn(self, mine: int) -> bool:
        """Wait while another one syncs: then line `mine` is on disk, or it is our turn to sync for all who wait (True: the lock is ours).

        It is a lock that nothing depends on: after TURN_SECS everybody syncs for himself, whoever is slow or frozen; and a look that has to
        follow a replaced file reads the note again, which drops it.
        """
        if try_lock(self._end, TURN):
            return True
        began = self._clock.monotonic()
        while self._read_noted() < mine:
            waited = self._clock.monotonic() - began
            if waited >= TURN_SECS:
                return False
            self._clock.pause(choose_pause(waited))
            if try_lock(self._end, TURN):
                return True
        return False

    def _seal(self) -> None:
        if self._size == self._offset:
            return
        torn = os.pread(self._descriptor, self._size - self._offset, self._offset)
        line = encode_line(self._reading.last, Sealed(len(torn), torn[:64].hex()))
        self._reading.check_before(line[DIGITS:-1])
        durable.overwrite_tail(self._descriptor, self._offset, line, "ledger.seal")
        self.refresh()
        self._note_end(self._reading.written)

    def append_locked(self, record: Record, name: str, *, is_shared: bool = False) -> None:
        """Append under the lock; called by LedgerTransaction only. A shared one is synced by `sync`, once the lock is let go."""
        line = encode_line(self._reading.last, record)
        self._reading.check_before(line[DIGITS:-1])
        os.lseek(self._descriptor, 0, os.SEEK_END)
        append = durable.append_unsynced if is_shared else durable.append_record
        append(self._descriptor, line, f"ledger.{name}")
        self._reading.take(line[:-1])
        self._offset += len(line)
        self._size = self._offset
        if not is_shared:
            self._note_end(self._reading.written)

    def _read_noted(self) -> int:
        text = os.pread(self._end, 32, 0).split(b"\n")[0]
        return int(text) if text.isdigit() else 0

    def _note_end(self, lines: int) -> None:
        # Not synced, and written after the sync of the records: it may tell of fewer lines than stand on disk, never of more. Who was
        # overtaken by a later writer leaves the note as it is; of two at once one writes none, so that it never falls.
        if not try_lock(self._end, NOTE):
            return
        try:
            if self._read_noted() < lines:
                os.pwrite(self._end, b"%d\n" % lines, 0)
        finally:
            unlock(self._end, NOTE)

    @property
    def is_large(self) -> bool:
        """Whether a compaction pays: larger than COMPACT_BYTES, and than COMPACT_FACTOR times what the last one left."""
        return self._offset > max(COMPACT_BYTES, COMPACT_FACTOR * self._base)

    def compact_locked(self) -> None:
        """Write the ledger anew as header and state, under the lock; called by LedgerTransaction only.

        Whoever dies in between leaves the old file or the new one at the path, and each says the same.
        """
        state = self.state
        if state.header is None:
            raise InternalError("a ledger without a header was opened")
        first = encode_line(b"", state.header)
        second = encode_line(first[:32], compact_state(state, self._reading.written))
        again = Reading(self.name)
        for line in (first, second):
            again.take(line[:-1])
        again.state.compactions = state.compactions
        if again.state != state:
            raise InternalError("the compacted ledger does not say what the ledger says; nothing was changed")
        self._remove_leftovers()
        durable.publish(self.path, first + second, "ledger.compact")
        self.refresh()
        self._note_end(self._reading.written)

    def put_off_compaction(self) -> None:
        """There was no room for it: from here on the ledger is large again when it has grown by COMPACT_FACTOR."""
        self._base = self._offset

    def _remove_leftovers(self) -> None:
        """Half-written new forms of compactions that were killed: nobody else can be writing one, the lock is ours."""
        directory, name = os.path.split(self.path)
        for found in os.listdir(directory or "."):
            if found.startswith(f"{name}.new-"):
                durable.unlink(os.path.join(directory, found), "ledger.leftover")


class LedgerTransaction:
    """What may be done while the ledger's lock is held."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.unsynced: list[str] = []
        """The steps of what is appended and not synced yet."""
        self.is_covered = False

    @property
    def state(self) -> LedgerState:
        """What every record comes to."""
        return self._ledger.state

    def state_of(self, key: str) -> LedgerState:
        """The same as far as it concerns one key (Reading.state_of)."""
        return self._ledger.state_of(key)

    def check_floor(self, epoch: int) -> None:
        """Raise StaleEpochError when `epoch` is below the floor (rules S4, S6), MisuseError when it is above: only a takeover raises it."""
        check_at_floor(epoch, self._ledger.floor, self._ledger.name)

    def append(self, record: Record) -> None:
        """Append one record and sync it."""
        tag = record.__struct_config__.tag
        self._ledger.append_locked(record, str(tag))

    def append_shared(self, record: Record) -> None:
        """Append one record, to be synced when the transaction has ended: until then nobody is told of it, and nothing is done for it."""
        tag = record.__struct_config__.tag
        self._ledger.append_locked(record, str(tag), is_shared=True)
        self.unsynced.append(f"ledger.{tag}")

    def announce(self, record: Prepare) -> None:
        """Append one attempt that nobody is told of and that nothing follows from but its starting mark, whose sync is this one's too."""
        self.append_shared(record)
        self.is_covered = True

    def compact(self) -> None:
        """Write the file anew as the state it stands for."""
        self._ledger.compact_locked()


def append_fenced(ledger: Ledger, epoch: int, record: Record) -> None:
    """One record of the driver or worker at `epoch`, refused below the floor."""
    steps.reach(f"ledger.{record.__struct_config__.tag}.before")
    with ledger.transaction() as transaction:
        transaction.check_floor(epoch)
        transaction.append_shared(record)


def compact_if_large(ledger: Ledger, epoch: int) -> bool:
    """Compact a ledger that has grown; whether it was done. For a driver between two calls, when nothing waits for the lock."""
    if not ledger.is_large:
        return False
    steps.reach("ledger.compact.before")
    with ledger.transaction() as transaction:
        transaction.check_floor(epoch)
        try:
            transaction.compact()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # Tidying that finds no room must not end a session whose own appends still find theirs. Tried again when it has doubled.
            ledger.put_off_compaction()
            return False
    return True

