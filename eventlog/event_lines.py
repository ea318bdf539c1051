"""Events as the commands print them: one line for people, one object for programs. Pure."""

import json

import msgspec

from eventlog import events
from eventlog.call_history import Annotated
from eventlog.reader import StoredEvent
from eventlog.show import show_text
from eventlog.values import StreamId

SHOWN_INPUT = 120


def event_json(stream: StreamId, annotated: Annotated) -> dict[str, object]:
    """An event as commands print it with `--json` (eventlog/README, "Commands")."""
    stored = annotated.stored
    payload = msgspec.to_builtins(stored.event)
    known = {
        "call": annotated.call,
        "tool": annotated.tool,
        "decision": annotated.decision,
        "size": annotated.size,
        "duration_ms": annotated.duration_ms,
    }
    return {
        "stream": stream,
        "seq": stored.seq,
        "epoch": stored.epoch,
        "kind": stored.event.kind,
        "hash": stored.hash.hex(),
        "changes": len(stored.changes),
        "payload": payload,
        **{name: value for name, value in known.items() if value is not None},
    }


def event_line(stream: StreamId, stored: StoredEvent) -> str:
    """An event as commands print it for people."""
    changed = f" ({len(stored.changes)} paths changed)" if stored.changes else ""
    place = f"{show_text(stream)} {stored.seq:>5} epoch {stored.epoch:<3}"
    return f"{place} {stored.event.kind:<19} {show_text(describe(stored.event))}{changed}"


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_INPUT else text[:SHOWN_INPUT] + " ..."


def describe(event: events.Event) -> str:
    """One line about an event, for people."""
    match event:
        case events.SessionOpened():
            mode = "" if event.mode == "transactional" else f"mode {event.mode}, "
            return f"{event.name}: {mode}{len(event.script)} scripted calls, image {event.root[:12]}"
        case events.SessionForked():
            return f"{event.name}: {event.reason} from {event.parent} seq {event.parent_seq}, image {event.root[:12]}"
        case events.DriverStarted():
            return f"pid {event.identity.pid}, kill mark {event.kill_mark}"
        case events.WorkspaceObserved():
            return f"changed outside any call, image {event.root[:12]}"
        case events.InputAdmitted():
            return f"request {event.request_id}: {_shorten(json.dumps(event.input))}"
        case events.CallUndone():
            return f"call {event.call} undone by the restore decided at {event.decision_seq}: {event.reason}"
        case events.CallReplayed():
            return f"call {event.call} attempt {event.attempt} replayed, image {event.root[:12]}"
        case events.CheckpointTaken():
            return f"checkpoint {event.manifest[:12]}, image {event.root[:12]}, {event.took_ms} ms"
        case events.ModeSwitched():
            return f"now {event.mode}, by checkpoint {event.manifest[:12]}: {event.reason}"
        case events.SessionPaused():
            return f"image {event.root[:12]}: {event.reason}"
        case events.SessionResumed():
            return "after a pause"
        case events.SessionMoved():
            return f"lives on where the bundle {event.digest[:12]} is imported"
        case events.SessionFailed():
            return f"image {event.root[:12]}: {event.reason}"
        case events.AttemptStarted():
            return f"call {event.call} attempt {event.attempt}: {event.tool} {_shorten(json.dumps(event.input))}"
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
        case events.RootRecorded():
            return f"the workspace is the directory with id {event.identity.id[:12]}, {event.how}"
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
