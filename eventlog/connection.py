"""Opening SQLite the one right way. Every setting is a named function with its reason, and is read back.

No other code of the project opens a log's files (L6: closing any other descriptor of them drops SQLite's POSIX locks).
"""

import contextlib
import ctypes
import errno
import os
import re
import sys

import apsw

from eventlog.busy import BusyWait
from eventlog.errors import BusyError, CorruptError, FullError, InternalError, LogMissingError, MisuseError, UncertainCommitError
from eventlog.forks import keep_from_children
from eventlog.held_files import check_one_name, check_wal_is_there
from eventlog.holder import Holder, describe, look_up_holder
from eventlog.ports import Clock, SystemClock
from eventlog.show import advise_verify, as_word, show_text
from eventlog.values import FORMAT, READABLE_FORMATS, WRITABLE_FORMATS

OLDEST_SQLITE = (3, 51, 3)
APPLICATION_ID = 0x43574C31
SCHEMA, SCHEMA_2, SCHEMA_3 = "schema.sql", "schema_2.sql", "schema_3.sql"
_CLUSTERED = ") WITHOUT ROWID;"
PAGE_BYTES = 16384
BUSY_MS = 5000
BUNDLE_MAGIC = b"crashworthy bundle"
CLOCK: Clock = SystemClock()
"""What a handle waits by when it is given no other clock."""
WAL_PAGES = 512
WAL_BYTES = WAL_PAGES * PAGE_BYTES
"""8 MiB: what a WAL that nobody pins comes back to. It exceeds this by at most the largest commit (blobs go in 8 MiB at a time)."""


def check_sqlite_version(version: str) -> None:
    """SQLite 3.7.0 to 3.51.2 can corrupt a WAL at its reset; raise MisuseError for anything older than 3.51.3."""
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST_SQLITE:
        raise MisuseError(f"SQLite {version} has the WAL-reset corruption bug; install an apsw that carries 3.51.3 or newer")


def name_for_sqlite(path: str) -> str:
    """`path` as SQLite is given it, in UTF-8 whatever the locale; raises MisuseError for a path that is other bytes (case 3)."""
    try:
        return os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise MisuseError(
            f"{show_text(path)}: this path is not UTF-8, and SQLite opens no other; give the directory another name, or reach it by a link"
        ) from error


def open_writable(path: str, busy_ms: int = BUSY_MS, clock: Clock = CLOCK) -> apsw.Connection:
    """A connection that may write an existing log; one of format 1 becomes one of format 2 first.

    It waits for a lock for `busy_ms` milliseconds of `clock`.

    Raises LogMissingError, CorruptError, BusyError, MisuseError.
    """
    check_one_name(path)
    connection = _open(path, apsw.SQLITE_OPEN_READWRITE, busy_ms, clock)
    if connection.pragma("user_version") not in WRITABLE_FORMATS:
        try:
            _upgrade(connection, show_text(path))
        except BaseException as error:
            connection.close()
            if isinstance(error, apsw.Error):
                raise translate(error, path) from error
            raise
    return connection


def open_readable(path: str, clock: Clock = CLOCK) -> apsw.Connection:
    """A connection that cannot write; it neither checkpoints nor deletes the WAL of a killed log."""
    return _open(path, apsw.SQLITE_OPEN_READONLY, BUSY_MS, clock)


