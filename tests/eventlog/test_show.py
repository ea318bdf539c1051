"""What people see: escaped, one line each, and reversible."""

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.event_lines import describe
from eventlog.show import as_word, show_path, show_text, show_word
from tests.eventlog.test_events import EXAMPLES

NAMES = [
    b"caf\xe9",
    b"\xff\xfe",
    b"\xc3",
    b"\xed\xa0\x80",
    b"a\nb",
    b"a\\nb",
    b"a\\x0ab",
    b"\\",
    b"\r",
    b"\x1b[2J",
    b"-rf",
    b"-print0",
    b"@args",
    b"n" * 255,
]


def read_back(shown: str) -> bytes:
    """The bytes that were shown."""
    if shown == ".":
        return b""
    return re.sub(
        rb"\\(\\|x[0-9a-f]{2})", lambda found: b"\\" if found[1] == b"\\" else bytes([int(found[1][1:], 16)]), shown.encode("utf-8")
    )


@pytest.mark.parametrize("name", NAMES)
def test_case_03_a_name_of_any_bytes_is_shown_and_read_back(name: bytes) -> None:
    shown = show_path(name)
    assert read_back(shown) == name
    shown.encode("utf-8")


@given(st.binary(max_size=60))
def test_case_04_any_bytes_become_one_printable_line_that_reads_back(path: bytes) -> None:
    shown = show_path(path)
    assert shown.isprintable()
    if path != b".":
        assert read_back(shown) == path


@given(st.text(st.characters(), max_size=60))
def test_case_04_any_text_becomes_one_printable_line(text: str) -> None:
    assert show_text(text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")).isprintable()


WORDS = [
    b"plain", b"two words", b"it's", b"a\\ b", b"$(touch x)`x`",
    b"-x", b"tab\there", b"line\nbreak", b"caf\xe9 '\\x41",
    "\u202e".encode(), b"*", b"~",
]


@pytest.mark.parametrize("name", WORDS)
def test_a_path_in_a_command_is_one_printable_word_that_a_shell_reads_back(name: bytes) -> None:
    word = show_word(name.decode("utf-8", "surrogateescape"))
    assert word.isprintable() and as_word(show_path(name)) == word
    told = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    assert told == (b"./" if name.startswith(b"-") else b"") + name


def test_a_key_that_begins_like_an_option_is_no_path() -> None:
    assert (as_word("-k"), as_word("-k", is_path=False)) == ("./-k", "-k")


def test_an_empty_text_is_not_shown_as_the_root_is() -> None:
    assert (show_text(""), show_path(b"")) == ("", ".")


def test_case_04_no_two_names_are_shown_alike() -> None:
    assert len({show_path(name) for name in NAMES}) == len(NAMES)


def test_text_with_the_escapes_that_python_puts_for_bytes_is_shown_as_the_bytes() -> None:
    assert show_text("caf\udce9") == "caf\\xe9"
    assert show_text("caf\u00e9") == "caf\u00e9"


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.kind)
def test_every_kind_of_event_is_described(event: object) -> None:
    line = describe(event)  # type: ignore[arg-type]
    assert line and show_text(line).isprintable()
