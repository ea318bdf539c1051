"""What a person would run on a session, and what each command said: in a fork of the warm runner, by the command's own entry point."""

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import eventlog.__main__ as eventlog_command
import recovery.__main__ as recovery_command
from chaos.drivers import Place, base_environment, noting_environment
from chaos.processes import end_everything, wait_readable

COMMAND_SECS = 100.0
"""Far above any of them; the zygote's own deadline comes after it."""
UNCAUGHT = 1
"""What Python ends with after an exception that nobody caught."""
HARNESS_FAILED = 99
NO_LOG = "/nonexistent/crashworthy"
MAINS: Mapping[str, Callable[[], object]] = {"eventlog": eventlog_command.main, "recovery": recovery_command.main}


@dataclass(frozen=True, slots=True)
class Said:
    """What came of one command: exit code (or minus the signal), output, errors, and for `checkout` the tree that it made."""

    command: str
    code: int
    out: str
    err: str
    tree: Mapping[str, Any] | None = None


def warm_up() -> None:
    """Have the parser of each program import here what it imports at its first use: else every fork would, for a third of a second."""
    argv = sys.argv
    for words in (["eventlog", "show", NO_LOG], ["recovery", "plan", NO_LOG]):
        sys.argv = words
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
            MAINS[words[0]]()
    sys.argv = argv


def list_commands(place: Place, has_checkpoints: bool) -> list[list[str]]:
    """Those that change nothing, in the order in which they are run."""
    state = str(place.state)
    commands = [
        ["eventlog", "show", state, "--json"],
        ["eventlog", "show", state, "--calls"],
        ["eventlog", "verify", state],
        ["eventlog", "verify", state, "--anchor", str(anchor_of(place))],
        ["eventlog", "diff", state, "call:1:before", "head"],
        ["eventlog", "checkout", state, "--at", "head", "--to", str(checkout_of(place))],
        ["recovery", "plan", state],
    ]
    if has_checkpoints:
        commands += [["recovery", "checkpoints", verb, state] for verb in ("list", "verify")]
    return commands


def anchor_of(place: Place) -> Path:
    """The file of heads that somebody keeps elsewhere (`eventlog verify --anchor`)."""
    return place.directory / "anchor"


def checkout_of(place: Place) -> Path:
    """Where `eventlog checkout` writes."""
    return place.directory / "checkout"


def run_command(words: Sequence[str], place: Place, number: int, oracle_pid: int) -> Said:
    """Run one to its end. TimeoutError when it has none; whatever it started is ended."""
    out, err = place.output(number), place.errors(number)
    environment = {
        **base_environment(), **noting_environment(place),
        "SESSION_HOLDERS_DIR": str(place.directory / "holders"), "SESSION_LOCK_SECS": "1",
    }  # fmt: skip
    pid = os.fork()
    if pid == 0:
        _become(words, out, err, environment)
    descriptor = os.pidfd_open(pid)
    try:
        wait_readable(descriptor, COMMAND_SECS, f"{' '.join(words[:2])} to end")
    except TimeoutError:
        os.kill(pid, 9)
        raise
    finally:
        os.close(descriptor)
        status = os.waitpid(pid, 0)[1]
        end_everything(os.getpid(), oracle_pid)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return Said(" ".join(words[:2]), code, out.read_text("utf-8", "replace"), err.read_text("utf-8", "replace"))


def _become(words: Sequence[str], out: Path, err: Path, environment: Mapping[str, str]) -> None:
    """The forked process: never returns into the runner's code (FACTS, trap 5)."""
    code = HARNESS_FAILED
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((null, *(os.open(one, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) for one in (out, err)))):
            os.dup2(descriptor, number)
        os.closerange(3, 64)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = list(words)
        code = _call(MAINS[words[0]])
    except BaseException:  # noqa: BLE001 - the last line of a forked process
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _call(main: Callable[[], object]) -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else UNCAUGHT
    except BaseException:  # noqa: BLE001 - as the interpreter does with what nobody caught
        traceback.print_exc()
        return UNCAUGHT
    return 0
