"""The pytest plugin: tiny until it is asked for, and the suite runs by the command that the README gives."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from eventlog import conformance
from eventlog.conformance import plugin
from eventlog.conformance.factory import DEFAULT, find_factory
from eventlog.errors import MisuseError
from eventlog.store import CAPABILITIES

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def run_suite(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The suite, run from a directory outside the project; the plugin is named, as where the package is not installed."""
    path = os.pathsep.join([str(directory), str(ROOT)])
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
    environment |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin.__name__]
    return subprocess.run(
        [*command, "--pyargs", "eventlog.conformance", *arguments],
        cwd=directory, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_the_plugin_is_declared_ships_and_is_no_runtime_dependency() -> None:
    assert PROJECT["project"]["entry-points"]["pytest11"]["eventlog-conformance"] == plugin.__name__
    assert Path(plugin.__file__).is_relative_to(ROOT / "eventlog")
    assert not [name for name in PROJECT["project"]["dependencies"] if name.startswith("pytest")]


def test_loading_the_plugin_imports_nothing_of_the_project_and_no_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import eventlog.conformance.plugin; "
        "print(*sorted(set(sys.modules) - before - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["eventlog", "eventlog.conformance", "eventlog.conformance.plugin"]


def test_the_readme_gives_the_command_that_names_option_and_package() -> None:
    readme = (ROOT / "eventlog" / "README.md").read_text("utf-8")
    assert "python -m pytest --pyargs eventlog.conformance --eventlog-store mypackage.store:make" in readme
    assert DEFAULT in readme
    tests = re.findall(r"`(test_\w+\.py)`", readme)
    assert set(tests) == {file.name for file in Path(conformance.__path__[0]).glob("test_*.py")}


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_capability_stands_in_the_readme(capability: str) -> None:
    assert f"| `{capability}` |" in (ROOT / "eventlog" / "README.md").read_text("utf-8")


def test_somebody_elses_store_is_judged_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from eventlog import memory_store\n"
        "def make(directory):\n"
        "    assert directory.is_dir() and not list(directory.iterdir())\n"
        "    return memory_store.make(directory)\n"
    )
    done = run_suite(tmp_path, "--eventlog-store", "mine:make", "-k", "rule_I5 or case_19_closing", "-rs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^1\d passed, 1 skipped, \d+ deselected", done.stdout.splitlines()[-1])
    assert "the store does not declare 'sqlite files'" in done.stdout


def test_a_wrong_store_is_told_by_the_rule_it_breaks(tmp_path: Path) -> None:
    source = (ROOT / "eventlog" / "memory_store.py").read_text("utf-8")
    (tmp_path / "wrong.py").write_text(source.replace("    if epoch == found.floor:", "    if epoch == -1:"))
    done = run_suite(tmp_path, "--eventlog-store", "wrong:make", "-k", "rule_L1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_rule_L1_an_equal_epoch_is_taken_and_a_lower_one_is_stale" in done.stdout.splitlines()[-2]


def test_without_a_name_the_suite_judges_the_sqlite_store(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "-k", "case_19")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("4 passed")


def test_a_store_that_cannot_be_found_is_one_sentence(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "--eventlog-store", "no_such_module:make")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "the store no_such_module:make cannot be had: No module named 'no_such_module'" in done.stderr


@pytest.mark.parametrize("name", ["", "eventlog.store", ":make", "eventlog.store:", "eventlog.store:nope", "no_such:x"])
def test_a_bad_name_of_a_store_is_refused(name: str) -> None:
    with pytest.raises(MisuseError, match="store"):
        find_factory(name)
