"""The runner of the syscall level. It speaks the zygote's protocol (chaos/zygote_client.py) and starts every driver as a command.

One process runs one trial at a time: everything below it belongs to that trial, the tracer too. Several jobs are several runners.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

from chaos.answering import Answer, answer_lines
from chaos.judging import OracleProcess
from chaos.results import Trial
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
    converges_to: dict[str, Any] = {}


def serve() -> None:
    """Answer until standard input ends."""
    become_subreaper()
    name_process("chaos syscalls")
    oracle = OracleProcess([entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")])
    bench = Bench(oracle)
    try:
        answer_lines(lambda line: _answer(bench, line))
    finally:
        oracle.close()


def _answer(bench: Bench, line: bytes) -> Answer:
    request = msgspec.json.decode(line, type=_Request)
    scenario, directory = from_json(request.scenario), Path(request.directory)
    match request.op, request.trial:
        case "record", _:
            return Answer(recording=record_syscalls(bench, scenario, directory))
        case "trial", Trial(entry=entry) as trial if entry == ENTRY:
            return Answer(result=run_syscall_trial(bench, scenario, trial, directory, request.converges_to))
        case other, _:
            return Answer(error=f"{other!r} is no request of the syscall level")


if __name__ == "__main__":
    serve()
