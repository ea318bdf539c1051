"""The commands `eventlog export` and `eventlog import`."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from eventlog import durable
from eventlog.bundle_export import Exported, export, export_moved
from eventlog.bundle_import import Imported, check_import, import_bundle, import_into_new
from eventlog.command_options import NOT_DRIVEN, PLACED, JsonOption, LogArgument, SessionOption, check_place, log_path
from eventlog.command_writing import announced
from eventlog.errors import MisuseError
from eventlog.ports import RandomIds, SystemClock
from eventlog.reading import open_anywhere
from eventlog.show import show_text
from eventlog.streams import choose_stream
from eventlog.values import Seq
from eventlog.writer import Writer


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("export")(export_session)
    app.command("import")(import_session)


def export_session(
    log: LogArgument,
    to: Annotated[Path, typer.Option("--to", help="the bundle to write; a file of this name is never replaced")],
    session: SessionOption = None,
    upto: Annotated[int | None, typer.Option("--upto", help="only the events up to this seq")] = None,
    move: Annotated[bool, typer.Option("--move", help="the session goes away with the bundle: nothing is appended here any more")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a session, its history and its files, into one compressed file that can be verified."""
    path = log_path(log)
    if move and upto is not None:
        raise MisuseError("--move takes all of a session; leave out --upto, or export without --move")
    ids = RandomIds()
    if move:
        check_place(path)
        with announced(path, "move"), contextlib.closing(Writer.open(path, ids)) as writer:
            stream = choose_stream(writer.reader, session).id
            made = export_moved(writer, stream, str(to), ids, SystemClock())
    else:
        with open_anywhere(path) as reader:
            stream = choose_stream(reader, session).id
            made = export(reader, stream, str(to), ids, None if upto is None else Seq(upto))
    report = exported_json(path, str(to), stream, made, move)
    print(json.dumps(report) if as_json else exported_line(str(to), stream, made, move))


def import_session(
    log: LogArgument,
    file: Annotated[Path, typer.Argument(help="a bundle that `eventlog export` made")],
    name: Annotated[str | None, typer.Option("--as", help="what the session is called here; without it, what it was called there")] = None,
    new: Annotated[bool, typer.Option("--new", help="make a new log that holds it")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="check all of the bundle and write nothing")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a bundle and take it into a log: its history, read-only, and a session that goes on from it."""
    with _made_directory(log) if new and not dry_run else contextlib.nullcontext():
        _import(log, file, name, new=new, dry_run=dry_run, as_json=as_json)


@contextlib.contextmanager
def _made_directory(log: Path) -> Iterator[None]:
    """A state directory for a new log, as every other command takes one; gone again when nothing came of it."""
    is_made = not str(log).endswith(".sqlite") and not os.path.lexists(log) and os.path.isdir(os.path.dirname(log) or ".")
    if is_made:
        os.mkdir(log, 0o700)
    try:
        yield
    except BaseException:
        if is_made:
            with contextlib.suppress(OSError):  # it is not empty: then something came of it
                durable.remove_directory(str(log), "import")
        raise


def _import(log: Path, file: Path, name: str | None, *, new: bool, dry_run: bool, as_json: bool) -> None:
    path = log_path(log)
    directory = os.path.dirname(path) or "."
    if not new and not os.path.lexists(path):
        raise MisuseError(f"{show_text(path)}: there is no log here; check the path, or add --new to make a log that holds the bundle")
    if not os.path.isdir(directory):
        raise MisuseError(f"{show_text(directory)}: there is no such directory; make it first")
    if dry_run:
        made = check_import(path, str(file), name, new=new)
    else:
        check_place(path)
        take = import_into_new if new else import_bundle
        with announced(path, "import"):
            made = take(path, str(file), RandomIds(), SystemClock(), name)
    line = ("sound, nothing was written: " if dry_run else "") + _imported_line(path, made)
    note = PLACED if new else NOT_DRIVEN
    print(json.dumps({**_imported_json(path, str(file), made), "dry_run": dry_run}) if as_json else f"{line}\n{note}")


def exported_json(path: str, file: str, stream: str, made: Exported, moved: bool) -> dict[str, object]:
    """What `--json` says of a bundle that was made."""
    return {
        "log": path,
        "file": file,
        "session": stream,
        "moved": moved,
        "digest": made.digest.hex(),
        "bytes": made.file_bytes,
        **_numbers(made),
    }


def _numbers(made: Exported | Imported) -> dict[str, object]:
    return {
        "origin_log": made.header.origin.log_id,
        "origin_stream": made.header.origin.stream,
        "head_seq": made.header.head_seq,
        "events": made.counts.events,
        "contents": made.counts.contents,
        "content_bytes": made.counts.content_bytes,
        "given_up": made.counts.given_up,
    }


def exported_line(file: str, stream: str, made: Exported, moved: bool) -> str:
    """The same for people."""
    moved_away = (
        "was moved into it: nothing is appended to it here any more; `eventlog import STATE_DIR BUNDLE --new`, then `recovery place "
        "STATE_DIR --workspace DIR`, make it a session that is driven"
    )
    what = moved_away if moved else "goes on here"
    return (
        f"{show_text(file)}: {made.counts.events} events, {made.counts.contents} contents ({made.counts.content_bytes} bytes), "
        f"{made.counts.given_up} given up; {made.file_bytes} bytes, digest {made.digest.hex()}; session {show_text(stream)} {what}"
    )


def _imported_json(path: str, file: str, made: Imported) -> dict[str, object]:
    return {
        "log": path,
        "file": file,
        "session": made.session,
        "forked_at": made.forked_at,
        "moved": made.is_moved,
        "prefix": made.prefix,
        "reused": made.is_reused,
        "digest": made.digest.hex(),
        **_numbers(made),
    }


def _imported_line(path: str, made: Imported) -> str:
    there = "was here already" if made.is_reused else "is read-only"
    at = f"seq {made.forked_at}"
    if made.forked_at < made.header.head_seq:
        at += f", the newest point before its head ({made.header.head_seq}) at which no call and no restore is open"
    return (
        f"{show_text(path)}: session {show_text(made.session)} goes on from {at}; its history {show_text(made.prefix)} {there}: "
        f"{made.counts.events} events, {made.counts.contents} contents, {made.counts.given_up} given up"
    )
