"""Every sync, rename, link and removal of the engine stands in one module, which passes the crash points around it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OWNER = ROOT / "eventlog" / "durable.py"
ENGINE = sorted(file for package in ("eventlog", "recovery") for file in (ROOT / package).rglob("*.py") if file != OWNER)

OF_OS = {"fsync", "fdatasync", "sync", "rename", "renames", "replace", "unlink", "remove", "removedirs", "link", "rmdir"}
OF_SHUTIL = {"rmtree", "move"}
OF_PATHS = {"unlink", "rmdir", "rename", "hardlink_to", "link_to"}
"""Methods of pathlib.Path. Not `replace`: text has it too, so that it is looked for with a keyword-free single argument below."""


def find_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of what only the owner may use: attributes of os and shutil (called or handed on), methods of paths, imported names."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in OF_OS:
                yield node.lineno, f"os.{name}"
            case ast.Attribute(value=ast.Name(id="shutil"), attr=name) if name in OF_SHUTIL:
                yield node.lineno, f"shutil.{name}"
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in OF_PATHS and not is_owner(value):
                yield node.lineno, f".{name}()"
            case ast.Call(func=ast.Attribute(value=value, attr="replace"), args=[_], keywords=[]) if not is_owner(value):
                yield node.lineno, ".replace(target)"
            case ast.ImportFrom(module="os" | "shutil", names=names):
                yield from ((node.lineno, f"from {node.module} import {one.name}") for one in names if one.name in OF_OS | OF_SHUTIL)
            case _:
                pass


def is_owner(value: ast.expr) -> bool:
    """Whether a method is called on the owner, or on os and shutil (which are looked at by themselves)."""
    return isinstance(value, ast.Name) and value.id in ("durable", "os", "shutil")


@pytest.mark.parametrize("file", ENGINE, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_the_durable_module_syncs_renames_links_and_removes(file: Path) -> None:
    found = list(find_calls(ast.parse(file.read_bytes())))
    assert not found, f"{file}: use eventlog.durable instead: {found}"


def test_the_owner_is_seen_by_the_same_eyes() -> None:
    names = {name for _, name in find_calls(ast.parse(OWNER.read_bytes()))}
    assert {"os.fsync", "os.fdatasync", "os.rename", "os.link", "os.unlink", "os.rmdir"} <= names


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.replace(a, b)",
        "from shutil import rmtree",
        "path.unlink()",
        "a.replace(b)",
        "f = os.remove",
        "from os import fsync as f",
    ],
)
def test_each_way_to_do_it_is_found(text: str) -> None:
    assert list(find_calls(ast.parse(text)))


@pytest.mark.parametrize("text", ["'a'.replace('b', 'c')", "durable.unlink(path, 'x')", "items.remove(x)", "dataclasses.replace(a, b=1)"])
def test_what_only_looks_like_it_is_not(text: str) -> None:
    assert not list(find_calls(ast.parse(text)))
