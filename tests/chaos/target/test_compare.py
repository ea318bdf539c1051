"""`chaos compare`: a small table end to end, what is missing is named, and a violation is told apart from a broken promise."""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from chaos import __main__ as command
from chaos import console
from chaos.results import OracleVerdict, Trial, Verdict
from chaos.target import compare as module
from chaos.target.peers import OWN, PEERS
from chaos.target.table import KINDS, Comparison, Row, find_unadmitted, make_row, render_page, render_text
from chaos.target.target import NAME
from chaos.target.workload import VIOLATIONS
from tests.chaos.fakes import make_result

ENDS = (Verdict.FAIL, Verdict.UNKNOWN)
ROW = Row("dbos", "step", "tree", 12, 0, {"ran-twice": 6, "half-applied": 2}, {"dbos": "3.4.0"})


def test_a_table_says_what_was_seen_and_what_each_driver_promises() -> None:
    text = "\n".join(render_text(Comparison("2026-01-02", 2, 1, "3.11", (ROW, Row("journal", "syscall", "tree", lack="no strace")))))
    assert "dbos     step     tree  12" in text and "journal  syscall  tree  not run: no strace" in text
    assert "dbos: DBOS, a workflow of one step each, SQLite, dbos 3.4.0. Workflows run to completion;" in text
    assert "- `ran-twice`: steps run at least once." in text and "applied-twice`" not in text


def test_a_page_has_every_kind_as_a_column_and_the_date() -> None:
    page = render_page(Comparison("2026-01-02", 2, 1, "3.11", (ROW,)))
    assert f"| driver | level | kill | kills | {' | '.join(KINDS)} | unknown |" in page and "on 2026-01-02" in page
    assert "| dbos | step | tree | 12 | 6 | 0 | 2 | 0 | 0 | 0 | 0 |" in page


def test_what_a_promise_does_not_allow_is_said_so() -> None:
    row = msgspec.structs.replace(ROW, violations={"ran-twice": 1, "step-lost": 1})
    assert find_unadmitted(row) == ["step-lost"] and find_unadmitted(ROW) == []
    assert "- `step-lost`: against its promise." in render_text(Comparison("2026-01-02", 2, 1, "3.11", (row,)))


def test_nothing_is_counted_against_a_driver_in_a_trial_that_proved_nothing() -> None:
    """Such as one whose kill did not fire: what was seen then is not what a kill does."""
    bad = OracleVerdict("step-lost", Verdict.FAIL, "step 1 is not in left")
    results = [make_result(Trial(number, NAME, ()), verdict, oracles=(bad,)) for number, verdict in enumerate(ENDS, 1)]
    row = make_row(OWN, "step", "tree", {}, results)
    assert (row.violations["step-lost"], row.unknown) == (1, 1)


def test_every_promise_has_a_source_and_every_admission_is_a_kind() -> None:
    for peer in PEERS:
        assert peer.source.startswith("https://") or (module.HOME / peer.source).exists()
        assert set(peer.admits) <= set(VIOLATIONS) and all(peer.admits.values())


def test_this_engine_admits_effects_outside_and_nothing_in_the_workspace() -> None:
    assert set(OWN.admits) == {"ran-twice"}


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (Row(OWN.name, "step", "tree", 12, 0, {"ran-twice": 6}), 0),
        (Row(OWN.name, "step", "tree", 12, 0, {"half-applied": 1}), 1),
        (Row(OWN.name, "step", "tree", 12, 1), 2),
        (Row("dbos", "step", "tree", 12, 0, {"step-lost": 1}), 0),
        (Row("dbos", "step", "tree", lack="no peers"), 0),
    ],
)
def test_the_exit_code_is_about_this_engine_and_about_what_could_not_be_judged(
    row: Row, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_run_all", lambda plan: iter([row]))
    assert console.run(command.app, ["compare", "--out", str(tmp_path / "out")]) == code


def test_a_small_comparison_runs_and_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_lack", lambda: "strace is not installed")
    arguments = ["--driver", "journal", "--driver", "dbos", "--steps", "1", "--peers", str(tmp_path / "nowhere" / "python")]
    arguments += ["--out", str(tmp_path / "out"), "--json", str(tmp_path / "found.json"), "--page", str(tmp_path / "page.md")]
    monkeypatch.setenv("PYTHONPATH", str(module.HOME))
    assert console.run(command.app, ["compare", *arguments]) == 0
    found = msgspec.json.decode((tmp_path / "found.json").read_bytes(), type=Comparison)
    journal, traced, dbos, _ = found.rows
    assert (journal.kills, journal.unknown, journal.lack) == (6, 0, "")
    assert {kind: count for kind, count in journal.violations.items() if count} == {"ran-twice": 3, "half-applied": 1, "applied-twice": 1}
    assert traced.lack == "strace is not installed"
    assert dbos.lack == "there is no python of the peers' environment; make peers-target installs it"
    assert json.loads((tmp_path / "out" / "journal-step-tree" / "verdict.json").read_text())["verdict"] == "fail"
    assert "not run: strace is not installed" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--driver", "temporal"], "--driver 'temporal' is none; there are journal, dbos,"),
        (["--steps", "0"], "--steps 0 must be at least 1"),
        (["--out", "."], ".: is not empty; give --out a new directory"),
        (["--json", "nowhere/found.json"], "--json nowhere/found.json: must be a file in a directory that exists"),
    ],
)
def test_a_mistake_is_one_sentence_and_254(
    arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "something").touch()
    monkeypatch.chdir(tmp_path)
    assert console.run(command.app, ["compare", *arguments]) == 254
    said = capsys.readouterr()
    assert why in said.err and said.err.count("\n") == 1


def test_a_python_without_the_peers_is_named(tmp_path: Path) -> None:
    dbos = next(peer for peer in PEERS if peer.name == "dbos")
    without = tmp_path / "python"
    without.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without.chmod(0o755)
    assert module._find_versions(dbos, without) == ({}, "dbos is not in the peers' environment; make peers-target installs it")
