"""What a space on cua-spacesd says that it cannot do: the list, the README and the suite say the same. None of this needs the package."""

import importlib.util
import re
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from eventlog.errors import LostProcessError, MisuseError
from eventlog.ports import CountingIds, FakeClock, FakeHost, RandomIds, SystemClock
from recovery.space.cua import Address, _check_request, open_cua
from recovery.space.cua_client import Collected, End, ExecRecord, Probe
from recovery.space.cua_limits import KNOWN_PROTOCOL, LEDGER_FEATURE, NEEDED, PROMISED, UNAVAILABLE, judge_probe, list_unavailable
from recovery.space.cua_server import find_program, is_installed, start_server
from recovery.space.port import CAPABILITIES
from recovery.space.request import CommandRequest

ROOT = Path(__file__).resolve().parents[3]
FIT = Probe("0.8.0", KNOWN_PROTOCOL, frozenset({LEDGER_FEATURE}), frozenset(NEEDED))
COMMAND = CommandRequest("k", [b"true"], b"/", [])


def test_every_capability_is_promised_or_listed_as_unavailable_and_none_is_both() -> None:
    assert PROMISED | (set(UNAVAILABLE) & set(CAPABILITIES)) == set(CAPABILITIES)
    assert not PROMISED & set(UNAVAILABLE)
    assert list_unavailable(judge_probe(FIT, "it")) == UNAVAILABLE


def test_the_readme_has_the_same_table() -> None:
    section = (ROOT / "recovery/README.md").read_text("utf-8").partition("## A space on cua-spacesd")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\| ([a-z][^|]*) \| (.*) \|$", section, re.MULTILINE)) == {"unavailable": "what is so instead"} | UNAVAILABLE


@pytest.mark.parametrize("method", NEEDED)
def test_a_daemon_without_ledger_or_epochs_is_refused(method: str) -> None:
    with pytest.raises(MisuseError, match=method) as raised:
        judge_probe(msgspec.structs.replace(FIT, methods=FIT.methods - {method}), "it")
    assert raised.value.exit_code == 78
    with pytest.raises(MisuseError, match="no process.exec_ledger"):
        judge_probe(msgspec.structs.replace(FIT, features=frozenset()), "it")


@pytest.mark.parametrize("protocol", [(1, 12), (0, 99), (2, 0)])
def test_a_daemon_of_an_unknown_protocol_is_refused(protocol: tuple[int, int]) -> None:
    with pytest.raises(MisuseError, match="1.13 is known here"):
        judge_probe(msgspec.structs.replace(FIT, protocol=protocol), "it")
    assert judge_probe(msgspec.structs.replace(FIT, protocol=(1, 14)), "it") == PROMISED


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (End(exit_code=137), ("exited", 137, None)),
        (End(signal_number=9), ("signaled", None, 9)),
        (End(signal_number=15, timed_out=True), ("timed_out", None, 15)),
        (End(exit_code=5, timed_out=True), ("timed_out", 5, None)),
        (End(error="executable not found"), ("start_failed", None, None)),
    ],
)
def test_an_end_is_told_as_what_it_was(end: End, told: tuple[str, int | None, int | None]) -> None:
    exit_ = ExecRecord("EXEC_STATE_EXITED", end=end).to_exit()
    assert exit_ is not None and (exit_.kind, exit_.code, exit_.signal) == told


@pytest.mark.parametrize(
    "record",
    [
        ExecRecord("EXEC_STATE_EXITED"),
        ExecRecord("EXEC_STATE_EXITED", end=End()),
        ExecRecord("EXEC_STATE_EXITED", end=End(timed_out=True)),
        ExecRecord("EXEC_STATE_EXITED", end=End(exit_code=0, signal_number=9)),
        ExecRecord("EXEC_STATE_EXITED", pid=9, end=End(error="its record could not be read")),
        ExecRecord("EXEC_STATE_EXITED", end=End(exit_code=0, lost=True)),
        ExecRecord("EXEC_STATE_LOST", end=End(error="it was running when the daemon stopped", lost=True)),
        ExecRecord("EXEC_STATE_RUNNING", end=End(exit_code=0)),
    ],
)
def test_no_exit_is_made_up(record: ExecRecord) -> None:
    assert record.to_exit() is None


def test_output_is_whole_by_number_and_digest_only() -> None:
    heard = Collected(separate=False)
    heard.add("out", b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert heard.count_missing(ExecRecord("", output_bytes=3, output_sha256=digest)) == 0
    assert heard.count_missing(ExecRecord("", output_bytes=3, output_sha256="0" * 64)) is None
    assert heard.count_missing(ExecRecord("", output_bytes=5, output_sha256=digest)) == 2
    assert heard.count_missing(ExecRecord("", output_bytes=2, output_sha256=digest)) is None


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        (CommandRequest("k", [b"cat"], b"/", [], stdin=b"x"), "standard input"),
        (CommandRequest("k", [b"true"], b"/", [], left_behind="fail"), "leaves running"),
        (CommandRequest("k", [], b"/", []), "no command"),
        (CommandRequest("k", [b"a\xff"], b"/", []), "not UTF-8"),
        (CommandRequest("k", [b"a"], b"/\xff", []), "not UTF-8"),
        (CommandRequest("k", [b"a"], b"/", [(b"A", b"\xff")]), "not UTF-8"),
    ],
)
def test_what_the_daemon_would_not_do_is_refused(request_: CommandRequest, word: str) -> None:
    _check_request(COMMAND)
    with pytest.raises(MisuseError, match=word):
        _check_request(request_)


def test_without_the_package_one_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cua", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not is_installed()
    for ask in (
        find_program,
        lambda: start_server(str(tmp_path / "server"), "", CountingIds(), FakeClock()),
        lambda: open_cua(str(tmp_path / "space"), Address("http://127.0.0.1:1", "t"), CountingIds(), FakeClock(), FakeHost()),
    ):
        with pytest.raises(MisuseError, match=r"not installed; `pip install 'crashworthy\[cua\]'`") as raised:
            ask()
        assert raised.value.exit_code == 78
    assert not (tmp_path / "server").exists()


def test_nothing_of_the_engine_imports_the_package() -> None:
    script = "import sys, recovery.__main__, recovery.space.cua, recovery.space.cua_server; sys.exit('cua' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=120, check=False).returncode == 0


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(MisuseError, match="not empty .mine is in it"):
        open_cua(str(tmp_path), Address("http://127.0.0.1:1", "t"), RandomIds(), SystemClock(), FakeHost())
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]


@pytest.mark.skipif(not is_installed(), reason="the cua package is not installed")
def test_where_no_daemon_answers_the_exit_is_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(LostProcessError, match="does not answer") as raised:
        open_cua(str(tmp_path / "space"), Address(f"http://127.0.0.1:{port}", "t"), RandomIds(), SystemClock(), FakeHost())
    assert raised.value.exit_code == 1
