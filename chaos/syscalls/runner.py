"""The runner of the syscall level. It speaks the zygote's protocol (chaos/zygote_client.py) and starts every driver as a command.

One process runs one trial at a time: everything below it belongs to that trial, the tracer too. Several jobs are several runners.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from chaos.answering import Answer
from chaos.judging import OracleProcess
from chaos.results import Trial
from chaos.scenario import from_json
from chaos.serving import serve
from chaos.syscalls.enumerate import ENTRY
from chaos.syscalls.play import record_syscalls, run_syscall_trial
from chaos.trial import Bench


class _Request(msgspec.Struct, frozen=True):
    op: str
    scenario: dict[str, Any]
    directory: str
    trial: Trial | None = None
    converges_to: dict[str, Any] = {}


def begin(oracle: OracleProcess) -> Callable[[bytes], Answer]:
    """What answers its requests."""
    bench = Bench(oracle)
    return lambda line: _answer(bench, line)


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
    serve("chaos syscalls", begin)
