"""A space on a real cua-spacesd: what the record of ours adds, and that what is listed as unavailable is so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.errors import FenceIncompleteError, LostProcessError, MisuseError, StaleEpochError
from eventlog.ports import CountingIds, LinuxHost, RandomIds, SystemClock
from recovery.space.conformance.cua_subject import CuaSubject
from recovery.space.conformance.fixtures import command
from recovery.space.cua import NOBODY, RECORD, Address, CuaSpace, open_cua
from recovery.space.cua_client import Daemon
from recovery.space.cua_limits import UNAVAILABLE
from recovery.space.cua_server import is_installed, start_server
from recovery.space.keys import prepare
from recovery.space.ledger import Ledger
from recovery.space.listing import AttemptWord
from recovery.space.records import Prepare, Start
from recovery.space.request import digest_request

pytestmark = pytest.mark.skipif(not is_installed(), reason="the cua package is not installed")


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[CuaSubject]:
    made = CuaSubject(tmp_path)
    yield made
    made.close()


@pytest.fixture
def space(subject: CuaSubject) -> CuaSpace:
    handle = subject.open()
    handle.advance(1)
    return handle


def begin(space: CuaSpace, subject: CuaSubject, key: str) -> None:
    space.start(1, command(key, subject.blocks(key, b"said")))
    subject.until(lambda: subject.witnessed(key) == 1, f"the start of {key}")


def restart(subject: CuaSubject, tmp_path: Path) -> CuaSpace:
    subject.server.stop()
    subject.server = start_server(str(tmp_path / "server"), "/usr/bin:/bin", RandomIds(), SystemClock())
    return subject.open()


def test_it_says_what_it_cannot_do(space: CuaSpace) -> None:
    assert space.unavailable() == UNAVAILABLE


def test_files_are_for_their_owner_alone(space: CuaSpace, subject: CuaSubject, tmp_path: Path) -> None:
    space.start(1, command("k", subject.prints(b"secret")))
    space.wait(1, "k")
    for top in (tmp_path / "server", tmp_path / "space"):
        assert top.stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "space" / RECORD, tmp_path / "server" / "token", tmp_path / "server" / "data" / "exec-ledger.jsonl"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_wrong_token_needs_a_person(subject: CuaSubject, tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="refuses the token") as raised:
        open_cua(str(tmp_path / "other"), Address(subject.server.url, "wrong"), CountingIds(), SystemClock(), LinuxHost())
    assert raised.value.exit_code == 78


def test_what_ended_is_replayed_after_the_daemon_died(space: CuaSpace, subject: CuaSubject, tmp_path: Path) -> None:
    seen, unseen = command("seen", subject.prints(b"1" * 100_000)), command("unseen", subject.prints(b"2" * 100_000))
    space.start(1, seen)
    first = space.wait(1, "seen")
    space.start(1, unseen)
    daemon_record = space._daemon.record
    exec_id = space._exec_id(space._find(space._refresh(), "unseen").prepared)
    subject.until(lambda: (found := daemon_record(exec_id)) is not None and not found.is_running, "the end of the other command")
    again = restart(subject, tmp_path)
    assert again.start(1, seen) == "replayed" and again.wait(1, "seen") == first and first.out == b"1" * 100_000
    assert again.start(1, unseen) == "replayed"
    late = again.wait(1, "unseen")
    assert late.exit is not None and late.exit.code == 0
    assert (late.out_total, late.digest) == (100_000, "")
    assert late.out.startswith(b"[34464 bytes not kept]\n2") and late.out.endswith(b"2" * 65_536)


def test_a_command_whose_daemon_died_is_lost_and_no_advance_calls_it_dead(space: CuaSpace, subject: CuaSubject, tmp_path: Path) -> None:
    """In another system the server's death made the next advance miss its orphans."""
    begin(space, subject, "k")
    subject.server.stop()
    with pytest.raises(LostProcessError, match="does not answer") as raised:
        space.wait(1, "k")
    assert raised.value.exit_code == 1
    again = restart(subject, tmp_path)
    found = again.look("k")
    assert found is not None and (found.word, found.exit) == (AttemptWord.LOST, None)
    with pytest.raises(LostProcessError, match="nobody knows"):
        again.wait(1, "k")
    assert again.start(1, command("k", subject.blocks("k", b"said"))) == "attached"
    for epoch in (2, 3):
        with pytest.raises(FenceIncompleteError, match="k was lost by the daemon"):
            again.advance(epoch)
    assert again.facts().floor == 3 and subject.is_alive("k") and subject.witnessed("k") == 1
    subject.release("k")
    subject.until(lambda: not subject.is_alive("k"), "the end of the orphan")
    again.take_for_dead(3, ["k"])
    assert again.advance(4).condemned == ()
    assert [one.word for one in again.list()] == [AttemptWord.LOST]


