"""A command whose owner is dead, and whose owner's number is somebody else's now: laid down in the ledger of local processes."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from eventlog.ports import LinuxHost, SystemClock
from eventlog.process_identity import identify
from recovery.space.conformance.local_subject import LocalSubject
from recovery.space.conformance.subject import Subject
from recovery.space.ledger import Ledger
from recovery.space.local import SpacePaths
from recovery.space.marks import choose_marks, name_mark
from recovery.space.records import Prepare, ProvedDead, Start


@contextmanager
def number_given_away(subject: Subject, key: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The stranger, who lives. Skips a space that is not local processes. Afterwards the command is on record as dead, which under some
    marks nobody could prove."""
    if type(subject) is not LocalSubject:
        pytest.skip("the space has no processes whose numbers could be a stranger's")
    stranger = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
    ledger = Ledger(SpacePaths(str(subject._space)).ledger, SystemClock())
    try:
        identity = identify(stranger.pid, LinuxHost())
        assert identity is not None
        with ledger.transaction() as transaction:
            header = transaction.state.header
            assert header is not None
            mark = name_mark(choose_marks(subject._mark), header.ledger_id, "given-away")
            transaction.append(Prepare(key, "command", transaction.state.floor, None, 1, "", mark, None, 0, ""))
            transaction.append(Start(key, msgspec.structs.replace(identity, start_ticks=identity.start_ticks - 1), "given-away"))
        yield stranger
        with ledger.transaction() as transaction:
            transaction.append(ProvedDead(transaction.state.floor, [key], []))
    finally:
        ledger.close()
        stranger.kill()
        stranger.wait()
