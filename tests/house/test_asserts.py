"""Integrity checks raise; they are never `assert`, which `python -O` leaves out."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITES = ("conformance", "testing")
"""Directories of suites that ship: what is in them runs under pytest, and judges by `assert`."""
FILES = [
    file
    for package in ("eventlog", "recovery", "chaos", "reports")
    for file in sorted((ROOT / package).rglob("*.py"))
    if not set(SUITES) & set(file.relative_to(ROOT).parts)
]


def find_asserts(text: str) -> list[int]:
    """The lines of `assert` statements."""
    return [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert)]


def test_nothing_that_a_package_checks_is_checked_by_assert() -> None:
    found = [f"{file.relative_to(ROOT)}:{line}" for file in FILES for line in find_asserts(file.read_text("utf-8"))]
    assert not found, f"raise InternalError with a sentence (eventlog.errors.required) instead: {found}"


@pytest.mark.parametrize("text", ["assert x", "def f():\n    if y:\n        assert x is not None, 'said'"])
def test_an_assert_is_found_wherever_it_stands(text: str) -> None:
    assert find_asserts(text)
