"""One writing transaction at a time over a connection: the lock, the files compared, the end, and what an unknown end means.

A transaction takes the write lock first; then the files held are compared with those at the path (L5); a failure of the device, at
BEGIN too, poisons the handle (L7): nothing more is written through it, and above all no sync is tried again.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import apsw

from eventlog import connection, steps, wal
from eventlog.errors import BusyError, InternalError, ReplacedError, UncertainCommitError
from eventlog.held_files import Held, resolve_log
from eventlog.ports import Clock
from eventlog.reader import Reader
from eventlog.records import Unlock
from eventlog.show import show_text

T = TypeVar("T")
_BEGIN = "BEGIN IMMEDIATE"


class Transactions:
    """The transactions of one handle. Never used after a fork (case 21).

    `on_pinned_wal` is told, between commits, that the WAL has grown over `wal.WARN_BYTES`, and who pins it; again at twice that size.
    """

    def __init__(
        self, handle: apsw.Connection, path: str, unlock: Unlock | None, clock: Clock, busy_ms: int, name: str | None = None
    ) -> None:
        self._handle = handle
        self._cursor = handle.cursor()  # one for all: what is written goes one statement after another, under `_alone`
        self._unlock = unlock
        self._clock = clock
        self._busy_ms = busy_ms
        self._pid = os.getpid()
        self._poisoned = False
        self._alone = threading.RLock()  # of several threads one after another: SQLite would put both into one transaction
        self.path = resolve_log(path)
        self.name = show_text(path) if name is None else name
        self.reader = Reader(handle, path, self.name)
        self._held = Held(self.path)
        if connection.has_moved(handle):
            raise self._replaced()
        self._wal_watch = wal.Watch()
        self.on_pinned_wal: Callable[[wal.Pinned], None] | None = None

    def _guard(self) -> None:
        if os.getpid() != self._pid:
            raise InternalError(f"{self.name}: this handle belongs to process {self._pid}; a forked process must not use it (case 21)")
        if self._poisoned:
            raise UncertainCommitError(
                f"{self.name}: an earlier commit's end is unknown; open the log again and look the event up by its id"
            )

    def _check_files(self) -> None:
        """L5: inside the transaction, the files held (database, WAL, index) are the files at the path. What stood there when this handle
        was made was compared with the database that SQLite holds then; a file that is held open keeps its inode to itself."""
        if not self._held.are_in_place():
            raise self._replaced()

    def _replaced(self) -> ReplacedError:
        return ReplacedError(
            f"{self.name}: the files at this path are no longer those this driver opened; stop whatever replaced them and drive again"
        )

    def _begin(self) -> None:
        """Take the write lock; past the bound whoever holds it is judged (L4)."""
        self._guard()  # again: another thread's commit may have failed while this one waited for its turn
        try:
            is_inside = not self._handle.get_autocommit()
            if not is_inside:
                self._cursor.execute(_BEGIN)
        except apsw.Error as error:
            failure = self._failed(error)
            if not isinstance(failure, BusyError) or self._unlock is None or not self._unlock(failure):
                raise failure from error
            until_unlocked(self._take_lock, self._unlock)
        if is_inside:
            raise InternalError(f"{self.name}: this handle is in the middle of a transaction: nothing is written from inside it")

    def _take_lock(self) -> None:
        self._run(_BEGIN)

    def _run(self, sql: str, bindings: tuple[object, ...] = ()) -> None:
        """One statement that answers no row: it is done when `execute` returns."""
        try:
            self._cursor.execute(sql, bindings)
        except apsw.Error as error:
            raise self._failed(error) from error

    def _many(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows:
            return
        try:
            if len(rows) == 1:  # as most are: without the machinery for many
                self._cursor.execute(sql, rows[0])
            else:
                self._cursor.executemany(sql, rows).fetchall()
        except apsw.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: apsw.Error) -> Exception:
        """The typed error; after a failure of the device nothing more is written through this handle, BEGIN included (L7)."""
        failure = connection.translate(error, self.path, self.name)
        if isinstance(failure, UncertainCommitError):
            self._poisoned = True
        return failure

    def _abandon(self, error: BaseException) -> None:
        """End the transaction that `error` stopped. After a failure of the device nothing more is written through this handle."""
        if isinstance(error, UncertainCommitError):
            self._poisoned = True
        self._rollback()

    def _rollback(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child that unwinds: the transaction is its parent's (case 21)
        if self._handle.get_autocommit():
            return  # case 17: SQLite has rolled back by itself
        try:
            self._handle.execute("ROLLBACK").fetchall()
        except apsw.Error:
            # The error that led here is on its way to the caller and says more; the handle is stuck and must not write again.
            self._poisoned = True

    def _commit(self, purpose: str, event_ids: tuple[bytes, ...]) -> None:
        steps.reach(f"{purpose}.commit.locked")
        try:
            self._cursor.execute("COMMIT")
        except apsw.FullError as error:
            self._rollback()
            if not self._stands(event_ids):
                raise connection.translate(error, self.path, self.name) from error
        except apsw.Error as error:
            # The commit may or may not stand (case 17: SQLite may have rolled back already). Only the file knows.
            self._poisoned = True
            names = " ".join(event_id.hex() for event_id in event_ids)
            raise UncertainCommitError(
                f"{self.name}: COMMIT failed ({error}); open the log again: it stands if the events are there ({names or 'blobs only'})",
                event_ids,
            ) from error
        steps.reach(f"{purpose}.commit.after")
        if self.on_pinned_wal is not None:
            with contextlib.suppress(Exception):  # the commit stands, whatever becomes of telling that the WAL is large
                self._wal_watch.look(self.path, self.on_pinned_wal)

    def _stands(self, event_ids: tuple[bytes, ...]) -> bool:
        """Whether a commit that met a full disk stands all the same: the room may have ended in a checkpoint behind it."""
        try:
            return bool(event_ids) and self.reader.find(event_ids[0]) is not None
        except UncertainCommitError as error:
            self._poisoned = True
            raise UncertainCommitError(str(error), event_ids) from error

    @contextlib.contextmanager
    def _writing(self, purpose: str, event_ids: tuple[bytes, ...]) -> Iterator[None]:
        """One transaction: the write lock first, then the files compared (L5), then what is done in here, then the commit."""
        self._guard()
        steps.reach(f"{purpose}.commit.before")
        with self._alone:
            self._begin()
            try:
                self._check_files()
                yield
            except apsw.Error as error:
                failure = self._failed(error)
                self._abandon(failure)
                raise failure from error
            except BaseException as error:
                self._abandon(error)
                raise
            self._commit(purpose, event_ids)


def until_unlocked(act: Callable[[], T], unlock: Unlock | None) -> T:
    while True:
        try:
            return act()
        except BusyError as error:
            if unlock is None or not unlock(error):
                raise
