"""The edge of the command `chaos`: exit codes, and what a person sees when something is wrong.

A person's mistake is one sentence on standard error and 254. Whatever else is raised is trouble of the harness: one sentence, the
file that holds the traceback, and 255; never a traceback on the screen, never a verdict.
"""

import contextlib
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import assert_never

import typer

from chaos.results import Verdict
from eventlog.errors import MisuseError

# Typer carries a parser of its own or uses click, by its version; in both, this is the base of all that the parser raises.
_ParserError: type[Exception] = typer.BadParameter.__mro__[2]


class ExitCode(IntEnum):
    """What `chaos` ends with."""

    PASS = 0
    FAIL = 1
    UNKNOWN = 2
    USAGE = 254
    HARNESS = 255


class HarnessError(Exception):
    """Trouble of the harness whose traceback is in `file` already."""

    def __init__(self, message: str, file: Path) -> None:
        super().__init__(message)
        self.file = file


def exit_code_of(verdict: Verdict) -> ExitCode:
    """The exit code that says a verdict."""
    match verdict:
        case Verdict.PASS:
            return ExitCode.PASS
        case Verdict.FAIL:
            return ExitCode.FAIL
        case Verdict.UNKNOWN:
            return ExitCode.UNKNOWN
        case _:
            assert_never(verdict)


def write_json(text: str, target: str) -> None:
    """Write what --json asked for: to standard output for `-`, else to a file; MisuseError when that cannot be written."""
    if target == "-":
        sys.stdout.write(text)
    else:
        write_file("--json", text, target)


def write_file(option: str, text: str, target: str) -> None:
    """Write what an option asked for to a file; MisuseError when it cannot be written."""
    try:
        Path(target).write_text(text, "utf-8")
    except OSError as error:
        raise _cannot_write(option, target, error) from error


def check_target(option: str, text: str) -> Path:
    """The file that an option names, found to be writable now, and left as it is; MisuseError when it is none.

    Asking beforehand is no promise, but a campaign is too long to learn at its end that a name was mistyped.
    """
    file = Path(text)
    try:
        if file.is_dir() or not file.parent.is_dir():
            raise MisuseError(f"{option} {text}: must be a file in a directory that exists")
        if not file.exists():
            file.open("xb").close()
            file.unlink()
        elif file.is_file():
            file.open("ab").close()
    except OSError as error:
        raise _cannot_write(option, text, error) from error
    return file


def _cannot_write(option: str, target: str, error: OSError) -> MisuseError:
    return MisuseError(f"{option} {target}: cannot be written: {error.strerror}; name a file in a directory that exists")


@contextlib.contextmanager
def keep_traceback(directory: Path) -> Iterator[None]:
    """Turn what is raised inside, but for misuse, into HarnessError with the traceback in `directory`."""
    try:
        yield
    except (MisuseError, HarnessError, typer.Exit, _ParserError):
        raise
    except (Exception, KeyboardInterrupt) as error:
        file = directory / "harness-error.txt"
        file.write_text("".join(traceback.format_exception(error)), "utf-8", "backslashreplace")
        raise HarnessError("interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}", file) from error


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run the application; the exit code to end with."""
    command = typer.main.get_command(app)
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_keep_somewhere())
            _refuse_empty(words)
            result = command.main(args=words, prog_name="chaos", standalone_mode=False)
    except typer.Exit as stop:
        return stop.exit_code
    except MisuseError as error:
        print(f"chaos: {error}", file=sys.stderr)
        return ExitCode.USAGE
    except HarnessError as error:
        print(f"chaos: harness error: {error}; the traceback is in {error.file}", file=sys.stderr)
        return ExitCode.HARNESS
    except _ParserError as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        said_by = getattr(getattr(error, "ctx", None), "command_path", None) or "chaos"  # the subcommand's help, where one was named
        print(f"chaos: {message.splitlines()[0] if message else 'bad usage'} (`{said_by} --help` shows what there is)", file=sys.stderr)
        return ExitCode.USAGE
    return result if isinstance(result, int) else ExitCode.PASS


def _refuse_empty(words: Sequence[str]) -> None:
    """MisuseError for an empty word. An unset variable of a shell becomes one (`--engine "$COPY"`), and an empty value counts as none
    given: the campaign would pass on another engine, or by other trials, than those meant."""
    for before, word in zip(["", *words], words, strict=False):
        if not word or (word.startswith("--") and word.endswith("=")):
            name = word.removesuffix("=") or (before if before.startswith("--") else "an argument")
            raise MisuseError(f"{name} is empty; give it a value, or leave it away (is a variable of the shell not set?)")


@contextlib.contextmanager
def _keep_somewhere() -> Iterator[None]:
    """As `keep_traceback`, for what is raised before there is a run directory: the file goes where temporary files go."""
    try:
        yield
    except (MisuseError, HarnessError, typer.Exit, _ParserError):
        raise
    except (Exception, KeyboardInterrupt) as error:
        with keep_traceback(Path(tempfile.mkdtemp(prefix="chaos-error-"))):
            raise error
