"""A disk that takes no more while a command ends: nobody is told of an exit whose record does not stand, and output that cannot be kept is
said to be missing."""

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3

from eventlog import durable, events
from eventlog.errors import LostProcessError
from eventlog.events import Exit
from recovery.space import shim
from recovery.space.records import Exited
from tests.helpers import is_running, wait_until
from tests.recovery.sessions import Driver, Sandbox, Zygote, bash, sandbox_directory
from tests.recovery.space.spaces import LooseSpace, open_space
from tests.recovery.workspace.support import run_with_own_mounts

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refuse_while(path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_refused: Callable[[bytes], bool]) -> None:
    """Have `durable.NAME` find no room while `path` is there, for the bytes that `is_refused` says; in every process forked from now on."""
    real = getattr(durable, name)

    def act(where: object, data: bytes, *more: object, **named: object) -> None:
        if path.exists() and is_refused(data):
            raise FULL
        real(where, data, *more, **named)

    monkeypatch.setattr(durable, name, act)


def is_exit(line: bytes) -> bool:
    return b'"op":"exit"' in line


def exit_of(space: LooseSpace, key: str) -> Exited | None:
    space.ledger.refresh()
    return space.ledger.state.attempts[key].exit


@pytest.mark.parametrize("mark", ["auto", "environment"])
def test_an_exit_is_told_only_when_its_record_stands(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shim tries again until there is room; meanwhile nobody is told 0, and the driver says why it waits."""
    full = tmp_path / "full"
    refuse_while(full, monkeypatch, "append_unsynced", is_exit)
    with open_space(mark) as space:
        full.touch()
        request = space.request("true")
        owner = space.start(request)
        space.space.tell = lambda line: (space.told.append(line), full.unlink(missing_ok=True))[0]
        exited = space.space.wait_command(request.key, owner)
        assert space.told and "cannot be recorded" in space.told[0] and "No space left" in space.told[0]
        assert exited == exit_of(space, request.key) and exited.exit == Exit("exited", code=0)
        assert space.run("exit 2").exit == Exit("exited", code=2)


def test_a_record_that_is_never_taken_makes_the_attempt_lost_and_never_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = tmp_path / "full"
    refuse_while(full, monkeypatch, "append_unsynced", is_exit)
    monkeypatch.setattr(shim, "RECORD_SECS", 0.0)
    with open_space("auto") as space:
        if not space.setting.base:
            pytest.skip("no writable cgroup v2 here: a shim under a weaker mark never gives up its record")
        full.touch()
        request = space.request("true")
        owner = space.start(request)
        with pytest.raises(LostProcessError, match="ended without an exit record"):
            space.space.wait_command(request.key, owner)
        wait_until(lambda: not is_running(owner.pid), "the end of the shim, which let go of its driver first")
        assert exit_of(space, request.key) is None
        assert any("No space left" in line for line in space.told)


def test_under_the_environment_mark_a_shim_never_gives_its_record_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it would go the proof that its command is dead."""
    full = tmp_path / "full"
    refuse_while(full, monkeypatch, "append_unsynced", is_exit)
    monkeypatch.setattr(shim, "RECORD_SECS", 0.0)
    with open_space("environment") as space:
        full.touch()
        request = space.request("exit 9")
        owner = space.start(request)
        space.space.tell = lambda line: (space.told.append(line), len(space.told) > 2 and full.unlink(missing_ok=True))[0]
        assert space.space.wait_command(request.key, owner).exit == Exit("exited", code=9)
        assert len(space.told) > 2


def test_output_that_cannot_be_kept_is_said_to_be_missing_and_the_exit_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = tmp_path / "full"
    refuse_while(full, monkeypatch, "publish", lambda data: True)
    with open_space() as space:
        full.touch()
        exited = space.run("echo words; echo more >&2; exit 3", separate=True)
        assert (exited.exit, exited.missing) == (Exit("exited", code=3), "ENOSPC: No space left on device")
        assert (exited.output_total, exited.output_kept, exited.digest) == (6, 0, blake3(b"words\n").hexdigest())
        assert (exited.stderr_total, exited.stderr_kept) == (5, 0) and space.output(exited) == (b"", b"")
        full.unlink()
        assert space.output(space.run("echo words"))[0] == b"words\n"


def test_a_session_whose_output_cannot_be_kept_says_so_in_its_log() -> None:
    """A file system for kept output alone, too small for this one: the call settles with its exit, and the outcome says what is missing."""

    def with_little_room() -> None:
        Zygote._process = None  # the one of the test process lives among its mounts
        with sandbox_directory() as base:
            sandbox = Sandbox(base)
            place = sandbox.state / "space" / "output"
            place.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=True)
            try:
                driver = sandbox.run("run", sandbox.session(bash("head -c 300000 /dev/zero; exit 4"), bash("echo small")))
                check_missing(sandbox, driver)
            finally:
                sandbox.close()
                subprocess.run(["umount", "--lazy", str(place)], check=False)
                if Zygote._process is not None:
                    Zygote._process.kill()
                    Zygote._process.wait()

    run_with_own_mounts(with_little_room)


def check_missing(sandbox: Sandbox, driver: Driver) -> None:
    assert driver.code == 0, driver.err
    first, second = sandbox.of_kind(events.CallSettled)
    assert (first.exit, first.output.missing, first.output.total, first.output.kept) == (
        Exit("exited", code=4), "ENOSPC: No space left on device", 300000, 0,
    )  # fmt: skip
    assert first.output.cut and (second.output.missing, sandbox.output(2)) == ("", b"small\n")
    assert "its output could not be kept (ENOSPC: No space left on device)" in driver.err
