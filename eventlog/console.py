"""The edge of every command: a person's mistake becomes one sentence on stderr and an exit code, never a traceback."""

import io
import os
import signal
import sys
from collections.abc import Callable

import typer

from eventlog.errors import CrashworthyError
from eventlog.show import show_text

# Newer typer carries its own copy of click: the base of all usage errors is found through the one class that is public in both.
_UsageBase: type[Exception] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def describe_usage(error: Exception, name: str) -> str:
    """The sentence for a usage error: what is wrong, and whose `--help` says what there is, the subcommand's where one was named."""
    message = str(getattr(error, "format_message", error.__str__)())
    if "\n" in message:
        return message  # the help itself
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", None) or name
    return f"{name}: {message} (`{command} --help` shows what there is)"


def run(
    app: typer.Typer, name: str, usage_code: int, code_of: Callable[[CrashworthyError], int], arguments: list[str] | None = None
) -> int:
    """Run a typer application; the exit code to end with. Usage errors give `usage_code`, typed errors what `code_of` says."""
    command = typer.main.get_command(app)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a screen that lacks a letter is no reason to fail (case 3)
    try:
        result = command.main(args=arguments, prog_name=name, standalone_mode=False)
        if sys.stdout is not None:  # it is closed in some daemons
            sys.stdout.flush()  # here, where it can still be told
    except _UsageBase as error:
        print(describe_usage(error, name), file=sys.stderr)
        return usage_code
    except (typer.Abort, KeyboardInterrupt):
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    except CrashworthyError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return code_of(error)
    except (BrokenPipeError, SystemExit):  # click exits by itself where a pipe is closed, and nowhere else when it is not standalone
        # Whoever read has had enough. Nothing is left to be flushed at the end, and 1 would mean damage.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        # What the command does is told by typed errors; what is left is the screen: a full device behind stdout, a pipe that was closed.
        where = show_text(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else "the output"
        print(f"{name}: {where}: {error.strerror or error}; mend that and run the same command again", file=sys.stderr)
        return 1
    return result if isinstance(result, int) else 0
