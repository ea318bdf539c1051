"""From facts to words: what is wrong with a log, how bad it is, what to do. Pure."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from eventlog.connection import APPLICATION_ID
from eventlog.examination import Facts
from eventlog.preflight import is_refused
from eventlog.show import as_word, show_path, show_text
from eventlog.values import FORMAT, READABLE_FORMATS, WRITABLE_FORMATS
from eventlog.verify_blobs import Use

Harm = Literal["nothing lost", "some content lost", "events lost"]
LARGE_WAL_BYTES = 64 << 20
LEAST_ROOM_BYTES = 16 << 20
_MAGIC = b"SQLite format 3\0"


class Diagnosis(msgspec.Struct, frozen=True):
    """One thing to know of a log: what, which, how bad, and what to do next. A remark is no `is_problem`: a healthy log may have some."""

    kind: str
    what: str
    which: str
    harm: Harm
    advice: str
    is_problem: bool = True


def judge_files(facts: Facts) -> Iterator[Diagnosis]:
    """What the files alone tell; the log is not opened."""
    if facts.size is None:
        yield _missing(facts)
        return
    yield from _judge_place(facts)
    if not facts.is_regular or not facts.is_readable:
        return
    yield from _judge_header(facts)
    yield from _judge_side_files(facts)


def can_be_opened(facts: Facts) -> bool:
    """Whether it makes sense to open the log. One with a damaged header may open all the same: its -wal may have a newer first page."""
    if not facts.size or not facts.is_regular or not facts.is_readable:
        return False
    return not (facts.header.startswith(_MAGIC) and _application(facts) == APPLICATION_ID and _format(facts) not in READABLE_FORMATS)


def _missing(facts: Facts) -> Diagnosis:
    name = show_text(facts.path)
    if facts.wal_bytes:
        what = f"the log is missing, and its -wal of {facts.wal_bytes} bytes is there: somebody took away the database alone"
        advice = f"put {name} back beside its -wal, which may hold the newest events; start nothing before, and remove nothing"
        return Diagnosis("missing", what, name, "events lost", advice)
    what = "the log is missing: there is no such file, and no -wal of it"
    advice = "check the path, or restore the file from a copy; a missing log is never made anew"
    return Diagnosis("missing", what, name, "events lost", advice)


def _judge_place(facts: Facts) -> Iterator[Diagnosis]:
    name = show_text(facts.path)
    if not facts.is_regular:
        yield Diagnosis("not_a_file", "this is not a regular file", name, "nothing lost", "name the log.sqlite of a session")
    elif not facts.is_readable:
        yield Diagnosis("unreadable", "this user may not read the file", name, "nothing lost", f"chmod u+r {name}, or look as its owner")
    if facts.is_regular and facts.mode & 0o077:
        what = f"others can read or write the log (mode {facts.mode:04o}); it is as secret as the workspace"
        yield Diagnosis("permissions", what, name, "nothing lost", f"chmod 600 {name}")
    if facts.is_regular and facts.names > 1:
        what = f"the log has {facts.names} names (hard links), and each has a WAL of its own: what is written under one damages the other"
        advice = "remove the other names; where a second log is wanted, copy log.sqlite and its -wal together"
        yield Diagnosis("hard_links", what, name, "nothing lost", advice)
    if is_refused(facts.filesystem):
        what = f"the log lies on a {facts.filesystem} file system, where SQLite's WAL corrupts within minutes"
        yield Diagnosis("network", what, name, "nothing lost", "end its driver, and move the state directory to a local disk")
    if facts.is_read_only:
        what = "the directory cannot be written: a driver cannot go on here, and readers work on a temporary copy"
        advice = "mount it writable, or copy database and -wal together to another place"
        yield Diagnosis("read_only", what, name, "nothing lost", advice, is_problem=False)
    elif facts.free_bytes < max(LEAST_ROOM_BYTES, facts.wal_bytes or 0):
        what = f"the device has room for {facts.free_bytes} bytes only; appends will be refused (nothing is recorded then)"
        yield Diagnosis("no_room", what, name, "nothing lost", "make room on that device, then run the same command again")
    if facts.holder:
        what = f"the write lock is held by another process, and was not let go while we looked ({facts.holder})"
        yield Diagnosis("locked", what, name, "nothing lost", "wait for that process; if it is stopped or stuck, end it, then drive again")


def _judge_header(facts: Facts) -> Iterator[Diagnosis]:
    name = show_text(facts.path)
    if facts.size == 0:
        left = f"; its -wal has {facts.wal_bytes} bytes" if facts.wal_bytes else ""
        what = f"the log is an empty file{left}"
        advice = "put the file back from a copy, keep its -wal, and open nothing before: SQLite deletes a WAL beside an empty file"
        yield Diagnosis("empty", what, name, "events lost", advice)
    elif not facts.header.startswith(_MAGIC):
        what = "this does not begin as an SQLite database: it is no log, or its first page is damaged"
        yield Diagnosis("not_a_log", what, name, "nothing lost", f"if it was a log: `eventlog doctor {as_word(name)} --repair NEWFILE`")
    elif _application(facts) != APPLICATION_ID:
        what = "this is an SQLite database, and not a crashworthy log: its application id is another"
        advice = f"name the log.sqlite of a session; if it was one: `eventlog doctor {as_word(name)} --repair NEWFILE`"
        yield Diagnosis("not_a_log", what, name, "nothing lost", advice)
    elif _format(facts) > FORMAT:
        what = f"the log has format {_format(facts)}, and this version knows up to {FORMAT}"
        yield Diagnosis("newer_format", what, name, "nothing lost", "use the version of crashworthy that wrote it, or a newer one")
    elif 0 < _format(facts) < FORMAT:
        kept = "is read and written as it is" if _format(facts) in WRITABLE_FORMATS else "becomes format 2 when next opened for writing"
        what = f"the log has format {_format(facts)}: it {kept}, and becomes format {FORMAT} by `eventlog compact`"
        yield Diagnosis("older_format", what, name, "nothing lost", "nothing to do", is_problem=False)


def _judge_side_files(facts: Facts) -> Iterator[Diagnosis]:
    if facts.has_journal:
        name = show_text(facts.path + "-journal")
        what = "a -journal lies beside the log, which has a -wal instead: SQLite takes it for a rollback to be done, and opens nothing"
        yield Diagnosis("stray_journal", what, name, "nothing lost", f"no log makes one: move {name} away, then run the same command again")
    wal = show_text(facts.path + "-wal")
    if facts.wal_bytes is None and facts.shm_bytes is not None:
        what = "the -wal is missing and the -shm is there: somebody removed it, and with it what was committed since the last checkpoint"
        shm = show_text(facts.path + "-shm")
        advice = (
            f"put the -wal back if you have it; else remove {shm}, without which the log opens as it stands in the database, and ask an "
            "anchor, `eventlog verify --anchor FILE`, or the ledger, `recovery plan`, what is gone"
        )
        yield Diagnosis("wal_missing", what, wal, "events lost", advice)
    elif facts.wal_bytes is None:
        what = "there is no -wal: right for a log that was just made or is compacted; a copy of a log in use lacks its newest events then"
        yield Diagnosis("wal_missing", what, wal, "nothing lost", "if it is a copy: copy database and -wal together", is_problem=False)
    elif facts.shm_bytes is None:
        what = "there is no -shm: SQLite makes that index of the WAL anew when the log is next opened"
        yield Diagnosis("shm_missing", what, show_text(facts.path + "-shm"), "nothing lost", "nothing to do", is_problem=False)
    if facts.wal_bytes is not None and facts.wal_bytes > LARGE_WAL_BYTES:
        what = f"the -wal has {facts.wal_bytes} bytes: a reader that never ends keeps it from being emptied, or nobody has written since"
        advice = "end processes that read the log for long; the next driver, or `eventlog compact`, then empties it"
        yield Diagnosis("wal_size", what, wal, "nothing lost", advice)


def _application(facts: Facts) -> int:
    return int.from_bytes(facts.header[68:72], "big")


def _format(facts: Facts) -> int:
    return int.from_bytes(facts.header[60:64], "big")


def describe_uses(uses: list[Use]) -> str:
    """Which images and calls need a content."""
    if not uses:
        return "no event needs it"
    named = [
        f"{show_path(use.path)} since {show_text(use.stream)} seq {use.seq}"
        if use.path is not None
        else f"the output of the call settled at {show_text(use.stream)} seq {use.seq}"
        for use in uses
    ]
    return "needed by " + ", ".join(named)
