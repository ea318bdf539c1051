"""The runner of the syscall level. It speaks the zygote's protocol (chaos/zygote_client.py) and starts every driver as a command.

One process runs one trial at a time: everything below it belongs to that trial, the tracer too. Several jobs are several runners.
"""

import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from chaos.judging import OracleProcess
from chaos.results import Recording, Trial, TrialResult
from chaos.scenario import from_json
from chaos.syscalls.enumerate import ENTRY
from chaos.syscalls.play import record_syscalls, run_syscall_trial
from chaos.trial import Bench
from recovery.space.kernel import become_subreaper, name_process


class _Request(msgspec.Struct, frozen=True):
    op: str
    scenario: dict[str, Any]
    directory: str
    trial: Trial | None = None


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    recording: Recording | None = None
    result: TrialResult | None = None
    error: str | None = None


def serve() -> None:
    """Answer until standard input ends."""
    become_subreaper()
    name_process("chaos syscalls")
    oracle = OracleProcess([entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")])
    bench = Bench(oracle)
    try:
        for line in sys.stdin.buffer:
            sys.stdout.buffer.write(msgspec.json.encode(_answer(bench, line)) + b"\n")
            sys.stdout.buffer.flush()
    finally:
        oracle.close()


def _answer(bench: Bench, line: bytes) -> _Answer:
    try:
        request = msgspec.json.decode(line, type=_Request)
        scenario, directory = from_json(request.scenario), Path(request.directory)
        match request.op, request.trial:
            case "record", _:
                return _Answer(recording=record_syscalls(bench, scenario, directory))
            case "trial", Trial(entry=entry) as trial if entry == ENTRY:
                return _Answer(result=run_syscall_trial(bench, scenario, trial, directory))
            case other, _:
                return _Answer(error=f"{other!r} is no request of the syscall level")
    except Exception as error:  # noqa: BLE001
        # Trouble in the harness is an answer of its own kind: never a pass, and never a failure of the product.
        traceback.print_exc()
        return _Answer(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    serve()
