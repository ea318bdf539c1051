"""The unified difference of two contents that are text, within bounds. Pure.

Text is UTF-8 without NUL, at most TEXT_BYTES long and of at most TEXT_LINES lines: difflib's time grows with the square of the lines at
worst, and contents may be hostile. Lines end at a newline and nowhere else.
"""

import difflib
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from eventlog.show import show_text

TEXT_BYTES = 1 << 19
TEXT_LINES = 10_000
CONTEXT_LINES = 3


class NotText(msgspec.Struct, frozen=True):
    """Why a content is not compared line by line: it is no text, it is beyond the bounds, or compaction gave it up."""

    reason: Literal["binary", "long", "given up"]


def read_text(pieces: Iterable[bytes]) -> str | NotText:
    """The whole of a content as text, or why not. At most TEXT_BYTES and one piece are held."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) > TEXT_BYTES:
            return NotText("long")
    try:
        text = held.decode("utf-8")
    except UnicodeDecodeError:
        return NotText("binary")
    if "\0" in text:
        return NotText("binary")
    return NotText("long") if text.count("\n") > TEXT_LINES else text


def diff_text(before: str, after: str) -> Iterator[str]:
    """The lines of a unified difference without its two head lines, each escaped (but for tabs) and without its newline."""
    lines = difflib.unified_diff(_split(before), _split(after), n=CONTEXT_LINES, lineterm="")
    for number, line in enumerate(lines):
        if number < 2:
            continue
        yield _show_line(line.removesuffix("\n"))
        if not line.endswith("\n") and not line.startswith("@@"):
            yield "\\ no newline at the end"


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    ended = [line + "\n" for line in lines[:-1]]
    return ended + ([lines[-1]] if lines[-1] else [])


def _show_line(line: str) -> str:
    return "\t".join(show_text(part) for part in line.split("\t")) if line else ""
