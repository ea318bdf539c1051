"""Run as the first process of a pid namespace: a session is crashed, and its pids are given to strangers before it is driven again.

`python reused_pids.py SESSION STATE MARK WITNESS`. Prints one JSON object: the drive's exit code, what it said, and whether the strangers
(a process, a process group under its number) live.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WAIT_SECS = 60.0


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECS
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"waited {WAIT_SECS} s for {path}"
        time.sleep(0.01)


def start_stranger(pid: int) -> "subprocess.Popen[bytes]":
    """A process with exactly this pid, leading a group of its own."""
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        process = subprocess.Popen(["sleep", "300"], process_group=0)
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
    raise AssertionError(f"pid {pid} was not given again")


def recorded_pids(state: Path) -> list[int]:
    """The pids of shims, first processes and helpers in the ledger."""
    found = []
    for line in (state / "space" / "ledger").read_text().splitlines():
        record = json.loads(line.partition(" ")[2])
        found += [record[name]["pid"] for name in ("identity", "first") if isinstance(record.get(name), dict)]
    return sorted(set(found))


def reap_all() -> None:
    """Everything of the session ends, and its numbers are free."""
    deadline = time.monotonic() + WAIT_SECS
    while any(name.isdigit() and int(name) != os.getpid() for name in os.listdir("/proc")):
        assert time.monotonic() < deadline
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    os.kill(int(name), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.005)


def main(session: str, state: str, mark: str, witness: str) -> None:
    environment = {**os.environ, "SESSION_KILL_MARK": mark}
    command = [sys.executable, "-m", "recovery"]
    subprocess.Popen([*command, "run", session], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(Path(witness))
    reap_all()
    strangers = [start_stranger(pid) for pid in recorded_pids(Path(state))]
    done = subprocess.run([*command, "drive", state], env=environment, capture_output=True, text=True, check=False)
    alive = [stranger.poll() is None for stranger in strangers]
    print(json.dumps({"code": done.returncode, "said": done.stderr, "alive": alive}))


if __name__ == "__main__":
    main(*sys.argv[1:])
