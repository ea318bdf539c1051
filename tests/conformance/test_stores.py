"""The shipped suite of stores (eventlog.conformance), run for each store of the project."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from eventlog import conformance
from eventlog.conformance.fixtures import make_store, place, store
from eventlog.conformance.test_files import log, trap

STORES = ["eventlog.sqlite_store:make", "eventlog.memory_store:make"]
MODULES = sorted(file.stem for file in Path(conformance.__path__[0]).glob("test_*.py"))
FIXTURES = (make_store, place, store, log, trap)


@pytest.fixture(params=STORES, ids=["sqlite", "memory"])
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def find_tests(module: ModuleType) -> dict[str, object]:
    return {name: found for name, found in vars(module).items() if name.startswith("test_")}


SUITE = {name: find_tests(importlib.import_module(f"eventlog.conformance.{name}")) for name in MODULES}
for _tests in SUITE.values():
    globals().update(_tests)


def test_every_test_of_the_suite_runs_here_under_a_name_of_its_own() -> None:
    names = [name for tests in SUITE.values() for name in tests]
    assert len(MODULES) >= 8 and len(names) >= 50
    assert len(set(names)) == len(names)
    assert all(name in globals() for name in names)
