"""How a process that becomes a driver is started: without what few drivers need, and without `site` where nothing is lost by that."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from recovery.redrive.starting import idle_command

ROOT = Path(__file__).resolve().parents[3]
STANDARD = [finder for finder in sys.meta_path if getattr(finder, "__module__", "").startswith("_frozen")]
RARE = {
    "dataclasses", "inspect", "locale", "pathlib", "shlex", "shutil", "subprocess", "tokenize", "tomllib", "traceback",
    "eventlog.bundle_format", "recovery.checkpoints.directory", "recovery.new_ledger", "recovery.space.unlisted",
}  # fmt: skip
"""What a driver imports where it needs it: each was once part of every start."""


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """As a redriver has it that nothing but the interpreter's own finders and paths serves; its environment."""
    for name in ("sitecustomize", "usercustomize"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def imported(command: list[str], environment: dict[str, str], where: Path) -> set[str]:
    """The modules of a process that was started so, found by its idle end."""
    told = subprocess.run(
        [*command[:1], "-X", "importtime", *command[1:]], cwd=where, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return {line.rpartition("|")[2].strip() for line in told.stderr.splitlines() if line.startswith("import time:")}


def test_a_start_imports_nothing_that_few_drivers_need_and_no_site(plain: dict[str, str], tmp_path: Path) -> None:
    found = imported(idle_command(STANDARD, plain), plain, tmp_path)
    assert "recovery.driver.entry" in found, "the process waits with all that a driver is made of"
    assert RARE & found == set() and "site" not in found


@pytest.mark.parametrize("why", ["another finder", "coverage", "sitecustomize"])
def test_site_stays_where_paths_do_not_say_all(plain: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "-S" in idle_command(STANDARD, plain)
    finders: list[object] = list(STANDARD)
    if why == "another finder":
        finders.append(type("Finder", (), {"__module__": "__editable___of_somebody"}))
    elif why == "coverage":
        plain["COVERAGE_PROCESS_START"] = "x"
    else:
        monkeypatch.setitem(sys.modules, "sitecustomize", sys)
    command = idle_command(finders, plain)
    assert command == [sys.executable, "-m", "recovery.redrive.idle"]
    plain.pop("COVERAGE_PROCESS_START", None)
    assert "site" in imported(command, {**plain, "PYTHONPATH": str(ROOT)}, tmp_path)


def test_site_stays_where_the_package_is_in_an_archive(plain: dict[str, str], tmp_path: Path) -> None:
    """A file in an archive is none that the interpreter could be given, and every start would end at once."""
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("eventlog", "recovery"):
            for path in sorted((ROOT / name).rglob("*.py")):
                file.write(path, path.relative_to(ROOT))
    ask = "import json, os, sys; from recovery.redrive.starting import idle_command; print(json.dumps(idle_command((), os.environ)))"
    inside = {**plain, "PYTHONPATH": os.pathsep.join([str(archive), *(path for path in sys.path if path and path != str(ROOT))])}
    told = subprocess.run([sys.executable, "-c", ask], cwd=tmp_path, env=inside, capture_output=True, text=True, timeout=120, check=True)
    assert "recovery.driver.entry" in imported(json.loads(told.stdout), inside, tmp_path)


def test_a_start_looks_for_modules_where_its_redriver_does(plain: dict[str, str]) -> None:
    command = idle_command(STANDARD, plain)
    assert command[command.index("-P") + 2 :] == [os.path.abspath(path) for path in sys.path]
