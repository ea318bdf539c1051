"""Commands in messages can be copied as they stand: what is put into one is a word of a command line, quoted where a shell needs it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BEGINS = r"(?:recovery|eventlog|chaos) (?!decided|drive ended)"  # the two are sentences about what was seen
QUOTED = re.compile(r"(show_word|as_word|shlex\.quote|shlex\.join)\(")
NUMBERS_AND_NAMES = {
    "', '.join(acts)", "call.number", "ended.epoch + 1",
    "epoch + 1", "first - 1", "found.root", "len(after)", "made.stream", "one.decision_seq", "open_seq",
    "option", "order.seq", "root", "root_hash(found.image, profile.excludes).hex()", "seq", "which",
    "own", "place", "word",  # words already, where they come from
}  # fmt: skip
"""What may stand in a command without being quoted: numbers, hashes, names that can hold nothing a shell would read, options made with
`show_word`."""


def find_holes(source: str) -> Iterator[tuple[int, str]]:
    """Line and expression of everything that an f-string puts into a command: one in backticks, or a string that is a command."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            holes = [ast.unparse(part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
            parts = ["\0" if isinstance(part, ast.FormattedValue) else str(getattr(part, "value", "")) for part in node.values]
            text = "".join(parts)
            spans = [found.span() for found in re.finditer(rf"`{BEGINS}[^`]*`", text)]
            if not spans and re.match(BEGINS, text) and ": " not in text:
                spans = [(0, len(text))]
            for number, found in enumerate(re.finditer("\0", text)):
                if any(begin < found.start() < end for begin, end in spans):
                    yield node.lineno, holes[number]


def is_word(hole: str) -> bool:
    return hole in NUMBERS_AND_NAMES or QUOTED.match(hole) is not None


@pytest.mark.parametrize("package", ["eventlog", "recovery", "chaos", "reports"])
def test_what_stands_in_a_command_is_a_word_of_a_command_line(package: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {hole}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, hole in find_holes(file.read_text("utf-8"))
        if not is_word(hole)
    ]
    assert found == []


def test_the_state_directory_is_put_into_sentences_in_one_place() -> None:
    replaced = r"""\.replace\(\s*["']STATE_DIR["']"""
    found = [
        str(file.relative_to(ROOT))
        for package in ("eventlog", "recovery", "chaos")
        for file in sorted((ROOT / package).rglob("*.py"))
        if re.search(replaced, file.read_text("utf-8"))
    ]
    assert found == ["recovery/words.py"]


@pytest.mark.parametrize(
    "source",
    [
        'f"run `recovery drive {show_text(state)}` again"',
        'f"x; `eventlog verify {self.name}`"',
        'f"recovery settle {show_text(log)} --undo"',
    ],
)
def test_a_path_that_is_no_word_is_found(source: str) -> None:
    assert [hole for _, hole in find_holes(source) if not is_word(hole)] != []
