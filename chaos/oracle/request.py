"""What can be asked: the fields of a judge request, checked for type once, here.

| field | value |
|---|---|
| `log`, `scratch` | path of log.sqlite; an existing empty directory for the copy |
| `stream`, `workspace` | stream id; the directory that must equal the log's head (may not exist) |
| `witness`, `witnessed` | path of the witness file or null; script indexes whose commands write to it |
| `acknowledged` | files with drivers' stdout in order, or null: not to be judged |
| `reference`, `reference_outputs` | a listing as `list` gives it, or null; `{script index: hex of output}` or null |
| `reference_exits` | `{script index: {"kind", "code", "signal"}}` of a plain run, code or signal null, or null |
| `on_interrupted` | `reissue`, `continue` or `stop` |
| `script_length`, `expect_finished` | number of script calls; whether the session must have ended |
| `outside_edits` | whether somebody else was meant to change the workspace |
| `superseded` | `[epoch, head seq when its successor had started]` for each driver superseded while alive |
| `quarantine` | the space's quarantine directory or null |

What follows may be left out (default in brackets); `request_items.py` has the form of the items.

| field | value |
|---|---|
| `history` | whether the answer shall have `events` (false) |
| `converges_to` | the `final` that another run ended in, or null (null) |
| `converges_to_parts` | that run's `final_parts`: with them a finding says what differs, with its `listing` in them also where (null) |
| `edits` | what somebody else did to the workspace, in order; null: not told, and `outside_edits` counts instead (null) |
| `displaced` | what the runner saw before it started a driver and what is otherwise at the end (empty) |
| `put_back` | `[seq, outputs]`: after that many outputs the log's files were put back as they were when this was its newest event (null) |
| `suspect` | whether each oracle is asked again about spoiled evidence, which it must notice (true) |
| `frozen` | what it saw before it woke a frozen process that a newer epoch had overtaken, and after that one's end (empty) |

The runner looks for `displaced` while nothing lives that still writes in the workspace, and for `frozen` while nobody else is at work:
what others change meanwhile would pass for a loss, or for the woken one's doing.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .listing_json import listing_from_json
from .request_items import (
    Edit,
    Seen,
    Woken,
    edit_from_json,
    final_parts_from_json,
    number,
    seen_from_json,
    woken_from_json,
)
from .values import Exit, Listing

T = TypeVar("T")


class RequestError(Exception):
    """A request cannot be understood; says which field is wrong."""


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One trial to judge."""

    log: str
    scratch: str
    stream: str
    workspace: bytes
    witness: bytes | None
    witnessed: frozenset[int]
    acknowledged: tuple[bytes, ...] | None
    reference: Listing | None
    reference_outputs: Mapping[int, bytes] | None
    reference_exits: Mapping[int, Exit] | None
    on_interrupted: str
    script_length: int
    expect_finished: bool
    outside_edits: bool
    superseded: tuple[tuple[int, int], ...]
    quarantine: bytes | None
    history: bool
    converges_to: str | None
    converges_to_parts: Mapping[str, Any] | None
    edits: tuple[Edit, ...] | None
    displaced: tuple[Seen, ...]
    frozen: tuple[Woken, ...]
    suspect: bool = True
    put_back: tuple[int, int] | None = None


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError("no string")
    return value


def path(value: Any) -> bytes:
    """A path in the file system."""
    return os.fsencode(text(value))


def flag(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value


def policy(value: Any) -> str:
    """What the scripted agent does with an interrupted call."""
    if value not in ("reissue", "continue", "stop"):
        raise ValueError("neither reissue, continue nor stop")
    return text(value)


def pair(value: Any) -> tuple[int, int]:
    """Two integers."""
    first, second = value
    return number(first), number(second)


def outputs(value: Any) -> Mapping[int, bytes]:
    """Output bytes by script index."""
    return {int(index): bytes.fromhex(data) for index, data in value.items()}


def exits(value: Any) -> Mapping[int, Exit]:
    """Exits by script index."""
    return {int(index): exit_from(one) for index, one in value.items()}


def exit_from(value: Any) -> Exit:
    """One exit of a plain run: with a code or with a signal, as its kind has it."""
    found = Exit(text(value["kind"]), or_null(number)(value["code"]), or_null(number)(value["signal"]))
    has = {"exited": ("code",), "signaled": ("signal",), "timed_out": ("code", "signal")}.get(found.kind, ())
    if [name for name in ("code", "signal") if getattr(found, name) is not None] not in [[name] for name in has]:
        raise ValueError(f"{value!r} is no end of a plain run")
    return found


def or_null(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """The reader, with null allowed."""
    return lambda value: None if value is None else read(value)


def items(read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """The reader of a list of what `read` reads."""
    return lambda value: tuple(read(item) for item in value)


def take(request: Mapping[str, Any], field: str, read: Callable[[Any], T]) -> T:
    """The field, read. Raises RequestError."""
    if field not in request:
        raise RequestError(f"judge request lacks {field!r}")
    try:
        return read(request[field])
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RequestError(f"judge request has a wrong {field!r}: {type(error).__name__}: {error}") from error


def take_or(request: Mapping[str, Any], field: str, default: T, read: Callable[[Any], T]) -> T:
    """The field, read; the default when it was left out. Raises RequestError."""
    return take(request, field, read) if field in request else default


def parse_judge_request(request: Mapping[str, Any]) -> JudgeRequest:
    """The request as a value. Raises RequestError."""
    return JudgeRequest(
        log=take(request, "log", text),
        scratch=take(request, "scratch", text),
        stream=take(request, "stream", text),
        workspace=take(request, "workspace", path),
        witness=take(request, "witness", or_null(path)),
        witnessed=take(request, "witnessed", lambda value: frozenset(map(number, value))),
        acknowledged=take(request, "acknowledged", or_null(lambda value: tuple(map(path, value)))),
        reference=take(request, "reference", or_null(listing_from_json)),
        reference_outputs=take(request, "reference_outputs", or_null(outputs)),
        reference_exits=take(request, "reference_exits", or_null(exits)),
        on_interrupted=take(request, "on_interrupted", policy),
        script_length=take(request, "script_length", number),
        expect_finished=take(request, "expect_finished", flag),
        outside_edits=take(request, "outside_edits", flag),
        superseded=take(request, "superseded", lambda value: tuple(map(pair, value))),
        quarantine=take(request, "quarantine", or_null(path)),
        history=take_or(request, "history", False, flag),
        put_back=take_or(request, "put_back", None, or_null(pair)),
        suspect=take_or(request, "suspect", True, flag),
        converges_to=take_or(request, "converges_to", None, or_null(text)),
        converges_to_parts=take_or(request, "converges_to_parts", None, or_null(final_parts_from_json)),
        edits=take_or(request, "edits", None, or_null(items(edit_from_json))),
        displaced=take_or(request, "displaced", (), items(seen_from_json)),
        frozen=take_or(request, "frozen", (), items(woken_from_json)),
    )
