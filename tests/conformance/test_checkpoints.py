"""The shipped suite of checkpoint stores (recovery.checkpoints.conformance), run for each store of the project."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from recovery.checkpoints import conformance
from recovery.checkpoints.conformance.fixtures import subject

SUBJECTS = {
    "directory": "recovery.checkpoints.conformance.subjects:make_directory",
    "memory": "recovery.checkpoints.conformance.subjects:make_memory",
}
MODULES = sorted(file.stem for file in Path(conformance.__path__[0]).glob("test_*.py"))
FIXTURES = (subject,)


@pytest.fixture(params=list(SUBJECTS.values()), ids=list(SUBJECTS))
def subject_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def find_tests(module: ModuleType) -> dict[str, object]:
    return {name: found for name, found in vars(module).items() if name.startswith("test_")}


SUITE = {name: find_tests(importlib.import_module(f"recovery.checkpoints.conformance.{name}")) for name in MODULES}
for _tests in SUITE.values():
    globals().update(_tests)


def test_every_test_of_the_suite_runs_here_under_a_name_of_its_own() -> None:
    names = [name for tests in SUITE.values() for name in tests]
    assert len(MODULES) >= 3 and len(names) >= 20
    assert len(set(names)) == len(names)
    assert all(name in globals() for name in names)
