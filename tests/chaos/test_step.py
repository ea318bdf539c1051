"""Steps: names round-trip, what is none is refused with the form, and at which of them a lock is held is known."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.step import Step, format_step, holds_lock, lock_of, parse_short_step, parse_step, role_of
from eventlog.errors import MisuseError
from tests.chaos.strategies import steps


@settings(deadline=None)
@given(steps)
def test_a_step_survives_being_written_and_read(step: Step) -> None:
    assert parse_step(format_step(step)) == step


@settings(deadline=None)
@given(steps)
def test_a_step_in_full_is_read_alike_from_a_person(step: Step) -> None:
    assert parse_short_step(format_step(step)) == step


def test_shim_alone_is_the_first_shim() -> None:
    assert format_step(parse_step("shim@2:start:1")) == "shim.1@2:start:1"


def test_a_person_may_leave_the_epoch_away() -> None:
    assert format_step(parse_short_step("shim:start:3")) == "shim.1@1:start:3"
    assert format_step(parse_short_step("driver@2:start:3")) == "driver@2:start:3"


@pytest.mark.parametrize(
    "text", ["", "driver", "driver@0:a:1", "driver@1:a:0", "driver@1::1", "command@1:a:1", "shim.0@1:a:1", "driver@1:a:1 ", "driver@1:A:1"]
)
@pytest.mark.parametrize("parse", [parse_step, parse_short_step])
def test_what_is_no_step_is_refused_with_the_form(text: str, parse: object) -> None:
    assert callable(parse)
    with pytest.raises(MisuseError, match="^here: .* is no step; write ROLE@EPOCH:NAME:N"):
        parse(text, "here")


@settings(deadline=None)
@given(st.integers(1, 99))
def test_every_shim_has_the_role_of_a_shim(number: int) -> None:
    assert role_of(parse_step(f"shim.{number}@1:start:1")) == "shim"
    assert role_of(parse_step(f"driver@{number}:start:1")) == "driver"


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("outcome.commit.locked", True),
        ("floor.commit.locked", True),
        ("outcome.commit.before", False),
        ("outcome.commit.after", False),
        ("intent.commit.before", False),
        ("ledger.start.before", False),
        ("ledger.start.append.before", True),
        ("ledger.start.append.unsynced", True),
        ("ledger.start.append.after", False),
        ("ledger.proved_dead.append.unsynced", True),
        ("ledger.seal.tail.before", True),
        ("ledger.seal.tail.after", True),
        ("ledger.compact.before", False),
        ("ledger.compact.write.half", True),
        ("ledger.compact.rename.after", True),
        ("ledger.leftover.unlink.before", True),
        ("ledger.create.sync.before", False),
        ("ledger.create.append.before", False),
        ("holder.write.half", True),
        ("holder.rename.before", True),
        ("start", False),
        ("running", False),
        ("decided", False),
        ("file.rename.before", False),
    ],
)
def test_where_a_lock_is_held_is_known(name: str, held: bool) -> None:
    assert holds_lock(Step("driver", 1, name, 1)) is held
    assert holds_lock(Step("shim.1", 2, name, 3)) is held


def test_the_lock_that_is_held_is_known_by_name() -> None:
    named = {
        "floor.commit.locked": "log",
        "ledger.start.append.before": "ledger",
        "ledger.seal.tail.after": "ledger",
        "holder.rename.before": "registry",
        "ledger.create.sync.before": "",
    }
    assert {name: lock_of(Step("driver", 1, name, 1)) for name in named} == named


def test_a_redriver_has_no_epoch_and_nobody_else_is_without_one() -> None:
    assert format_step(parse_step("redriver@0:redrive.told:1")) == "redriver@0:redrive.told:1"
    for text in ("redriver@1:redrive.told:1", "driver@0:decided:1"):
        with pytest.raises(MisuseError):
            parse_step(text)
