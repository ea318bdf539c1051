"""The simulated shell does what bash does."""

import os
import subprocess
from pathlib import Path

import pytest

from chaos.sim.plain import run_plainly
from chaos.sim.shell import parse
from chaos.sim.workloads import Workload
from eventlog.errors import MisuseError
from recovery.script import BashCall

COMMANDS = (
    "echo one >> a; echo two >> a",
    "echo one > a\necho two > a",
    "mkdir d; echo three > d/e; cat d/e",
    "echo one > a; rm a; echo \"$CALL_KEY start\"",
    "printf 'one, ' >> a; printf 'two\\n' >> a; printf '%s end\\n' \"$CALL_KEY\"; cat a",
    "echo one; exit 3; echo two > a",
    "echo one > a; cat a; mkdir d; exit",
)


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_does_in_memory_what_it_does_under_bash(text: str, tmp_path: Path) -> None:
    plain = run_plainly(Workload("one", (BashCall(text.encode()),)))
    environment = {"PATH": os.environ["PATH"], "CALL_KEY": "plain/0", "LC_ALL": "C"}
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment, capture_output=True, timeout=120, check=False)
    found = {str(path.relative_to(tmp_path)): path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}
    assert {path.decode(): node.content for path, node in plain.tree.nodes.items() if path} == found
    assert (plain.outputs[0], plain.exits[0].code) == (done.stdout, done.returncode)


@pytest.mark.parametrize("text", ["sleep 1", "echo a | cat", "echo a > b > c", "ls; echo a"])
def test_what_the_simulated_shell_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(MisuseError, match="the simulation knows"):
        parse(text.encode())
