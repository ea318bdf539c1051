"""What the tests of the syscall level share: whether it can run here, and its runner as a zygote."""

import os
import sys
from pathlib import Path

import pytest

from chaos.results import Action, Trial, TrialResult
from chaos.scenario import Scenario
from chaos.syscalls.available import find_lack
from chaos.syscalls.level import ANSWER_SECS, RUNNER
from chaos.zygote_client import ProcessZygote, zygote_command
from recovery.script import BashCall
from tests.chaos.fakes import make_scenario

LACK = find_lack()
needs_strace = pytest.mark.skipif(bool(LACK), reason=f"the syscall level is unavailable here: {LACK}")
WITNESSED = b"""printf '%s start\\n' "$CALL_KEY" >> "$WITNESS"; echo one >> one.txt; printf '%s end\\n' "$CALL_KEY" >> "$WITNESS" """


def start_runner(log: Path) -> ProcessZygote:
    """The runner of the syscall level. The caller closes it."""
    return ProcessZygote([*zygote_command(None), "--runner", RUNNER], log, ANSWER_SECS)


def witnessed_scenario() -> Scenario:
    """Two commands: a driver that died after the first outcome has acknowledged something."""
    return make_scenario(calls=(BashCall(WITNESSED), BashCall(b"echo two >> two.txt")), witnessed=(0,))


def kill_at(runner: ProcessZygote, directory: Path, step: str) -> TrialResult:
    """The result of one trial that kills at `step`."""
    trial = Trial(1, "small", (Action(step, "kill"),), "syscall", "syscall")
    return runner.run(witnessed_scenario(), trial, directory, {})


def put_first(directory: Path, text: str) -> str:
    """A PATH on which `strace` is the shell script `text`."""
    directory.mkdir()
    script = directory / "strace"
    script.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    script.chmod(0o755)
    return os.pathsep.join([str(directory), os.environ["PATH"]])


def chaos_command(*arguments: str) -> list[str]:
    """`chaos ARGUMENTS` as a process of its own."""
    return [sys.executable, "-m", "chaos", *arguments]
