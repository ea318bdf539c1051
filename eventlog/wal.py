"""The write-ahead log's size: brought to nothing when the log is idle, and who keeps it from that (case 18).

A read transaction holds one of SQLite's five read marks: a lock on one byte of the `-shm`. While it does, checkpoints stop at what
it sees, and every commit after that makes the WAL longer. The holders are found by asking the kernel for those locks, in a process
without a log handle (L6); it answers also when the reader is stopped. Steps: `wal.tidy.before`, `wal.tidy.after`.
"""

import os
import sys
from collections.abc import Callable

import apsw
import msgspec

from eventlog import connection, steps
from eventlog.errors import CorruptError
from eventlog.ports import Clock
from eventlog.show import show_text

WARN_BYTES = 64 << 20
"""From this size on, a WAL is worth a word: eight times what it comes back to by itself."""
POLL_SECS = 0.05
READ_MARKS = range(123, 128)
"""WAL_READ_LOCK(0) to WAL_READ_LOCK(4) of SQLite's unix VFS: bytes of the `-shm`."""
OPEN_MARK = 128
"""The byte that every connection to the log locks, shared, as long as it is open."""


class Holder(msgspec.Struct, frozen=True):
    """A process that holds a lock; `pid` is 0 when it cannot be seen from here (another pid namespace). `command` may be empty."""

    pid: int
    command: str

    def __str__(self) -> str:
        if self.pid == 0:
            return "a process that cannot be seen from here"
        return f"pid {self.pid}" + (f" ({show_text(self.command)[:200]})" if self.command else "")


class Tidied(msgspec.Struct, frozen=True):
    """Everything in the WAL is in the database, and its file is empty. `wal_bytes` is its size before."""

    wal_bytes: int


class Pinned(msgspec.Struct, frozen=True):
    """The WAL could not be emptied, or has grown large: its size, and the processes that read from it or write."""

    wal_bytes: int
    holders: tuple[Holder, ...]

    def __str__(self) -> str:
        who = ", ".join(map(str, self.holders)) or "a process that let go meanwhile"
        return f"the WAL has {self.wal_bytes} bytes and is pinned by {who}"


class Watch:
    """Says once that a WAL has grown over a threshold, and again each time it has doubled."""

    def __init__(self, threshold: int = WARN_BYTES) -> None:
        self.threshold = threshold
        self._next = threshold

    def look(self, path: str, tell: Callable[[Pinned], None]) -> None:
        """Compare the WAL's size with the threshold; `tell` is called outside any transaction."""
        size = wal_bytes(path)
        if size <= self.threshold:
            self._next = self.threshold
        elif size > self._next:
            self._next = 2 * size
            tell(Pinned(size, find_pins(path)))


def wal_bytes(path: str) -> int:
    """The size of a log's WAL, 0 when there is none."""
    try:
        return os.stat(path + "-wal").st_size
    except FileNotFoundError:
        return 0


def tidy(handle: apsw.Connection, path: str, clock: Clock, wait_secs: float, restore_patience: Callable[[], None]) -> Tidied | Pinned:
    """A checkpoint that empties the WAL, tried until `wait_secs` have passed. Not inside a transaction.

    SQLite's own waiting would keep the write lock all the while; here each try gives up at once, and nobody is held up. At the end
    `restore_patience` makes the handle wait for locks again as it did: SQLite has one waiter for each handle, and does not tell which.
    """
    before, deadline = wal_bytes(path), clock.monotonic() + wait_secs
    steps.reach("wal.tidy.before")
    handle.set_busy_timeout(0)
    try:
        while not _truncate(handle, path):
            if clock.monotonic() >= deadline:
                return Pinned(wal_bytes(path), find_pins(path))
            clock.pause(POLL_SECS)
    finally:
        restore_patience()
    steps.reach("wal.tidy.after")
    return Tidied(before)


def _truncate(handle: apsw.Connection, path: str) -> bool:
    """One try. The result row is (busy, frames in the WAL, frames brought over): only 0, 0, 0 says that the WAL is empty."""
    try:
        ((busy, frames, done),) = handle.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except apsw.BusyError:
        return False  # another checkpoint is at work
    if busy == 0 and (frames, done) != (0, 0):
        raise CorruptError(f"{show_text(path)}: a checkpoint left {frames} frames ({done} done) and says it is done; is it in WAL mode?")
    return busy == 0


def find_pins(path: str) -> tuple[Holder, ...]:
    """Who holds a read mark of the log: one process at least for each mark that is held; nobody when that cannot be asked."""
    return _find_holders(path, READ_MARKS) or ()


def find_openers(path: str) -> tuple[Holder, ...]:
    """Who has the log open: one process at least, when there is any. To be asked before this process opens it, or it hides the others."""
    found = _find_holders(path, range(OPEN_MARK, OPEN_MARK + 1))
    return (Holder(0, ""),) if found is None else found  # not known: whoever asks must think of somebody


def _find_holders(path: str, marks: range) -> tuple[Holder, ...] | None:
    """None when the kernel could not be asked."""
    if not os.path.exists(path + "-shm"):
        return ()
    # A process of its own: closing the file here would drop the locks of this process's own handles.
    code = (
        "import fcntl,struct,sys\n"
        "f=open(sys.argv[1],'rb')\n"
        "for at in range(int(sys.argv[2]),int(sys.argv[3])):\n"
        " kind,_,_,_,pid=struct.unpack('hhqqi',fcntl.fcntl(f,fcntl.F_GETLK,struct.pack('hhqqi',fcntl.F_WRLCK,0,at,1,0)))\n"
        " if kind!=fcntl.F_UNLCK:print(max(pid,0))\n"
        "print('asked')\n"
    )
    arguments = [sys.executable, "-I", "-S", "-c", code, path + "-shm", str(marks.start), str(marks.stop)]
    *lines, last = connection.run_helper(arguments).split() or [""]
    if last != "asked":
        return None
    pids = {int(line) for line in lines}
    return tuple(Holder(pid, _command(pid)) for pid in sorted(pids))


def _command(pid: int) -> str:
    if pid == 0:
        return ""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "surrogateescape").strip()
    except OSError:
        return ""  # gone meanwhile, or another user's
