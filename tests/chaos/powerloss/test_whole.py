"""The whole mode: every sync point of its scenarios is accounted for, and every cut of them is recovered from. Long."""

import json
from pathlib import Path

import pytest

from chaos import __main__ as command
from chaos import console

pytestmark = pytest.mark.soak


def test_every_sync_of_every_scenario_has_a_planted_bug_or_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "syncs.json"
    assert console.run(command.app, ["list", "syncs", "--json", str(file)]) == 0
    points = json.loads(file.read_text("utf-8"))
    assert len(points) > 20
    assert [point["name"] for point in points if not point["bugs"] and not point["reason"]] == []


def test_every_state_of_every_cut_is_recovered_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = console.run(command.app, ["--mode", "powerloss", "--seed", "1", "--jobs", "2", "--out", str(tmp_path / "run")])
    assert code == 0, capsys.readouterr().out