def open_damaged(path: str) -> apsw.Connection:
    """A connection that cannot write, to a private copy of a log that may be damaged: it opens a file that is shorter than it says.

    Raises CorruptError when SQLite cannot read even its list of tables.
    """
    try:
        connection = apsw.Connection(name_for_sqlite(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        raise CorruptError(f"{show_text(path)}: it cannot be opened ({error})") from error
    try:
        keep_from_children(connection)
        connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)  # or a cut file is refused as a whole
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.Error as error:
        connection.close()
        raise CorruptError(f"{show_text(path)}: the list of tables cannot be read ({error})") from error
    return connection


def create_blank(path: str) -> apsw.Connection:
    """A new database without a table, that is thrown away after use."""
    connection = apsw.Connection(name_for_sqlite(path))
    keep_from_children(connection)
    connection.pragma("journal_mode", "memory")
    connection.pragma("synchronous", "off")
    connection.pragma("user_version", FORMAT)
    return connection


def create_scratch(path: str, damaged: str) -> apsw.Connection:
    """A new database that is thrown away after use, with the private copy `damaged` of a log attached under that name.

    Raises CorruptError when the list of tables of the copy cannot be read.
    """
    connection = create_blank(path)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
        connection.execute("ATTACH ? AS damaged", (name_for_sqlite(damaged),)).fetchall()
        connection.execute("SELECT count(*) FROM damaged.sqlite_schema").fetchall()
    except apsw.Error as error:
        connection.close()
        raise CorruptError(f"{show_text(damaged)}: the list of tables cannot be read ({error})") from error
    return connection


def read_schema(name: str) -> str:
    """The statements of one of the files beside this one."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:  # pathlib: 3 ms of every start
        return file.read()


def schema_of(log_format: int) -> str:
    """The statements that make the tables, indices, triggers and views of a format, each format by what it adds to the one before. Format
    3 keeps the rows of `image_change` in the tree of their primary key: one page less in a commit, and a smaller first image."""
    text = read_schema(SCHEMA)
    if log_format < 3:
        text = text.replace(_CLUSTERED, ");")
    return text + "".join(map(read_schema, (SCHEMA_2, SCHEMA_3)[: log_format - 1]))


def create(path: str, log_format: int = FORMAT, *, is_synced: bool = True) -> apsw.Connection:
    """A new, empty database with the log's schema at a path that does not exist. One that is not synced is synced whole before anybody
    looks for it."""
    check_sqlite_version(apsw.sqlite_lib_version())
    name = name_for_sqlite(path)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        keep_from_children(connection)
        set_page_size(connection)
        set_incremental_vacuum(connection)
        set_unsynced(connection, is_synced)
        _settle(connection, path, BUSY_MS, CLOCK)
        set_unsynced(connection, is_synced)
        _require(connection.pragma("auto_vacuum") == 2, f"{show_text(path)}: incremental auto_vacuum could not be set")
        connection.execute("BEGIN").fetchall()  # or each statement would be a commit of its own
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", log_format)
        connection.execute(schema_of(log_format)).fetchall()
        connection.execute("COMMIT").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def expected_triggers(log_format: int) -> dict[str, str]:
    """The statement of every trigger that a log of a format has, by name: the words that SQLite keeps of it."""
    made: dict[str, str] = {}
    for found in re.finditer(r"DROP TRIGGER (\w+)|CREATE TRIGGER (\w+).*?END(?=;)", schema_of(log_format), re.DOTALL):
        if found[1]:
            del made[found[1]]
        else:
            made[found[2]] = found[0]
    return made


def expected_indices(log_format: int) -> dict[str, str]:
    """The statement of every index that is made by name in a log of a format, likewise."""
    made = re.finditer(r"CREATE (?:UNIQUE )?INDEX (\w+).*?(?=;)", schema_of(log_format), re.DOTALL)
    return {found[1]: found[0] for found in made}


def expected_tables(log_format: int) -> dict[str, str]:
    """The statement of every table of a format, by name: that of a log which was made in an older one may have other words."""
    made = re.finditer(r"CREATE TABLE (\w+) [^;]*", schema_of(log_format))
    return {found[1]: found[0] for found in made}


def read_trigger(connection: apsw.Connection, trigger: str, name: str) -> str:
    """The statement that makes a trigger of this log. Raises CorruptError when the log lacks it: append-only rests on it."""
    found = connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?", (trigger,)).fetchall()
    if not found:
        raise CorruptError(f"{name}: the log lacks its trigger {trigger}, somebody has changed its schema; {advise_verify(name)}")
    return str(found[0][0])


def _upgrade(connection: apsw.Connection, name: str) -> None:
    """Format 1 to format 2, in one transaction: no event, change or blob is touched, and older code then refuses the log by name."""
    connection.execute("BEGIN IMMEDIATE").fetchall()
    try:
        if connection.pragma("user_version") == 1:  # nobody else has done it meanwhile
            connection.execute("ALTER TABLE stream ADD COLUMN origin_log TEXT; ALTER TABLE stream ADD COLUMN origin_stream TEXT").fetchall()
            connection.execute(read_schema(SCHEMA_2)).fetchall()
            state_format(connection, 2, name)
        connection.execute("COMMIT").fetchall()
    except BaseException:
        if not connection.get_autocommit():
            connection.execute("ROLLBACK").fetchall()
        raise


def state_format(connection: apsw.Connection, log_format: int, name: str) -> None:
    """Note inside a transaction what the log has become, in its header and in `meta`."""
    trigger = read_trigger(connection, "meta_no_update", name)
    connection.execute("DROP TRIGGER meta_no_update").fetchall()
    connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (str(log_format),)).fetchall()
    connection.execute(trigger).fetchall()
    connection.pragma("user_version", log_format)


def _open(path: str, flags: int, busy_ms: int, clock: Clock) -> apsw.Connection:
    check_sqlite_version(apsw.sqlite_lib_version())
    name = name_for_sqlite(path)
    if not os.path.exists(path):
        raise LogMissingError(
            f"{show_text(path)}: there is no log here; check the path, or restore the file: a missing log is never made anew"
        )
    if not os.path.isfile(path):
        raise MisuseError(f"{show_text(path)}: not a regular file; name the log.sqlite of a session")
    if os.stat(path).st_size == 0:
        # SQLite would take the WAL beside an empty file for a stale one and delete it: evidence, and perhaps the only good copy.
        raise CorruptError(f"{show_text(path)}: the log is an empty file; put it back, its -wal file may hold the newest events")
    check_wal_is_there(path)
    try:
        connection = apsw.Connection(name, flags=flags)
    except apsw.Error as error:
        raise translate(error, path) from error
    try:
        keep_from_children(connection)
        _check_format(connection, path, busy_ms, clock)
        _settle(connection, path, busy_ms, clock, readonly=flags == apsw.SQLITE_OPEN_READONLY)
    except BaseException as error:
        connection.close()  # whoever tries again must not find the locks of the attempt before
        if isinstance(error, apsw.Error):
            raise translate(error, path) from error
        raise
    return connection


def _check_format(connection: apsw.Connection, path: str, busy_ms: int, clock: Clock) -> None:
    set_busy_wait(connection, busy_ms, clock)
    if connection.pragma("application_id") != APPLICATION_ID:
        raise CorruptError(f"{show_text(path)}: not a crashworthy log (its application id is another); name the log.sqlite of a session")
    found = connection.pragma("user_version")
    if found not in READABLE_FORMATS:
        known = " and ".join(map(str, READABLE_FORMATS))
        raise MisuseError(
            f"{show_text(path)}: log format {found} is not known here (this version reads {known}); use the version that wrote it"
        )


def _settle(connection: apsw.Connection, path: str, busy_ms: int, clock: Clock, readonly: bool = False) -> None:
    set_busy_wait(connection, busy_ms, clock)
    set_recursive_triggers(connection)
    set_foreign_keys(connection)
    if readonly:
        return
    set_wal(connection, path)
    set_synchronous_full(connection, path)
    set_keep_wal_on_close(connection)
    set_wal_autocheckpoint(connection)
    set_journal_size_limit(connection)


def set_page_size(connection: apsw.Connection) -> None:
    """16 KiB: most events and changes fit into their page several at a time (eventlog/README, "Pages": what a row of each size takes, also
    the sizes that do badly, and what smaller pages cost)."""
    connection.pragma("page_size", PAGE_BYTES)


def set_incremental_vacuum(connection: apsw.Connection) -> None:
    """Free pages can be given back in small transactions (compaction), also when there is no room for a second copy of the file."""
    connection.pragma("auto_vacuum", "incremental")


def set_busy_wait(connection: apsw.Connection, busy_ms: int, clock: Clock) -> None:
    """A bounded wait for the write lock; past it the holder is named (L4)."""
    connection.set_busy_handler(BusyWait(clock, busy_ms))


def set_recursive_triggers(connection: apsw.Connection) -> None:
    """Without it INSERT OR REPLACE deletes rows past the append-only triggers."""
    connection.pragma("recursive_triggers", True)
    _require(connection.pragma("recursive_triggers") == 1, "recursive_triggers could not be set")


def set_foreign_keys(connection: apsw.Connection) -> None:
    """A change row always belongs to an event."""
    connection.pragma("foreign_keys", True)
    _require(connection.pragma("foreign_keys") == 1, "foreign_keys could not be set")


def set_wal(connection: apsw.Connection, path: str) -> None:
    """Readers never block the writer; a commit is one WAL append and one sync."""
    mode = connection.pragma("journal_mode", "wal")
    _require(mode == "wal", f"{show_text(path)}: journal mode is {mode}, WAL is not possible on this file system")


def set_synchronous_full(connection: apsw.Connection, path: str) -> None:
    """NORMAL can lose an acknowledged commit at power loss (case 20)."""
    connection.pragma("synchronous", "full")
    _require(connection.pragma("synchronous") == 2, f"{show_text(path)}: synchronous=FULL could not be set")


def set_unsynced(connection: apsw.Connection, is_synced: bool) -> None:
    """For a database that is synced whole before it gets its name: what it looks like on disk until then is nobody's concern."""
    if not is_synced:
        connection.pragma("synchronous", "off")


def set_building(connection: apsw.Connection, path: str) -> None:
    """For a database that nobody looks for yet and that a failure throws away: no sync, and contents are written once, not by a WAL."""
    connection.pragma("synchronous", "off")
    mode = connection.pragma("journal_mode", "memory")
    _require(mode == "memory", f"{show_text(path)}: journal mode is {mode} and could not be set")


def set_keep_wal_on_close(connection: apsw.Connection) -> None:
    """Closing deletes no side file: whoever copies a dead session's files always finds database and WAL together."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def set_wal_autocheckpoint(connection: apsw.Connection) -> None:
    """A commit that leaves WAL_PAGES or more in the WAL brings them into the database. Appends of 1 KiB cost the same from 250 to 4,000
    pages (p50 0.94 to 1.10 ms, p99 2.4 to 3.4 ms); below, the checkpoints show. So the WAL is kept small."""
    connection.pragma("wal_autocheckpoint", WAL_PAGES)
    _require(connection.pragma("wal_autocheckpoint") == WAL_PAGES, "wal_autocheckpoint could not be set")


def set_journal_size_limit(connection: apsw.Connection) -> None:
    """A WAL that has grown beyond WAL_BYTES (a large commit, a reader that pinned it) is cut back to it when it is next begun anew."""
    connection.pragma("journal_size_limit", WAL_BYTES)
    _require(connection.pragma("journal_size_limit") == WAL_BYTES, "journal_size_limit could not be set")


def has_moved(connection: apsw.Connection) -> bool:
    """Whether the database file that this connection holds is no longer the one at its path (SQLite's own comparison of inodes)."""
    moved = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
    return bool(moved.value)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise MisuseError(message)


def _has_no_inodes(path: str) -> bool:
    """Whether no further file can be made beside `path`: SQLite says then that it cannot open what it cannot make."""
    try:
        room = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return False
    return room.f_files > 0 and room.f_favail == 0


def advise_doctor(name: str) -> str:
    """What ends the sentence about a database that cannot be read: `verify` could only say it again, `doctor` says what is left."""
    return f"; keep a copy and run `eventlog doctor {as_word(name)}`"


def translate(error: apsw.Error, path: str, name: str | None = None) -> Exception:
    """The typed error for an SQLite error outside COMMIT: busy is not fenced, full is not corrupt (L7). It says `name`, as shown, where
    the log is known by another one than the path's."""
    name = show_text(path) if name is None else name
    match error:
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            holder = find_holder(path)
            return BusyError(f"{name}: LogBusy: {describe(holder)}; try again, or end that process", holder)
        case apsw.ConnectionClosedError():
            return InternalError(f"{name}: this handle is closed")
        case apsw.FullError():
            return FullError(f"{name}: no room left on the device; nothing was recorded; make room and run the same command again")
        case apsw.NotADBError() if _is_bundle(path):
            return MisuseError(
                f"{name}: this is a bundle; `eventlog import NEWLOG {as_word(name)} --new --dry-run` checks it, and takes it in "
                "without --dry-run"
            )
        case apsw.CorruptError() | apsw.NotADBError():
            return CorruptError(f"{name}: the database is damaged ({error}){advise_doctor(name)}")
        case apsw.ConstraintError():
            return CorruptError(f"{name}: the log refused a change that no sound log allows ({error}); {advise_verify(name)}")
        case apsw.CantOpenError() if _has_no_inodes(path):
            return FullError(f"{name}: no room left: the file system has no inodes free; remove files there and run the same command again")
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return MisuseError(f"{name}: cannot be opened here ({error}); check that file and directory are readable and writable")
        case apsw.IOError() if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:  # the index could not be made larger
            return FullError(f"{name}: no room left for the log's index; nothing was recorded; make room and run the same command again")
        case apsw.NoMemError():
            return UncertainCommitError(f"{name}: not enough memory; open the log again where there is more")
        case apsw.IOError():
            return UncertainCommitError(
                f"{name}: the device failed ({error}); nothing more is written through this handle, open the log again"
            )
        case _:
            return CorruptError(f"{name}: SQLite says: {error}; {advise_verify(name)}")


def _is_bundle(path: str) -> bool:
    """Whether a file that is no database is a bundle."""
    try:
        with open(path, "rb") as file:
            return file.read(len(BUNDLE_MAGIC)) == BUNDLE_MAGIC
    except OSError:
        return False


def translate_system(error: OSError, path: str) -> Exception:
    """The typed error for what the operating system says of a file of the log; `error` itself where that is no weather."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return FullError(f"{show_text(path)}: no room left on the device; make room and run the same command again")
        case errno.EIO:
            return UncertainCommitError(f"{show_text(path)}: the device failed ({error.strerror}); look whether the log is there")
        case _:
            name = show_text(os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else path)
            return MisuseError(f"{name}: {error.strerror or error}; mend that and run the same command again")


def find_holder(path: str) -> Holder | None:
    """Who holds the log's write lock, asked by a helper process without a log handle (L4); None when nobody does, or nobody can tell."""
    # F_GETLK on the WAL index's write-lock byte (120), as SQLite's unix VFS places it. A process of its own, because
    # closing the file here would drop this process's locks (FACTS, trap 1).
    code = (
        "import fcntl,struct,sys\n"
        "f=open(sys.argv[1],'rb+')\n"
        "r=struct.unpack('hhqqi',fcntl.fcntl(f,fcntl.F_GETLK,struct.pack('hhqqi',fcntl.F_WRLCK,0,120,1,0)))\n"
        "print('' if r[0]==fcntl.F_UNLCK else max(r[4],0))\n"
    )
    pid = run_helper([sys.executable, "-I", "-S", "-c", code, path + "-shm"]).strip()
    return look_up_holder(int(pid)) if pid.isdigit() else None


def run_helper(arguments: list[str]) -> str:
    """Output of a short helper started by posix_spawn (no Python code runs between fork and exec: case 21), "" when it fails."""
    read_end, write_end = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, write_end, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        pid = os.posix_spawn(arguments[0], arguments, {}, file_actions=actions)
    except OSError:
        os.close(read_end)
        return ""
    finally:
        os.close(write_end)
    try:
        with os.fdopen(read_end, "rb") as file:
            text = file.read()
    finally:
        with contextlib.suppress(ChildProcessError):  # where SIGCHLD is ignored nobody has to be waited for
            os.waitpid(pid, 0)
    return text.decode("ascii", "replace")
