"""The commands that look after a log's size: `compact`, `pin`, `usage`."""

import contextlib
import json
from typing import Annotated

import msgspec
import typer

from eventlog import wal
from eventlog.command_options import HIGHEST_SEQ, JsonOption, LogArgument, SessionOption, check_place, check_text, log_path
from eventlog.command_writing import announced
from eventlog.compact import Reclaimable, compact_log, plan_compaction
from eventlog.pins import add_pin, remove_pin
from eventlog.ports import RandomIds, SystemClock
from eventlog.reading import open_anywhere
from eventlog.retention import DEFAULT_IMAGES, Policy
from eventlog.show import show_text
from eventlog.streams import choose_stream
from eventlog.usage import Usage, measure_usage
from eventlog.values import Seq
from eventlog.writer import Writer

WAIT_SECS = 2.0
"""How long the end of a compaction waits for readers to leave the WAL."""


def compact(
    log: LogArgument,
    keep: Annotated[int, typer.Option(min=1, help="images kept of each session, the newest ones")] = DEFAULT_IMAGES,
    outputs: Annotated[int | None, typer.Option(min=0, help="calls of each session whose output is kept (all)")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be given up, change nothing")] = False,
    as_json: JsonOption = False,
) -> None:
    """Give up contents that only old images need. Events stay; pinned events, forks and what recovery may need keep theirs."""
    path, policy = log_path(log), Policy(keep, outputs)
    if dry_run:
        is_alone = not wal.find_openers(path)
        with open_anywhere(path) as reader:
            planned = plan_compaction(reader, policy, takes_orphans=is_alone)
        if as_json:
            print(json.dumps({"log": path, "dry_run": True, "given_up": _reclaimable_json(planned)}))
            return
        _print_reclaimable(planned)
        print(f"{show_text(path)}: {planned.total_bytes} bytes could be given up; nothing was changed")
        return
    check_place(path)
    with announced(path, "compact"):
        done = compact_log(path, policy, SystemClock(), RandomIds(), WAIT_SECS)
    if as_json:
        given_up = _reclaimable_json(done.given_up)
        print(json.dumps({"log": path, "dry_run": False, **msgspec.to_builtins(done), "given_up": given_up, "wal": _wal_json(done.wal)}))
        return
    _print_reclaimable(done.given_up)
    given, sizes = done.given_up.total_bytes, f"the database had {done.before_bytes} bytes, has {done.after_bytes}"
    print(f"{show_text(path)}: {given} bytes given up; {sizes}")
    if done.note:
        print(done.note)
    if isinstance(done.wal, wal.Pinned):
        print(f"{done.wal}; the files shrink when it has ended and this is run again")


def pin(
    log: LogArgument,
    at: Annotated[int, typer.Option(min=1, max=HIGHEST_SEQ, help="seq of the event whose image is kept")],
    session: SessionOption = None,
    note: Annotated[str, typer.Option(help="why, for people")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="take the pin away")] = False,
    as_json: JsonOption = False,
) -> None:
    """Keep the image at an event from being given up by `compact`."""
    path = log_path(log)
    check_text("--note", note)
    check_place(path)
    with announced(path, "compact"), contextlib.closing(Writer.open(path, RandomIds())) as writer:
        stream = choose_stream(writer.reader, session).id
        change = remove_pin(writer, stream, Seq(at)) if remove else add_pin(writer, stream, Seq(at), note)
    if as_json:
        print(json.dumps({"log": path, "session": stream, "seq": at, "pinned": not remove, "changed": change}))
    else:
        state = "not pinned" if remove else "pinned"
        print(f"{show_text(path)}: session {show_text(stream)} seq {at} is {state}" + ("" if change else ", as it was before"))


def usage(log: LogArgument, as_json: JsonOption = False) -> None:
    """Print where the room goes: each session, what is shared, free pages, the WAL and who pins it."""
    path = log_path(log)
    with open_anywhere(path) as reader:
        found = measure_usage(reader)
    if as_json:
        print(json.dumps({"log": path, **msgspec.to_builtins(found)}))
    else:
        _print_usage(path, found)


def _print_usage(path: str, found: Usage) -> None:
    for one in found.sessions:
        print(
            f"{show_text(one.session)}: {one.events} events ({one.payload_bytes} bytes), {one.changes} changes ({one.path_bytes} bytes "
            f"of paths), {one.contents} contents: {one.own_bytes} bytes of its own, {one.shared_bytes} shared; {one.given_up} given up, "
            f"{one.pins} pins"
        )
    print(f"shared by sessions: {found.shared_bytes} bytes; needed by no event: {found.unnamed_bytes} bytes")
    print(f"{show_text(path)}: {found.database_bytes} bytes, {found.free_bytes} of them free; WAL {found.wal_bytes} bytes")
    for holder in found.pinned_by:
        print(f"the WAL is read by {holder}")


def _print_reclaimable(given_up: Reclaimable) -> None:
    for session, size in given_up.by_session.items():
        print(f"{show_text(session)}: {size} bytes")
    print(f"shared by sessions: {given_up.shared_bytes} bytes; needed by no event: {given_up.orphan_bytes} bytes")
    if given_up.orphans_left:
        print("what no event needs is left for now: another process has the log open and may be about to name it")


def _reclaimable_json(given_up: Reclaimable) -> dict[str, object]:
    return {**msgspec.to_builtins(given_up), "total_bytes": given_up.total_bytes}


def _wal_json(found: wal.Tidied | wal.Pinned) -> dict[str, object]:
    match found:
        case wal.Tidied():
            return {"done": True, "wal_bytes": 0, "pinned_by": []}
        case wal.Pinned():
            return {"done": False, "wal_bytes": found.wal_bytes, "pinned_by": msgspec.to_builtins(found.holders)}
