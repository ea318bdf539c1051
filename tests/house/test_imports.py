"""The import contract of DESIGN: by import-linter where it can say it, by reading the source where it cannot."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("eventlog", "recovery", "chaos", "reports")
SOURCES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))


def find_imports(node: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, top name) of each import below `node`; "." for a relative one."""
    for one in ast.walk(node):
        if isinstance(one, ast.Import):
            yield from ((one.lineno, alias.name) for alias in one.names)
        elif isinstance(one, ast.ImportFrom):
            yield one.lineno, "." if one.level else one.module or ""


def test_the_contract_is_kept() -> None:
    script = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_import_of_the_project_hides_inside_a_function(file: Path) -> None:
    functions = [node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    hidden = {(line, name) for function in functions for line, name in find_imports(function) if name.split(".")[0] in (*PACKAGES, "")}
    assert not hidden, f"{file}: move to the top of the module: {sorted(hidden)}"


def find_later(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """(line, name, module) of each module that is imported at its first use (eventlog/later.py)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "later":
            yield node.lineno, ast.unparse(node.targets[0]), str(ast.literal_eval(node.value.args[0]))


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_is_imported_later_stands_where_imports_are_read(file: Path) -> None:
    """mypy and the import contract see the module itself, under the same name."""
    tree = ast.parse(file.read_bytes())
    said = {
        (alias.asname or alias.name, f"{one.module}.{alias.name}")
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for one in node.body
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    }
    assert [(line, name, module) for line, name, module in find_later(tree) if (name, module) not in said] == []


def test_the_oracle_uses_the_standard_library_and_two_others_only() -> None:
    allowed = {"blake3", "zstandard"} | set(sys.stdlib_module_names)
    for file in sorted((ROOT / "chaos" / "oracle").rglob("*.py")):
        for line, name in find_imports(ast.parse(file.read_bytes())):
            own = name == "chaos.oracle" or name.startswith("chaos.oracle.") or name == "."
            assert own or name.split(".")[0] in allowed, f"{file}:{line}: imports {name}"


def test_importing_the_package_chaos_imports_nothing_else() -> None:
    for package in PACKAGES:
        tree = ast.parse((ROOT / package / "__init__.py").read_bytes())
        assert not list(find_imports(tree)), f"{package}/__init__.py: stays empty or lazy, a zygote imports little"
