"""Sizes of modules and functions, reported and not enforced: `pytest tests/house -rA -k sizes` shows them."""

import ast
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("eventlog", "recovery", "chaos", "reports")


def test_sizes_are_reported() -> None:
    for package in PACKAGES:
        modules = {file: file.read_text("utf-8") for file in sorted((ROOT / package).rglob("*.py"))}
        lines = {str(file.relative_to(ROOT)): text.count("\n") for file, text in modules.items() if text.strip()}
        functions = {
            f"{file.relative_to(ROOT)}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
            for file, text in modules.items()
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for what, sizes in (("modules", lines), ("functions", functions)):
            if sizes:
                largest = max(sizes, key=lambda name: sizes[name])
                print(f"{package}: {len(sizes)} {what}, median {median(sizes.values()):g} lines, largest {sizes[largest]} ({largest})")
