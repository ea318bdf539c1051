"""The check before a release: everything is run to its end, and what did not plainly pass is never counted as passed."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from chaos.catalogue import MODES

ROOT = Path(__file__).resolve().parents[2]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release_check", ROOT / ".ci" / "release_check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["release_check"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


script = load_script()
PASSES = script.Check("passes", ("sh", "-c", "echo fine; echo SUMMARY runs=3; echo PASS"))
FAILS = script.Check("fails", ("sh", "-c", "echo PLANTED caught=1 total=2; exit 1"))
UNSURE = script.Check("unsure", ("sh", "-c", "echo 'the budget ended' >&2; exit 2"))
MISUSED = script.Check("misused", ("sh", "-c", "exit 254"))
MISSING = script.Check("missing", ("/nowhere/program",))
HANGS = script.Check("hangs", ("tail", "-f", "/dev/null"), 0.2)


def run(tmp_path: Path, *checks: object, only: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    said: list[str] = []
    arguments = ["--out", str(tmp_path / "out"), *(word for name in only for word in ("--only", name))]
    return script.main(arguments, said.append, list(checks)), said


def test_a_release_passes_only_when_every_check_did(tmp_path: Path) -> None:
    code, said = run(tmp_path, PASSES, PASSES)
    assert code == 0
    assert any(line.startswith("passed   passes") and line.endswith("SUMMARY runs=3") for line in said)


def test_whatever_one_check_says_the_others_are_run_and_stand_in_the_table(tmp_path: Path) -> None:
    code, said = run(tmp_path, FAILS, MISSING, UNSURE, MISUSED, PASSES)
    assert code == 1
    assert said[-1] == "RELEASE passed=1 failed=1 unknown=3 not_run=0"
    table = {line.split()[1]: line.split()[0] for line in said[-6:-1]}
    assert table == {"fails": "FAILED", "missing": "UNKNOWN", "unsure": "UNKNOWN", "misused": "UNKNOWN", "passes": "passed"}
    assert (tmp_path / "out" / "unsure.txt").read_text() == "the budget ended\n"


@pytest.mark.parametrize("check", [UNSURE, MISUSED, MISSING, HANGS], ids=lambda check: check.name)
def test_what_concluded_nothing_is_no_pass(check: object, tmp_path: Path) -> None:
    code, _ = run(tmp_path, PASSES, check)
    assert code == 2
    assert script.exit_code_of([]) == 2


def test_a_check_that_was_left_out_is_named_and_an_unknown_one_refused(tmp_path: Path) -> None:
    code, said = run(tmp_path, PASSES, FAILS, only=("passes",))
    assert code == 0 and said[-1].endswith("not_run=1") and any(line.startswith("not run  fails") for line in said)
    code, said = run(tmp_path, PASSES, only=("pass",))
    assert (code, said) == (254, ["release-check: there is no check 'pass'; there are passes"])


def test_every_mode_the_bugs_the_level_the_simulation_and_the_soak_are_checked() -> None:
    names = [check.name for check in script.list_checks("python", 7, list(MODES))]
    assert {f"mode {mode}" for mode in MODES} <= set(names)
    assert {"suite", "planted", "planted harness", "level syscall", "soak-sim", "soak"} <= set(names)
    assert len(names) == len(set(names))


def test_the_modes_are_those_that_this_version_names() -> None:
    assert script.find_modes(sys.executable) == list(MODES)
    done = subprocess.run(["make", "-n", "release-check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "release_check.py" in done.stdout, done.stderr