def test_a_waiting_handle_sees_that_the_daemon_died(space: CuaSpace, subject: CuaSubject) -> None:
    begin(space, subject, "k")

    def stop(stream: str, data: bytes) -> None:
        subject.server.stop()

    with pytest.raises(LostProcessError, match="does not answer"):
        space.wait(1, "k", stop)
    subject.release("k")


def test_a_waiting_handle_sees_a_newer_epoch(space: CuaSpace, subject: CuaSubject) -> None:
    begin(space, subject, "k")
    other = subject.open()

    def advance(stream: str, data: bytes) -> None:
        other.advance(2)

    with pytest.raises(StaleEpochError):
        space.wait(1, "k", advance)
    assert not subject.is_alive("k")


def test_a_start_that_was_cut_short_is_lost_and_never_run(space: CuaSpace, subject: CuaSubject, tmp_path: Path) -> None:
    """Killed between the record's starting mark and the daemon: whether the daemon was asked nobody can tell."""
    request = command("k", subject.blocks("k"))
    ledger = Ledger(str(tmp_path / "space" / RECORD), SystemClock())
    prepare(ledger, Prepare("k", "command", 1, None, 1, digest_request(request), "process-group:merged/h0", None, 0, ""))
    with ledger.transaction() as transaction:
        transaction.append(Start("k", NOBODY, ""))
    ledger.close()
    assert space.start(1, request) == "attached"
    found = space.look("k")
    assert found is not None and found.word is AttemptWord.LOST and subject.witnessed("k") == 0


def test_a_start_that_was_cut_short_before_its_mark_is_begun_by_the_next(space: CuaSpace, subject: CuaSubject, tmp_path: Path) -> None:
    request = command("k", subject.exits(4))
    ledger = Ledger(str(tmp_path / "space" / RECORD), SystemClock())
    prepare(ledger, Prepare("k", "command", 1, None, 1, digest_request(request), "process-group:merged/h1", None, 0, ""))
    ledger.close()
    assert space.start(1, request) == "started"
    ended = space.wait(1, "k")
    assert ended.exit is not None and ended.exit.code == 4


def test_an_advance_by_somebody_else_at_the_daemon_fences_this_space_too(space: CuaSpace, subject: CuaSubject, tmp_path: Path) -> None:
    other = Daemon(subject.server.url, subject.server.token, str(tmp_path / "elsewhere"))
    other.advance(7)
    other.close()
    with pytest.raises(StaleEpochError):
        space.start(1, command("k", subject.blocks("k")))
    assert space.facts().floor == 7 and space.list() == []
    assert space.advance(8).floor == 8


def test_what_left_its_group_escapes_the_advance_as_the_list_says(space: CuaSpace, subject: CuaSubject) -> None:
    """When this fails the daemon has learnt it: promise "proves death" then."""
    space.start(1, command("k", subject.escapes("k")))
    subject.until(lambda: subject.witnessed("k") == 1, "the start of k")
    assert space.advance(2).condemned == ("k",)
    assert subject.is_alive("k") and "proves death" in space.unavailable()


@pytest.mark.parametrize("arguments", [[b"true", b"x" * (1 << 18)], [b"true", b"x\0y"], [b""]], ids=["E2BIG", "NUL", "no program"])
def test_what_the_daemon_does_not_start_has_an_end(space: CuaSpace, arguments: list[bytes]) -> None:
    space.start(1, command("k", arguments))
    ended = space.wait(1, "k")
    assert ended.exit is not None and ended.exit.kind == "start_failed" and ended.exit.error
