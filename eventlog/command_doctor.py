"""`eventlog doctor`: what is wrong with a log and what to do; `--repair` makes a new log of what can be proved of it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from eventlog.anchor import Anchor, load_anchor
from eventlog.command_options import NOT_DRIVEN, JsonOption, LogArgument, log_path
from eventlog.diagnosis import Diagnosis
from eventlog.doctor import examine_log
from eventlog.errors import InternalError
from eventlog.ports import RandomIds, SystemClock
from eventlog.reader import Reader
from eventlog.salvage import KeptStream, LostContent, Salvaged, salvage
from eventlog.show import show_path, show_text
from eventlog.values import Seq, StreamId
from eventlog.verify import verify
from eventlog.verify_memory import remembered_anchor, remembered_log_id

RepairOption = Annotated[
    Path | None, typer.Option("--repair", metavar="NEWFILE", help="salvage what can be proved into NEWFILE, a new log with a new id")
]
AnchorOption = Annotated[Path | None, typer.Option("--anchor", metavar="FILE", help="heads that were seen once: a cut tail shows")]


def doctor(log: LogArgument, repair: RepairOption = None, anchor: AnchorOption = None, as_json: JsonOption = False) -> int:
    """Say in plain words what is wrong with a log and what to do. Changes nothing. Exit 1 when anything is wrong, or was lost."""
    path = log_path(log)
    seen = _load(str(anchor), path) if anchor is not None else None
    if repair is not None:
        return _repair(path, str(repair), seen, as_json=as_json)
    found = examine_log(path, SystemClock(), seen, str(anchor))
    healthy = not any(one.is_problem for one in found)
    if as_json:
        print(json.dumps({"log": path, "healthy": healthy, "findings": [_diagnosis_json(one) for one in found]}))
    else:
        said = f"{show_text(path)}: healthy" if healthy else f"{show_text(path)}: {sum(one.is_problem for one in found)} findings"
        print("\n\n".join([*map(_paragraph, found), said]))
    return 0 if healthy else 1


def _load(anchor: str, path: str) -> Anchor:
    found = load_anchor(anchor, path)
    if found is None:
        raise typer.BadParameter(f"{show_text(anchor)}: there is no anchor here; `eventlog verify --anchor` makes one")
    return found


def _paragraph(one: Diagnosis) -> str:
    head = "PROBLEM" if one.is_problem else "note"
    return f"{head}: {show_text(one.what)}. Where: {show_text(one.which)}. How bad: {one.harm}. Next: {show_text(one.advice)}."


def _diagnosis_json(one: Diagnosis) -> dict[str, object]:
    return {"kind": one.kind, "what": one.what, "which": one.which, "harm": one.harm, "next": one.advice, "problem": one.is_problem}


def _repair(path: str, target: str, seen: Anchor | None, *, as_json: bool) -> int:
    known = seen.log_id if seen is not None else remembered_log_id(path)
    remembered = remembered_anchor(path)
    heads: dict[StreamId, Seq] = {}
    for anchor in (seen, remembered):
        for head in anchor.heads if anchor is not None and anchor.log_id == known else ():
            heads[head.stream] = max(head.seq, heads.get(head.stream, Seq(0)))
    made = salvage(path, target, RandomIds(), SystemClock(), known, heads)
    _check_made(target)
    print(json.dumps(_salvaged_json(path, made)) if as_json else "\n".join(_salvaged_lines(path, made)))
    return 0 if made.is_whole else 1


def _check_made(target: str) -> None:
    """The new log is sound, or this is a bug."""
    reader = Reader.open(target)
    try:
        findings = verify(reader).findings
    finally:
        reader.close()
    if findings:
        raise InternalError(f"{show_text(target)}: what was salvaged does not verify: {findings[0].where}: {findings[0].what}")


def _salvaged_lines(path: str, made: Salvaged) -> list[str]:
    lines = [line for stream in made.streams for line in _stream_lines(stream)]
    lines += [f"LOST content: {_content_words(one)}" for one in made.lost]
    end = "nothing was lost" if made.is_whole else "what is lost stands above"
    origin = f"{show_text(path)} ({made.origin}), which was not touched"
    if any(stream.session for stream in made.streams):
        lines.append(NOT_DRIVEN)
    return [*lines, f"{show_text(made.path)}: made, log id {made.log_id}, from {origin}; {end}"]


def _stream_lines(stream: KeptStream) -> list[str]:
    name = show_text(stream.stream)
    lines = [f"{name}: events 1 to {stream.kept} kept"] if stream.kept else [f"{name}: no event could be proved"]
    if stream.session:
        lines[0] += f" as {show_text(stream.prefix)}; the session {show_text(stream.session)} goes on from seq {stream.forked_at}"
        if stream.forked_at < stream.kept:  # as after a kill in a call: whoever drives a fork would run that call a second time unwarned
            lines.append(
                f"note: {show_text(stream.session)} knows nothing of events {stream.forked_at + 1} to {stream.kept}: a call that began "
                "there may have run, and runs again when a fork is driven; `eventlog show NEWFILE --calls` lists it"
            )
    elif stream.prefix:
        lines[0] += f" as {show_text(stream.prefix)}; no session goes on from it: {show_text(stream.note)}"
    if stream.kept < stream.lost_to:
        lines.append(f"LOST events: {name} {stream.kept + 1} to {stream.lost_to}: {show_text(stream.why)}")
    elif stream.why:
        lines.append(f"{name}: {show_text(stream.why)}")
    return lines


def _content_words(one: LostContent) -> str:
    what = show_path(one.path) if one.path is not None else "the output of a call"
    return f"{what} ({one.size} bytes) at {show_text(one.stream)} seq {one.seq}, {one.content.hex()}"


def _salvaged_json(path: str, made: Salvaged) -> dict[str, object]:
    return {
        "log": path,
        "made": made.path,
        "log_id": made.log_id,
        "salvaged_from": made.origin,
        "whole": made.is_whole,
        "streams": [
            {
                "stream": one.stream, "kept": one.kept, "lost_from": one.kept + 1 if one.kept < one.lost_to else None,
                "lost_to": one.lost_to if one.kept < one.lost_to else None, "why": one.why, "prefix": one.prefix or None,
                "session": one.session or None, "forked_at": one.forked_at or None, "note": one.note,
            }
            for one in made.streams
        ],
        "lost": [
            {
                "stream": one.stream, "seq": one.seq, "path": None if one.path is None else show_path(one.path),
                "content": one.content.hex(), "size": one.size,
            }
            for one in made.lost
        ],
    }  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)

