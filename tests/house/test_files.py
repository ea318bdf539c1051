"""What the project's files hold: no path of a machine, every package marked as typed, what ships and what the README promises."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {".git", ".venv", "chaos-runs", "__pycache__", "dist", "build"}
# Written in pieces: this file is looked at too.
MACHINE_PATHS = ["/" + "work/", "/" + "root/", "/" + "tmp/" + "probe", "/" + "home/"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def find_files() -> list[Path]:
    """The project's own files: what git knows or would add; in a tree without git, all but what tools make."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return sorted(
            ROOT / name for name in listed.stdout.decode("utf-8", "surrogateescape").split("\0") if name and (ROOT / name).is_file()
        )
    files = (file for file in ROOT.rglob("*") if file.is_file())
    return sorted(
        file
        for file in files
        if not any(part in SKIPPED or part.startswith(".") and part != ".ci" for part in file.relative_to(ROOT).parts)
    )


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {path}"
        for file in find_files()
        for text in [file.read_bytes().decode("utf-8", "replace")]
        for path in MACHINE_PATHS
        if re.search(rf"(?<![\w.]){re.escape(path)}", text)
    ]
    assert not found


@pytest.mark.parametrize("package", ["eventlog", "recovery", "chaos", "reports"])
def test_each_package_is_typed_and_ships(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    assert package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_scenarios_ship_with_the_package() -> None:
    assert "scenarios" in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_make_says_in_one_line_what_is_missing() -> None:
    done = subprocess.run(
        ["make", "-s", "test", "PYTHON=/nowhere/python3", "VENV=no-such-environment"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert done.stdout == "make: /nowhere/python3 does not run; install Python 3.11 or newer, or say make PYTHON=/path/to/python3\n"
