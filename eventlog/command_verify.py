"""`eventlog verify`: walk a log, say what is wrong; remember how far it is sound, and compare with what was seen before."""

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from eventlog.anchor import check_anchor, check_owner, load_anchor, move_anchor
from eventlog.command_options import JsonOption, LogArgument, log_path
from eventlog.findings import Finding
from eventlog.reader import Reader
from eventlog.reading import open_anywhere
from eventlog.show import show_text, show_word
from eventlog.values import LogId
from eventlog.verify import Mark, Verified
from eventlog.verify import verify as verify_log
from eventlog.verify_memory import SUFFIX, load_mark, save_mark

SinceOption = Annotated[bool, typer.Option("--since", help="verify only what follows the last time, and remember how far it is sound")]
AnchorOption = Annotated[
    Path | None, typer.Option("--anchor", metavar="FILE", help="compare with the heads in FILE, then move them forward; made when missing")
]


class _Told(msgspec.Struct, frozen=True):
    """What is said beside the findings: of the memory and of the anchor. "" for what was not asked for."""

    since: str = ""
    is_partial: bool = False
    memory: str = ""
    anchor: str = ""
    anchor_state: str = ""


def verify(log: LogArgument, since: SinceOption = False, anchor: AnchorOption = None, as_json: JsonOption = False) -> int:
    """Check chain, cache rows, image roots, forks and blobs. Exit 1 when anything is damaged."""
    path = log_path(log)
    seen = load_anchor(str(anchor), path) if anchor is not None else None
    with open_anywhere(path) as reader:
        if seen is not None:
            check_owner(seen, reader, str(anchor))
        mark, told = _remembered(path, reader) if since else (None, _Told())
        found = verify_log(reader, mark)
        if seen is not None:
            found = msgspec.structs.replace(found, findings=(*found.findings, *check_anchor(reader, seen)))
        log_id = reader.log_id
    if since and not found.findings:
        told = msgspec.structs.replace(told, memory=_remember(path, log_id, found.mark))
    if anchor is not None and found.findings:
        told = msgspec.structs.replace(told, anchor=f"{show_text(str(anchor))}: the anchor stays as it is", anchor_state="kept")
    elif anchor is not None:
        moved = move_anchor(str(anchor), log_id, found.mark, seen)
        said, state = _anchor_words(str(anchor), is_new=seen is None, moved=moved)
        told = msgspec.structs.replace(told, anchor=said, anchor_state=state)
    print(json.dumps(_as_json(path, found, told)) if as_json else "\n".join(_lines(path, found, told)))
    return 1 if found.findings else 0


def _remembered(path: str, reader: Reader) -> tuple[Mark | None, _Told]:
    mark, why = load_mark(path, reader.log_id)
    if mark is None:
        return None, _Told(since=f"{why}: all of it is verified")
    heads = ", ".join(f"{show_text(stream)} seq {head.position.seq}" for stream, head in sorted(mark.heads.items()))
    return mark, _Told(since=f"verified before up to {heads or 'nothing'}; only what follows is verified now", is_partial=True)


def _remember(path: str, log_id: LogId, mark: Mark) -> str:
    try:
        save_mark(path, log_id, mark)
    except OSError as error:
        return f"not remembered: {show_text(path + SUFFIX)} cannot be written ({error.strerror})"
    return f"remembered in {show_text(path + SUFFIX)}"


def _anchor_words(path: str, *, is_new: bool, moved: bool) -> tuple[str, str]:
    name = show_text(path)
    if is_new:
        said = f"{name}: there was no anchor; it is MADE NOW: it exposes what is cut from now on, and nothing that was cut before"
        return said, "made"
    if moved:
        return f"{name}: every event that the anchor has seen is there; it is moved forward to the heads", "moved"
    return f"{name}: every event that the anchor has seen is there, and no newer one", "unchanged"


def _lines(path: str, found: Verified, told: _Told) -> list[str]:
    lines = [told.since] if told.since else []
    lines += [f"DAMAGE {show_text(finding.where)}: {show_text(_without_advice(finding.what))}" for finding in found.findings]
    lines += [f"`eventlog doctor {show_word(path)}` says how bad it is and what to do"] if found.findings else []
    lines += [told.anchor] if told.anchor else []
    lines += [told.memory] if told.memory else []
    counts = f"{found.streams} sessions, {found.events} events, {found.blobs} blobs, {found.blob_bytes} bytes"
    if found.orphans:
        counts += f"; {found.orphans} blobs that no event needs take {found.orphan_bytes} bytes, which `eventlog compact` takes back"
    if found.given_up:
        counts += f"; {found.given_up} contents were given up on record (compacted, lost before a salvage, or in a checkpoint store)"
    return [*lines, f"{show_text(path)}: {_state(found, told)}: {counts}{' verified anew' if told.is_partial else ''}"]


def _without_advice(what: str) -> str:
    """A finding without the advice to run what has just been run."""
    return what.partition("; run `eventlog verify")[0]


def _state(found: Verified, told: _Told) -> str:
    if found.findings:
        return "damaged"
    if told.anchor_state in ("moved", "unchanged"):
        return "sound, with every event that the anchor has seen"
    return "sound up to its head (a cut tail shows only against an anchor, `--anchor FILE`, or the ledger, `recovery plan`)"


def _as_json(path: str, found: Verified, told: _Told) -> dict[str, object]:
    return {
        "log": path,
        "streams": found.streams,
        "events": found.events,
        "blobs": found.blobs,
        "blob_bytes": found.blob_bytes,
        "orphans": found.orphans,
        "orphan_bytes": found.orphan_bytes,
        "given_up": found.given_up,
        "findings": [finding_json(finding) for finding in found.findings],
        "since": {"said": told.since, "partial": told.is_partial, "memory": told.memory} if told.since else None,
        "anchor": {"said": told.anchor, "state": told.anchor_state} if told.anchor else None,
    }


def finding_json(finding: Finding) -> dict[str, object]:
    """A finding as the README documents it."""
    return {"where": finding.where, "what": finding.what, "kind": finding.kind}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)
