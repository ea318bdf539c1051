"""The table of kills stands in recovery/README as it is played."""

from pathlib import Path

import pytest

from tests.crash.kill_table import ALL, ROLES, SETS, load_steps, load_table, render_table

README = Path(__file__).resolve().parents[2] / "recovery" / "README.md"
COMMAND_STEPS = ["prepare", "starting mark", "fork", "exec", "running", "exit", "exit record", "collect"]


@pytest.mark.parametrize("call", ["command", "file"])
def test_the_table_in_the_readme_is_the_one_that_is_played(call: str) -> None:
    table = render_table(call)
    assert table in README.read_text("utf-8"), f"recovery/README, Kills, must hold:\n{table}"


def test_the_table_has_every_step_and_every_cell_of_it() -> None:
    assert list(dict.fromkeys(step.name.partition(",")[0] for step in load_steps() if step.call == "command")) == COMMAND_STEPS
    played = [(cell.step.call, cell.step.name, cell.killed, cell.boot) for cell in load_table()]
    unreachable = [(step.call, step.name, killed, "") for step in load_steps() for killed in SETS if set(killed) & step.missing.keys()]
    everything = [*played, *unreachable]
    assert len(everything) == len(set(everything)) == len(load_steps()) * (len(ROLES) + 10 + len([ALL]))
    assert all(reason for step in load_steps() for reason in step.missing.values())
