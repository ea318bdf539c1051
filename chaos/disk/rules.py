"""What a driver on a failing disk may do and say, judged from its end, its last words and the device's trace. Pure but for `read_trace`.

- It ends with 0 (it coped) or 1 (try again), with one sentence and no traceback. A read-only file system, or a file that cannot even be
  opened, may need a person: 78.
- A full disk is called full. Weather is never damage: no error of the disk is reported as a damaged or missing record.
- A sync that failed is never tried again as if it could succeed: the process that met it syncs that file no more (after a failed fsync the
  kernel may have dropped the pages, and a second one that succeeds promises what is not on the disk).
- The log is the one that was there, or there is none, or a whole new one: never a new one in place of another.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.disk.fault import DiskFault
from chaos.drivers import Place
from chaos.results import OracleVerdict, Verdict

ORACLE = "disk"
_TRACEBACK = "Traceback (most recent call last)"
_FULL = re.compile(r"\b(room|full|No space)\b", re.IGNORECASE)
_DAMAGE = re.compile(r"damaged|corrupt|malformed|is gone", re.IGNORECASE)
_SENTENCE = re.compile(r"recovery: .{20,}")


@dataclass(frozen=True, slots=True)
class Done:
    """One line of the device's trace; `error` is "" for what was done."""

    pid: int
    operation: str
    role: str
    count: int
    error: str
    path: str


def parse_trace(text: str) -> list[Done]:
    """The whole lines of a trace; one that a kill has cut is left out."""
    found = []
    for line in text.split("\n")[:-1]:
        pid, operation, role, count, error, path = line.split(" ", 5)
        found.append(Done(int(pid), operation, role, int(count), "" if error == "-" else error, path))
    return found


def read_trace(place: Place) -> list[Done]:
    """What was done to the disk of a trial; nothing where no driver was put on one."""
    return parse_trace(place.disk_trace.read_text("utf-8", "surrogateescape")) if place.disk_trace.exists() else []


def has_fired(trace: Sequence[Done], fault: DiskFault) -> bool:
    """Whether the fault's own operation was met and failed."""
    wanted = (fault.role, fault.operation, fault.number, fault.error)
    return any((one.role, one.operation, one.count, one.error) == wanted for one in trace)


def count_operations(trace: Sequence[Done]) -> Counter[tuple[str, str]]:
    """How often each operation was done on each role of files."""
    return Counter((one.role, one.operation) for one in trace)


def find_repeated_sync(trace: Sequence[Done]) -> str:
    """The file that a process synced after a sync of it had failed there; "" for none. What was removed in the end is nobody's promise (a
    log in the making is thrown away when its sync fails, and SQLite rolls it back first)."""
    removed = {one.path for one in trace if one.operation == "unlink" and not one.error}
    failed: set[tuple[int, str]] = set()
    for one in (one for one in trace if one.path not in removed):
        if one.operation == "sync" and one.error:
            failed.add((one.pid, one.path))
        elif one.operation == "sync" and (one.pid, one.path) in failed:
            return one.path
    return ""


def may_need_a_person(fault: DiskFault) -> bool:
    """Whether a driver may end with 78: SQLite does not say why it cannot open a file, and only a person mounts a file system writable."""
    return fault.error == "EROFS" or fault.operation in ("open", "take")


def judge_driver(fault: DiskFault, code: int, said: str, trace: Sequence[Done], log_before: int, log_after: int) -> OracleVerdict:
    """The verdict on one driver. `log_before` and `log_after` are the log's inode numbers, 0 for no log."""
    words = said.strip().splitlines()
    last = words[-1] if words else ""
    allowed = (0, 1, 78) if may_need_a_person(fault) else (0, 1)
    repeated = find_repeated_sync(trace)
    if _TRACEBACK in said:
        why = f"it ended with a traceback: {last}"
    elif code not in allowed:
        why = f"it ended with {code}: {last}"
    elif code and not _SENTENCE.match(last):
        why = f"it ended with {code} and said no sentence: {last!r}"
    elif code and fault.error == "ENOSPC" and not _FULL.search(last):
        why = f"the disk was full, and it does not say so: {last}"
    elif code and _DAMAGE.search(last):
        why = f"an error of the disk is told as damage: {last}"
    elif repeated:
        why = "a sync that had failed was tried again by the same process"
    elif log_before and log_after != log_before:
        why = "the log is another file than before"
    else:
        return OracleVerdict(ORACLE, Verdict.PASS, f"ended with {code}" + (f": {last[:200]}" if code else ""))
    return OracleVerdict(ORACLE, Verdict.FAIL, why[:500], repeated, event=f"{fault.role} {fault.operation} {fault.number} {fault.error}")
