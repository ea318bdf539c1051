"""What the tests of targets share: small shell programs to be killed, and the command `chaos --target` as a process of its own."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from chaos.planted.plant import INSTALLED

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples" / "targets"
PEERS = EXAMPLES.parents[2] / ".venv-peers" / "bin" / "python"
DEADLINE_SECS = 600
"""How long a campaign of a test may take on a machine that is busy otherwise; none needs more than seconds alone."""

SOUND = """\
set -eu
if [ ! -e done ]; then
    "$CHAOS_ANNOUNCE" begin
    echo whole > "$CHAOS_STATE/new"
    "$CHAOS_ANNOUNCE" half
    mv "$CHAOS_STATE/new" done
    "$CHAOS_ANNOUNCE" end
fi
"""
"""Makes the file `done` at once, by a rename."""
TORN = """\
set -eu
echo one >> done
"$CHAOS_ANNOUNCE" half
echo two >> done
"""
"""Makes it in two parts, and begins anew on top of what is there."""
BAD_RECOVERY = """\
set -eu
if [ ! -e done ]; then
    "$CHAOS_ANNOUNCE" begin
    echo whole > "$CHAOS_STATE/new"
    mv "$CHAOS_STATE/new" done
    "$CHAOS_ANNOUNCE" end
else
    [ ! -e "$CHAOS_STATE/mended" ] || echo whole >> done
    touch "$CHAOS_STATE/mended"
    "$CHAOS_ANNOUNCE" mended
fi
"""
"""Survives one kill; killed again where it has mended what the first one left, it mends once more."""
CHECK = """[ "$(cat done)" = whole ] || { echo "done is not whole"; exit 1; }"""
TORN_CHECK = """[ "$(cat done)" = "one\ntwo" ] || { echo "done holds $(wc -l < done) lines"; exit 1; }"""


def shell(script: str) -> tuple[str, ...]:
    """The words that run a script."""
    return ("sh", "-c", script)


def run_chaos(
    cwd: Path, *arguments: str, source: Path = INSTALLED, out: str = "run", **environment: str
) -> "subprocess.CompletedProcess[str]":
    """`chaos ARGUMENTS` of the packages in `source`, with its run directory `run` in `cwd`."""
    inherited = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "chaos", *arguments, *(["--out", out] if out else [])]
    return subprocess.run(
        words, cwd=cwd, env=inherited | environment, capture_output=True, text=True, timeout=DEADLINE_SECS, check=False
    )  # fmt: skip


def target(script: str) -> list[str]:
    """The option that names a script as the target."""
    return ["--target", shlex.join(shell(script))]


def check(script: str) -> list[str]:
    """The option that names a script as its check."""
    return ["--check", shlex.join(shell(script))]
