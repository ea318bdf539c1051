"""Nobody waits without an end for what will never answer (S5)."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from eventlog.errors import BusyError, LostProcessError
from eventlog.ports import LinuxHost, RandomIds, SystemClock
from recovery.space import silence
from recovery.space.file_request import FileRequest, Write
from recovery.space.holders import Holders
from recovery.space.keys import prepare
from recovery.space.ledger import Ledger
from recovery.space.marks import choose_marks
from recovery.space.records import Prepare
from recovery.space.request import CommandRequest, digest_request
from recovery.space.standalone import StandaloneSpace, make_space
from recovery.workspace import worker
from recovery.workspace.tools import ToolResult, write_file
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


def test_rule_S5_a_stopped_file_worker_is_named_to_another_handle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def write(root: str, path: bytes, *rest: Any) -> ToolResult:
        if path == b"stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        return write_file(root, path, *rest)

    monkeypatch.setattr(silence, "STOPPED_SECS", 0.3)
    (tmp_path / "work").mkdir()
    first, second = (open_with_workspace(tmp_path) for _ in range(2))
    first.advance(1)
    monkeypatch.setattr(worker, "write_file", write)
    assert first.change(1, FileRequest("before", Write(b"f", b"x"))) == "started", "its helpers are forked before there is a thread"
    request = FileRequest("k", Write(b"stop", b"x"))
    thread = threading.Thread(target=lambda: pytest.raises(LostProcessError, first.change, 1, request))
    thread.start()
    wait_until(lambda: any(one.key == "k" and one.shim is not None for one in second.list()), "the start of the change")
    with pytest.raises(BusyError, match=r"k: its file worker, process \d+, is stopped"):
        second.wait(1, "k")
    stopped = next(one.shim for one in second.list() if one.key == "k")
    assert stopped is not None
    os.kill(stopped.pid, signal.SIGKILL)
    thread.join(60)
    assert not thread.is_alive()
    first.close()
    second.close()


def open_with_workspace(base: Path) -> StandaloneSpace:
    holders = Holders(str(base / "holders"), SystemClock())
    space = StandaloneSpace(make_space(str(base / "space"), RandomIds()), choose_marks("auto"), SystemClock(), LinuxHost(), None, holders)
    space.use_workspace(str(base / "work"), RandomIds(), lambda _: False)
    return space
