"""What an uninterrupted run ends in, made by plain bash and plain Python without the engine: the end that exactly-once is measured
against."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.judging import OracleProcess
from chaos.scenario import Scenario
from chaos.seed import plant_seed
from recovery.script import BashCall, Call, EditCall, WriteCall


@dataclass(frozen=True, slots=True)
class Reference:
    """The end tree as the oracle lists it, and each command's output by script index."""

    listing: dict[str, Any]
    outputs: dict[str, str]


def make_reference(scenario: Scenario, directory: Path, environment: Mapping[str, str], oracle: OracleProcess) -> Reference:
    """Run the calls of a scenario plainly in `directory` (made here)."""
    work, outside = directory / "work", directory / "outside"
    work.mkdir(parents=True)
    outside.mkdir()
    plant_seed(scenario.seed, work)
    if scenario.gate:
        (outside / scenario.gate).touch()
    plain = {**environment, "WITNESS": str(directory / "witness"), "OUTSIDE": str(outside), "CALL_KEY": "plain"}
    outputs = {str(index): _run_plainly(call, work, plain) for index, call in enumerate(scenario.calls)}
    return Reference(oracle.list_tree(work), {index: output.hex() for index, output in outputs.items() if output is not None})


def _run_plainly(call: Call, work: Path, environment: Mapping[str, str]) -> bytes | None:
    match call:
        case BashCall():
            command = [b"bash", b"-c", call.run]
            done = subprocess.run(
                command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
            return done.stdout
        case WriteCall():
            _write_plainly(os.path.join(os.fsencode(work), call.path), call.content, call.mode)
        case EditCall():
            path = os.path.join(os.fsencode(work), call.path)
            with open(path, "rb") as file:
                content = file.read()
            _write_plainly(path, content.replace(call.old, call.new, 1), None)
    return None


def _write_plainly(path: bytes, content: bytes, mode: int | None) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    is_new = not os.path.lexists(path)
    with open(path, "wb") as file:
        file.write(content)
    if mode is not None or is_new:
        os.chmod(path, 0o644 if mode is None else mode)
