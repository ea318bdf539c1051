"""The shipped suite of spaces (recovery.space.conformance), run for each space of the project."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from recovery.space import conformance
from recovery.space.conformance.fixtures import space, subject

SPACES = {
    "memory": "recovery.space.conformance.memory_subject:make",
    "local": "recovery.space.conformance.local_subject:make",
    "local, environment mark": "recovery.space.conformance.local_subject:make_by_environment",
    "namespaced": "recovery.space.conformance.local_subject:make_namespaced",
    "cua": "recovery.space.conformance.cua_subject:make",
}
MODULES = sorted(file.stem for file in Path(conformance.__path__[0]).glob("test_*.py"))
FIXTURES = (space, subject)


@pytest.fixture(params=list(SPACES.values()), ids=list(SPACES))
def space_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def find_tests(module: ModuleType) -> dict[str, object]:
    return {name: found for name, found in vars(module).items() if name.startswith("test_")}


SUITE = {name: find_tests(importlib.import_module(f"recovery.space.conformance.{name}")) for name in MODULES}
for _tests in SUITE.values():
    globals().update(_tests)


def test_every_test_of_the_suite_runs_here_under_a_name_of_its_own() -> None:
    names = [name for tests in SUITE.values() for name in tests]
    assert len(MODULES) >= 3 and len(names) >= 30
    assert len(set(names)) == len(names)
    assert all(name in globals() for name in names)
