"""The engine is compiled before trials that start it as a command again and again, and only then."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from chaos.actions import parse_plan
from chaos.bytecode import compile_engine, starts_commands
from chaos.catalogue import load_mode
from chaos.planted.plant import INSTALLED
from chaos.trial_set import TrialSet
from tests.chaos.fakes import make_scenario

PERSON = TrialSet(parse_plan('kill driver@1:start:1; person "settle --rebuild"'))


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A copy of the engine without bytecode."""
    for package in ("eventlog", "recovery"):
        shutil.copytree(INSTALLED / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("changes", [{"answers": (("a", "drive"),)}, {"redriven": True}, {"trials": (PERSON,)}], ids=repr)
def test_an_engine_whose_commands_are_started_is_compiled_whole(changes: dict[str, Any], engine: Path) -> None:
    compile_engine([make_scenario(), make_scenario(**changes)], engine)
    sources = [file for package in ("eventlog", "recovery") for file in (engine / package).rglob("*.py")]
    compiled = list(engine.rglob("*.pyc"))
    assert len(compiled) == len(sources) > 100


def test_an_engine_that_is_only_forked_is_left_as_it_is(engine: Path) -> None:
    compile_engine([make_scenario()], engine)
    assert list(engine.rglob("*.pyc")) == []


def test_scenarios_with_a_person_or_a_redriver_are_known_by_it() -> None:
    names = {one.name for one in load_mode("ci") if starts_commands(one)}
    assert {"asked", "kept-writer", "redriven"} <= names and "append" not in names
