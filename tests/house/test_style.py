"""ruff and strict mypy are clean."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    run("ruff", "check", "--no-cache", ".")


def test_mypy_strict_finds_nothing(tmp_path: Path) -> None:
    run("mypy", "--cache-dir", str(tmp_path))
