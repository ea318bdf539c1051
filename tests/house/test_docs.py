"""The docs are tested: what the code knows by name stands in its README."""

import re
from pathlib import Path

import pytest
import typer

from chaos.__main__ import app as chaos_app
from chaos.plan import FAULTS, UNREACHABLE_REASONS
from eventlog.__main__ import app as eventlog_app
from eventlog.events import EVENT_TYPES
from recovery.__main__ import app as recovery_app
from recovery.labels import NOT_ACTED_ON, Label
from recovery.words import WORDS

ROOT = Path(__file__).resolve().parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("kind", [event.kind for event in EVENT_TYPES])
def test_every_event_kind_has_a_row_in_the_format(kind: str) -> None:
    assert re.search(rf"^\| `{kind}` \|", read("eventlog/README.md"), re.MULTILINE)


@pytest.mark.parametrize("event", EVENT_TYPES, ids=lambda event: event.kind)
def test_every_field_of_an_event_stands_in_its_row(event: type) -> None:
    row = re.search(rf"^\| `{event.kind}` \|(.*)\|$", read("eventlog/README.md"), re.MULTILINE)  # type: ignore[attr-defined]
    assert row is not None
    missing = [name for name in event.__struct_fields__ if name != "at_ms" and f"`{name}`" not in row[1]]  # type: ignore[attr-defined]
    assert missing == []


@pytest.mark.parametrize("label", list(Label))
def test_every_decision_label_has_a_row_words_and_its_person_mark(label: Label) -> None:
    row = re.search(rf"^\| `{label.value}` \|(.*)\|$", read("recovery/README.md"), re.MULTILINE)
    assert row is not None and label in WORDS
    assert ("*person*" in row[1]) == (label in NOT_ACTED_ON)


def test_labels_stand_in_the_order_in_which_they_are_judged() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|", read("recovery/README.md").partition("## Decision")[2].partition("## Ledger")[0], re.MULTILINE)
    assert rows == [label.value for label in Label]


@pytest.mark.parametrize("name", [*FAULTS, *UNREACHABLE_REASONS])
def test_every_fault_and_reason_stands_in_the_readme_of_chaos(name: str) -> None:
    assert f"`{name}`" in read("chaos/README.md")


@pytest.mark.parametrize(
    ("application", "readme"),
    [(eventlog_app, "README.md"), (recovery_app, "recovery/README.md"), (chaos_app, "chaos/README.md")],
    ids=["eventlog", "recovery", "chaos"],
)
def test_every_command_stands_in_its_readme(application: typer.Typer, readme: str) -> None:
    names = [command.name or command.callback.__name__ for command in application.registered_commands if command.callback]
    names += [group.name for group in application.registered_groups if group.name]
    assert names
    assert [name for name in names if not re.search(rf"`\w+ {name}\b|^    \w+ {name}\b", read(readme), re.MULTILINE)] == []


@pytest.mark.parametrize("code", ["0", "1", "2", "254", "255"])
def test_every_exit_code_of_chaos_stands_in_its_readme(code: str) -> None:
    assert re.search(rf"^\| {code} \|", read("chaos/README.md"), re.MULTILINE)


@pytest.mark.parametrize("code", ["0", "1", "2", "70", "75", "78"])
def test_every_exit_code_of_recovery_stands_in_its_readme(code: str) -> None:
    assert re.search(rf"\b{code} (finished|try again|something to recover|a bug|a newer epoch|bad usage)", read("recovery/README.md"))


def test_every_variable_of_the_driver_contract_stands_in_its_readme() -> None:
    variables = set(re.findall(r'"(SESSION_[A-Z_]+)"', read("recovery/settings.py")))
    assert variables and [name for name in sorted(variables) if name not in read("recovery/README.md")] == []


def test_every_record_of_the_ledger_stands_in_its_readme() -> None:
    tags = re.findall(r'tag="([a-z_]+)"', read("recovery/space/records.py"))
    assert tags and [tag for tag in tags if f"`{tag}`" not in read("recovery/README.md")] == []


def test_the_readme_has_exactly_the_two_commands_of_the_makefile() -> None:
    block = read("README.md").partition("## Two commands")[2].partition("## Use it")[0]
    commands = re.findall(r"^    (make \w+)", block, re.MULTILINE)
    assert commands == ["make chaos", "make test"]
    assert re.search(r"^make test$", read(".ci/run"), re.MULTILINE) and re.search(r"^make chaos$", read(".ci/run"), re.MULTILINE)
