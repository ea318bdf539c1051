"""Nobody waits without an end for what will never answer (S5)."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from eventlog.errors import BusyError
from eventlog.ports import LinuxHost, RandomIds, SystemClock
from recovery.space import silence
from recovery.space.keys import prepare
from recovery.space.ledger import Ledger
from recovery.space.marks import choose_marks
from recovery.space.records import Prepare
from recovery.space.request import CommandRequest, digest_request
from recovery.space.standalone import StandaloneSpace, make_space
from tests.helpers import wait_until

TRUE = CommandRequest("k", [b"true"], b"/", [(b"PATH", os.fsencode(os.defpath))])


@pytest.fixture
def space(tmp_path: Path) -> Iterator[StandaloneSpace]:
    paths = make_space(str(tmp_path / "space"), RandomIds())
    made = StandaloneSpace(paths, choose_marks("auto"), SystemClock(), LinuxHost(), silent_secs=0.5)
    made.advance(1)
    yield made
    made.advance(made.facts().floor + 1)
    made.close()


def test_a_socket_that_a_dead_shim_left_holds_no_key_up(space: StandaloneSpace, tmp_path: Path) -> None:
    """It died between its socket and its starting mark: the key may be started, and used to be waited for without an end."""
    directory = os.open(tmp_path / "space/sockets", os.O_RDONLY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(f"/proc/self/fd/{directory}/h{blake3(b'k').hexdigest(12)}")
    os.close(directory)
    assert space.start(1, TRUE) == "started"
    wait_until(lambda: space.look("k") is not None, "the command's end")
    assert space.wait(1, "k").exit is not None


def test_what_was_announced_and_never_begins_is_said_to_be(space: StandaloneSpace, tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "space/ledger"), SystemClock())
    prepare(ledger, Prepare("k", "command", 1, None, 1, digest_request(TRUE), "environment:x/y", None, 0, ""))
    ledger.close()
    with pytest.raises(BusyError, match="k was announced and has not begun for 0.5 s; .*`recovery space advance --dir .* --epoch 2"):
        space.wait(1, "k")


def test_rule_S5_a_shim_that_is_stopped_for_longer_than_its_bound_is_named(
    space: StandaloneSpace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before it is silent for long, too: the bound of a stopped one is its own."""
    monkeypatch.setattr(silence, "STOPPED_SECS", 0.3)
    patient = StandaloneSpace(make_space(str(tmp_path / "space"), RandomIds()), choose_marks("auto"), SystemClock(), LinuxHost())
    patient.start(1, CommandRequest("k", [b"sleep", b"1000"], b"/", TRUE.environment))
    wait_until(lambda: patient.list()[0].shim is not None, "the command's start")
    shim = patient.list()[0].shim
    assert shim is not None
    os.kill(shim.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BusyError, match=f"process {shim.pid}, is stopped: .* `kill -CONT {shim.pid}`"):
            patient.wait(1, "k")
    finally:
        os.kill(shim.pid, signal.SIGCONT)
    assert patient.end(1, "k").word.value == "exited"
    patient.close()
