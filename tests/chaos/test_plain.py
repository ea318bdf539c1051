"""A command run plainly: what it printed, how it ended, and nothing of it left."""

import os
import signal
from pathlib import Path

import pytest

from chaos.drivers import base_environment
from chaos.plain import PlainCommand, PlainEnd, run_plainly
from tests.helpers import is_running


def run(command: str, work: Path, limit_secs: float | None = None) -> PlainEnd:
    return run_plainly(PlainCommand(command.encode(), work, base_environment(), limit_secs))


@pytest.mark.parametrize(
    ("command", "code"),
    [("true", 0), ("exit 3", 3), ("exit 137", 137), ("kill -KILL $$", -signal.SIGKILL), ("ulimit -c 0; kill -SEGV $$", -signal.SIGSEGV)],
)
def test_an_exit_code_and_a_signal_are_kept_apart(command: str, code: int, tmp_path: Path) -> None:
    assert run(command, tmp_path) == PlainEnd(b"", code)


def test_stdout_and_stderr_are_one_output_and_its_end_is_not_the_commands(tmp_path: Path) -> None:
    done = run("echo out; echo err >&2; exec >&- 2>&-; echo late > late.txt; exit 4", tmp_path)
    assert done == PlainEnd(b"out\nerr\n", 4)
    assert (tmp_path / "late.txt").read_bytes() == b"late\n"


def test_input_is_given_and_streams_that_are_kept_apart_come_one_after_the_other(tmp_path: Path) -> None:
    command = PlainCommand(b"echo err >&2; cat; echo out", tmp_path, base_environment(), stdin=b"in\0\n", separate=True)
    assert run_plainly(command) == PlainEnd(b"in\0\nout\nerr\n", 0)


LEFT = "bash -c 'echo $$ > pid; exec sleep 300'"


@pytest.mark.parametrize("way", [f"{LEFT} &", f"( setsid {LEFT} & )", f"( setsid env -i {LEFT} > /dev/null 2>&1 & )"])
def test_what_a_command_leaves_behind_is_ended_however_far_it_went(way: str, tmp_path: Path) -> None:
    """The first two hold the output open; the last is orphaned, in a session of its own and without its environment."""
    assert run(f"{way}\nuntil [ -s pid ]; do :; done; echo done", tmp_path) == PlainEnd(b"done\n", 0)
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_rule_S5_a_time_limit_says_that_it_was_one(tmp_path: Path) -> None:
    waits = "while :; do read -r -t 0.01 <> <(:); done"
    assert run(waits, tmp_path, 0.3) == PlainEnd(b"", -signal.SIGTERM, True)
    assert run(f"trap 'exit 4' TERM; {waits}", tmp_path, 0.3) == PlainEnd(b"", 4, True)
    assert run("echo in time", tmp_path, 30.0) == PlainEnd(b"in time\n", 0)


def test_a_command_that_cannot_be_run_is_an_error_and_no_exit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="the plain run of b'true' was lost"):
        run_plainly(PlainCommand(b"true", tmp_path / "nowhere", {"PATH": os.environ["PATH"]}))
    assert "FileNotFoundError" in capfd.readouterr().err
