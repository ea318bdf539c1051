"""The `eventlog` command: look at a log, add to it. Exit codes: 0 sound, 1 damage or difference found or the log is busy, 2 usage."""

import json
import sys

import typer

from eventlog import (
    command_append,
    command_bundle,
    command_compact,
    command_doctor,
    command_history,
    command_tail,
    command_verify,
    console,
)
from eventlog.call_history import annotate
from eventlog.command_options import CallsOption, JsonOption, LogArgument, SessionOption, log_path
from eventlog.errors import CompactedError, CorruptError, CrashworthyError, ReplacedError
from eventlog.event_lines import event_json, event_line
from eventlog.reading import open_anywhere
from eventlog.streams import choose_stream

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Look at an event log: show its history, verify it.", rich_markup_mode=None
)

app.command()(command_history.diff)
app.command()(command_history.checkout)
app.command()(command_history.fork)
app.command()(command_compact.compact)
app.command()(command_compact.pin)
app.command()(command_compact.usage)
command_bundle.register(app)
command_tail.register(app)
command_append.register(app)
command_verify.register(app)
command_doctor.register(app)


@app.command()
def show(log: LogArgument, session: SessionOption = None, calls: CallsOption = False, as_json: JsonOption = False) -> None:
    """Print every event of every session: seq, epoch, kind, and what happened; or one line for each call."""
    with open_anywhere(log_path(log)) as reader:
        for row in reader.streams() if session is None else [choose_stream(reader, session)]:
            if calls:
                command_history.print_calls(reader, row.id, as_json)
                continue
            for one in annotate(reader.events(row.id)):
                print(json.dumps(event_json(row.id, one)) if as_json else event_line(row.id, one.stored))




def _code(error: CrashworthyError) -> int:
    """1 where something was found (damage, contents that were given up, another log at the path) or the same command may go through later
    (busy, no room, a failed device, a head that moved: `exit_code` 1); 2 where another command is needed."""
    return 1 if error.exit_code == 1 or isinstance(error, CorruptError | ReplacedError | CompactedError) else 2


def main() -> None:
    """Entry point of the console command."""
    sys.exit(console.run(app, "eventlog", 2, _code))


if __name__ == "__main__":
    main()
