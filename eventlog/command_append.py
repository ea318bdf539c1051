"""`eventlog append`: what any process may add to a session, also beside its live driver: a note, an input (rule L2)."""

import contextlib
import json
import os
from typing import Annotated, Any, Literal

import msgspec
import typer

from eventlog import events
from eventlog.command_options import JsonOption, LogArgument, SessionOption, check_place, check_text, log_path
from eventlog.command_writing import announced
from eventlog.errors import LogMissingError, MisuseError
from eventlog.ports import Clock, RandomIds, SystemClock
from eventlog.records import Admitted, Record
from eventlog.show import show_text
from eventlog.streams import choose_stream
from eventlog.values import StreamId
from eventlog.writer import Writer

Kind = Literal["noted", "input_admitted"]

KindOption = Annotated[Kind, typer.Option("--kind", help="noted (with --text) or input_admitted (with --request and --input)")]
TextOption = Annotated[str | None, typer.Option("--text", help="what to note")]
RequestOption = Annotated[str | None, typer.Option("--request", metavar="ID", help="the input's id: it is taken in once")]
InputOption = Annotated[str | None, typer.Option("--input", metavar="JSON", help="the input, a JSON object")]

_input_decoder = msgspec.json.Decoder(dict[str, Any])


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def append(
        log: LogArgument,
        kind: KindOption,
        text: TextOption = None,
        request: RequestOption = None,
        given: InputOption = None,
        session: SessionOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Add a note or an input to a session. An input that stands already under its request id is answered with its place."""
        event = make_event(kind, text, request, given, SystemClock())
        path = log_path(log)
        check_log(path)
        with announced(path, "append"), contextlib.closing(Writer.open(path, RandomIds())) as writer:
            stream = choose_stream(writer.reader, session).id
            admitted = put(writer, stream, event)
        place = admitted.appended
        if as_json:
            found = {"stream": stream, "seq": place.seq, "kind": kind, "id": place.id.hex(), "hash": place.hash.hex()}
            print(json.dumps({**found, "is_new": admitted.is_new}))
        else:
            how = "" if admitted.is_new else " (it was admitted before)"
            print(f"{show_text(stream)} {place.seq} {kind}{how}")


def make_event(
    kind: Kind, text: str | None, request: str | None, given: str | None, clock: Clock
) -> events.Noted | events.InputAdmitted:
    """The event that was asked for. Raises MisuseError for options that do not belong to it, and for what is not UTF-8 or JSON."""
    match kind:
        case "noted":
            if text is None or request is not None or given is not None:
                raise MisuseError("a note has --text, and neither --request nor --input")
            return events.Noted(clock.now_ms(), check_text("--text", text))
        case "input_admitted":
            if text is not None or request is None or given is None:
                raise MisuseError("an input has --request and --input, and no --text")
            if not request:
                raise MisuseError("--request is empty: every input would be the same one; give each input an id of its own")
            return events.InputAdmitted(clock.now_ms(), check_text("--request", request), parse_input(check_text("--input", given)))


def parse_input(given: str) -> dict[str, Any]:
    """A JSON object. Raises MisuseError."""
    try:
        return _input_decoder.decode(given)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MisuseError(f"--input {show_text(given[:60])}: not a JSON object: {error}") from error


def check_log(path: str) -> None:
    """Raise LogMissingError where there is no log, MisuseError where none may be written."""
    if not os.path.exists(path):
        raise LogMissingError(f"{show_text(path)}: there is no log here; check the path: `append` adds to a log and never makes one")
    check_place(path)
def put(writer: Writer, stream: StreamId, event: events.Noted | events.InputAdmitted) -> Admitted:
    """Append it, and say where it stands."""
    match event:
        case events.Noted():
            return Admitted(writer.append_unfenced(stream, [Record(event)], "note")[0], is_new=True)
        case events.InputAdmitted():
            return writer.admit(stream, event.request_id, event.input, event.at_ms)
