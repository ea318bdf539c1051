"""Whether this machine lets the syscall level run: strace must be there, know injection, and be allowed to trace."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from chaos.syscalls.calls import Target
from chaos.syscalls.inject import build_command

PROBE_SECS = 20.0


def find_tracer() -> str | None:
    """The path of strace, None when there is none."""
    return shutil.which("strace")


def find_lack() -> str:
    """What is missing, and what to do about it; "" when the level is available. Traces one `true` to know."""
    tracer = find_tracer()
    if tracer is None:
        return "strace is not installed; install the package strace"
    with tempfile.TemporaryDirectory(prefix="chaos-probe-") as directory:
        return _probe(tracer, Path(directory) / "trace")


def _probe(tracer: str, trace: Path) -> str:
    try:
        command = build_command(tracer, str(trace), ["true"], Target("fdatasync", 1, "after"))
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PROBE_SECS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"strace does not run ({error}); install the package strace anew"
    if done.returncode == 0:
        return ""
    words = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]
    return f"strace cannot trace here ({words}); allow ptrace (a container needs the capability SYS_PTRACE), or install strace 5.0 or newer"
