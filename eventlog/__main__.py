"""The `eventlog` command: look at a log. Exit codes: 0 sound, 1 damage found, 2 usage."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from eventlog import console, events
from eventlog.errors import BusyError, CorruptError, CrashworthyError, FullError, UncertainCommitError
from eventlog.reader import StoredEvent
from eventlog.reading import open_anywhere
from eventlog.show import show_text
from eventlog.values import StreamId
from eventlog.verify import verify as verify_log

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Look at an event log: show its history, verify it.", rich_markup_mode=None
)

LogArgument = Annotated[Path, typer.Argument(help="log.sqlite, or the state directory that holds it")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object per line (eventlog/README)")]


def log_path(given: Path) -> str:
    """The log file for what a person named: the file itself, or the state directory around it."""
    return os.path.join(given, "log.sqlite") if os.path.isdir(given) else str(given)


@app.command()
def show(log: LogArgument, as_json: JsonOption = False) -> None:
    """Print every event of every session: seq, epoch, kind, and what happened."""
    with open_anywhere(log_path(log)) as reader:
        for row in reader.streams():
            for stored in reader.events(row.id):
                print(json.dumps(_event_json(row.id, stored)) if as_json else _event_line(row.id, stored))


@app.command()
def verify(log: LogArgument, as_json: JsonOption = False) -> int:
    """Check chain, cache rows, image roots and blobs. Exit 1 when anything is damaged."""
    path = log_path(log)
    with open_anywhere(path) as reader:
        found = verify_log(reader)
    if as_json:
        print(json.dumps({"log": path, **msgspec.to_builtins(found)}))
    else:
        for finding in found.findings:
            print(f"DAMAGE {show_text(finding.where)}: {show_text(finding.what)}")
        state = "damaged" if found.findings else "sound up to its head (a cut tail shows only against the ledger: `recovery plan`)"
        print(f"{show_text(path)}: {state}: {found.streams} sessions, {found.events} events, {found.blobs} blobs, {found.blob_bytes} bytes")
    return 1 if found.findings else 0


def _event_json(stream: StreamId, stored: StoredEvent) -> dict[str, object]:
    payload = msgspec.to_builtins(stored.event)
    return {
        "stream": stream,
        "seq": stored.seq,
        "epoch": stored.epoch,
        "kind": stored.event.kind,
        "hash": stored.hash.hex(),
        "changes": len(stored.changes),
        "payload": payload,
    }


def _event_line(stream: StreamId, stored: StoredEvent) -> str:
    changed = f" ({len(stored.changes)} paths changed)" if stored.changes else ""
    place = f"{show_text(stream)} {stored.seq:>5} epoch {stored.epoch:<3}"
    return f"{place} {stored.event.kind:<19} {show_text(describe(stored.event))}{changed}"


def describe(event: events.Event) -> str:
    """One line about an event, for people."""
    match event:
        case events.SessionOpened():
            return f"{event.name}: {len(event.script)} scripted calls, image {event.root[:12]}"
        case events.SessionForked():
            return f"{event.name}: {event.reason} from {event.parent} seq {event.parent_seq}, image {event.root[:12]}"
        case events.DriverStarted():
            return f"pid {event.identity.pid}, kill mark {event.kill_mark}"
        case events.WorkspaceObserved():
            return f"changed outside any call, image {event.root[:12]}"
        case events.InputAdmitted():
            return f"request {event.request_id}: {json.dumps(event.input)[:120]}"
        case events.CallUndone():
            return f"call {event.call} undone by the restore decided at {event.decision_seq}: {event.reason}"
        case events.CallReplayed():
            return f"call {event.call} attempt {event.attempt} replayed, image {event.root[:12]}"
        case events.CheckpointTaken():
            return f"checkpoint {event.manifest[:12]}, image {event.root[:12]}"
        case events.ModeSwitched():
            return f"now {event.mode}: {event.reason}"
        case events.SessionPaused():
            return f"image {event.root[:12]}: {event.reason}"
        case events.SessionResumed():
            return "after a pause"
        case events.SessionMoved():
            return f"lives on where the bundle {event.digest[:12]} is imported"
        case events.SessionFailed():
            return f"image {event.root[:12]}: {event.reason}"
        case events.AttemptStarted():
            return f"call {event.call} attempt {event.attempt}: {event.tool} {json.dumps(event.input)[:120]}"
        case events.CallSettled():
            return f"call {event.call} {event.ended} ({event.label}) {_exit(event.exit)} image {event.root[:12]} {event.reason}".rstrip()
        case events.RecoveryDecided():
            return f"{event.label}" + (f" for call {event.call} attempt {event.attempt}" if event.call is not None else "")
        case events.Quarantined():
            return f"{len(event.paths)} paths kept in {event.directory}"
        case events.RestoreFinished():
            return f"restored {event.restored}, displaced {event.displaced}, image {event.root[:12]}"
        case events.Synced():
            return f"image {event.root[:12]} is on disk"
        case events.SessionFinished():
            return f"image {event.root[:12]}"
        case events.Noted():
            return event.text


def _exit(ended: events.Exit | None) -> str:
    if ended is None:
        return ""
    match ended.kind:
        case "exited":
            return f"exit {ended.code}"
        case "signaled":
            return f"signal {ended.signal}"
        case "timed_out":
            return f"timed out, signal {ended.signal}" if ended.code is None else f"timed out, exit {ended.code}"
        case "start_failed":
            return f"not started: {ended.error}"


def _code(error: CrashworthyError) -> int:
    return 1 if isinstance(error, CorruptError | BusyError | FullError | UncertainCommitError) else 2


def main() -> None:
    """Entry point of the console command."""
    sys.exit(console.run(app, "eventlog", 2, _code))


if __name__ == "__main__":
    main()
