"""The commands that look back: `diff`, `checkout`, `fork`, and the lines of `show --calls`. Points: eventlog/history."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from eventlog.call_history import CallHistory, find_undone, iterate_calls
from eventlog.checkout import check_out
from eventlog.command_options import NOT_DRIVEN, POINT_HELP, JsonOption, LogArgument, SessionOption, check_place, log_path
from eventlog.command_writing import announced
from eventlog.differences import Difference, describe_difference, difference_json, find_differences
from eventlog.errors import CompactedError
from eventlog.excludes import stream_excludes
from eventlog.forking import fork_session
from eventlog.history import find_point, parse_point, read_image
from eventlog.image import Entry, root_hash
from eventlog.ports import RandomIds, SystemClock
from eventlog.reader import Reader
from eventlog.reading import open_anywhere
from eventlog.show import encode_bytes, show_path, show_text
from eventlog.streams import choose_stream
from eventlog.text_diff import TEXT_BYTES, NotText, diff_text, read_text
from eventlog.values import ContentId, StreamId

AtOption = Annotated[str, typer.Option("--at", help=POINT_HELP)]


def diff(
    log: LogArgument,
    before: Annotated[str, typer.Argument(help=POINT_HELP)],
    after: Annotated[str, typer.Argument(help=POINT_HELP)],
    session: SessionOption = None,
    other: Annotated[str | None, typer.Option("--other-session", help="the session of the second point, where it is another")] = None,
    text: Annotated[bool, typer.Option("--text", help="compare text files line by line")] = False,
    as_json: JsonOption = False,
) -> int:
    """List the paths that differ between two points. Exit 1 when any does."""
    points = parse_point(before), parse_point(after)
    is_equal = True
    with open_anywhere(log_path(log)) as reader:
        rows = choose_stream(reader, session), choose_stream(reader, session if other is None else other)
        seqs = [find_point(reader, row, point) for row, point in zip(rows, points, strict=True)]
        images = [read_image(reader, row.id, seq) for row, seq in zip(rows, seqs, strict=True)]
        for difference in find_differences(*images):
            is_equal = False
            compared = _compare(reader, difference) if text else None
            if as_json:
                print(json.dumps({**difference_json(difference), **({"text": _text_json(compared)} if text else {})}))
                continue
            print(describe_difference(difference))
            for line in _text_lines(difference, compared):
                print(line)
    return 0 if is_equal else 1


def _compare(reader: Reader, difference: Difference) -> list[str] | NotText | None:
    """The difference line by line, why there is none, or None where no content differs."""
    before, after = _content(difference.before), _content(difference.after)
    if before == after:
        return None
    texts: list[str] = []
    for entry in (before, after):
        found = _read(reader, entry)
        if isinstance(found, NotText):
            return found
        texts.append(found)
    return list(diff_text(*texts))


def _content(entry: Entry | None) -> tuple[bytes, int] | None:
    return None if entry is None or entry.content is None else (entry.content, entry.size)


def _read(reader: Reader, content: tuple[bytes, int] | None) -> str | NotText:
    if content is None:
        return ""
    if content[1] > TEXT_BYTES:
        return NotText("long")
    try:
        return read_text(reader.content(ContentId(content[0])))
    except CompactedError:
        return NotText("given up")


def _text_lines(difference: Difference, compared: list[str] | NotText | None) -> Iterator[str]:
    if not compared:
        return
    shown = show_path(difference.path)
    if isinstance(compared, NotText):
        sizes = [entry.size if entry is not None else 0 for entry in (difference.before, difference.after)]
        yield f"{compared.reason}, {sizes[0]} -> {sizes[1]} bytes"
        return
    yield f"--- {shown if difference.before is not None else 'nothing'}"
    yield f"+++ {shown if difference.after is not None else 'nothing'}"
    yield from compared


def _text_json(compared: list[str] | NotText | None) -> object:
    return compared.reason if isinstance(compared, NotText) else compared


def checkout(
    log: LogArgument,
    at: AtOption,
    to: Annotated[Path, typer.Option("--to", help="the directory to make; nothing may be there")],
    session: SessionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the image of a point into a new directory."""
    point = parse_point(at)
    with open_anywhere(log_path(log)) as reader:
        row = choose_stream(reader, session)
        seq = find_point(reader, row, point)
        image = read_image(reader, row.id, seq)
        done = check_out(reader, image, str(to), RandomIds())
        excludes = stream_excludes(reader, row.id)
    root = root_hash(image, excludes).hex()
    if as_json:
        print(
            json.dumps(
                {
                    "stream": row.id,
                    "seq": seq,
                    "root": root,
                    "directory": encode_bytes(os.fsencode(to)),
                    "paths": done.paths,
                    "bytes": done.size,
                }
            )
        )
        return
    what = f"{done.paths} paths, {done.size} bytes, image {root[:12]}"
    print(f"{show_text(str(to))}: session {show_text(row.id)} as of seq {seq}: {what}")


def fork(
    log: LogArgument,
    at: AtOption,
    name: Annotated[str, typer.Option("--name", help="what the new session is called")],
    session: SessionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Begin a new session in the same log that goes on from a point of another one."""
    point, path = parse_point(at), log_path(log)
    if os.path.exists(path):  # or opening it says what is wrong
        check_place(path)
    with announced(path, "fork"):
        made = fork_session(path, session, point, name, clock=SystemClock(), ids=RandomIds())
    if as_json:
        values = {"parent": made.parent, "parent_seq": made.parent_seq, "root": made.root, "calls": made.calls}
        print(json.dumps({"stream": made.stream, **values}))
        return
    begun = f"goes on from {show_text(made.parent)} seq {made.parent_seq}, {made.calls} calls settled, image {made.root[:12]}"
    print(f"session {made.stream} {begun}; `eventlog checkout --session {made.stream} --at head --to DIR` writes its files")
    print(NOT_DRIVEN)


def print_calls(reader: Reader, stream: StreamId, as_json: bool) -> None:
    """One line for each call of a session."""
    undone = find_undone(reader.events(stream))
    for call in iterate_calls(reader.events(stream), undone):
        print(json.dumps(_call_json(stream, call)) if as_json else _call_line(stream, call))


def _call_json(stream: StreamId, call: CallHistory) -> dict[str, object]:
    return {
        "stream": stream,
        "call": call.call,
        "tool": call.tool,
        "attempts": call.attempts,
        "decision": call.decision,
        "ended": call.ended,
        "undone": call.is_undone,
        "size": call.size,
        "duration_ms": call.duration_ms,
        "started_seq": call.started_seq,
        "settled_seq": call.settled_seq,
    }


def _call_line(stream: StreamId, call: CallHistory) -> str:
    place = f"{show_text(stream)} call {call.call:>4} {show_text(call.tool):<6} attempts {call.attempts}"
    if call.ended is None:
        return f"{place} open"
    undone = ", undone later" if call.is_undone else ""
    return f"{place} {call.ended} ({show_text(call.decision or '')}{undone}) {call.size} bytes {call.duration_ms} ms"
