"""What an uninterrupted run ends in, made by plain bash and plain Python without the engine: the end that exactly-once is measured
against."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from chaos.judging import OracleProcess
from chaos.needs import describe_missing
from chaos.plain import PlainCommand, PlainEnd, run_plainly
from chaos.scenario import Scenario
from chaos.seed import plant_seed
from chaos.trees import remove_tree
from eventlog.errors import MisuseError
from recovery.script import BashCall, Call, EditCall, WriteCall

Exit = dict[str, str | int | None]


@dataclass(frozen=True, slots=True)
class Reference:
    """The end tree as the oracle lists it; by script index each command's output in hex and each call's exit: `kind`, `code`, `signal`."""

    listing: dict[str, Any]
    outputs: dict[str, str]
    exits: dict[str, Exit]


def make_reference(scenario: Scenario, directory: Path, environment: Mapping[str, str], oracle: OracleProcess) -> Reference:
    """Run a scenario plainly in `directory`, which is made here and removed again: what it holds may be large, and is listed.

    Raises MisuseError, OSError.
    """
    ends = run_script(scenario, directory, environment)
    listing = oracle.list_tree(directory / "work")
    remove_tree(directory)
    outputs = {str(index): ends[index].output.hex() for index, call in enumerate(scenario.calls) if isinstance(call, BashCall)}
    return Reference(listing, outputs, {str(index): _exit_of(end) for index, end in enumerate(ends)})


def run_script(scenario: Scenario, directory: Path, environment: Mapping[str, str]) -> list[PlainEnd]:
    """Run the calls of a scenario in `work` in `directory` (made here), in order; after each one nothing of it lives.

    Raises MisuseError when a program that the scenario needs is missing: both runs would then fail alike, and prove nothing.
    """
    missing = describe_missing(scenario)
    if missing:
        raise MisuseError(f"scenario {scenario.name} is {missing}")
    work, outside = directory / "work", directory / "outside"
    work.mkdir(parents=True)
    outside.mkdir()
    plant_seed(scenario.seed, work)
    if scenario.gate:
        (outside / scenario.gate).touch()
    plain = {**environment, "WITNESS": str(directory / "witness"), "OUTSIDE": str(outside), "CALL_KEY": "plain"}
    return [_run_call(call, work, plain) for call in scenario.calls]


def _exit_of(end: PlainEnd) -> Exit:
    """An exit as the log has it."""
    if end.code < 0:
        return {"kind": "timed_out" if end.timed_out else "signaled", "code": None, "signal": -end.code}
    return {"kind": "timed_out" if end.timed_out else "exited", "code": end.code, "signal": None}


def _run_call(call: Call, work: Path, environment: Mapping[str, str]) -> PlainEnd:
    match call:
        case BashCall():
            return run_plainly(PlainCommand(call.run, work, environment, call.timeout_secs, call.stdin, call.separate))
        case WriteCall():
            _write_plainly(os.path.join(os.fsencode(work), call.path), call.content, call.mode)
            return PlainEnd(b"", 0)
        case EditCall():
            return PlainEnd(b"", _edit_plainly(os.path.join(os.fsencode(work), call.path), call.old, call.new))
        case _:
            assert_never(call)


def _edit_plainly(path: bytes, old: bytes, new: bytes) -> int:
    """Replace the single occurrence of `old`; 1 when there is not exactly one, and then nothing changes."""
    with open(path, "rb") as file:
        content = file.read()
    at = content.find(old)
    if at < 0 or content.find(old, at + 1) >= 0:
        return 1
    _write_plainly(path, content[:at] + new + content[at + len(old) :], None)
    return 0


def _write_plainly(path: bytes, content: bytes, mode: int | None) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    is_new = not os.path.lexists(path)
    with open(path, "wb") as file:
        file.write(content)
    if mode is not None or is_new:
        os.chmod(path, 0o644 if mode is None else mode)
