"""A runner as a process: what becomes of the zygote before its first request, and how requests for trials of scenarios are read, the same
for every kind of trial.

It is subreaper, so that it inherits whatever outlives its trials, and has an oracle beside it. It starts no thread.
"""

import functools
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from chaos.answering import Answer, answer_lines
from chaos.judging import OracleProcess
from chaos.results import Action, Recording, Trial, TrialResult
from chaos.scenario import Scenario, from_json
from recovery.space.kernel import become_subreaper, name_process

Begin = Callable[[OracleProcess], Callable[[bytes], Answer]]


class Request(msgspec.Struct, frozen=True):
    """What is asked for: a clean run (`record`) after the actions of `prefix`, or the trial, in an empty directory."""

    op: str
    scenario: msgspec.Raw
    directory: str
    trial: Trial | None = None
    prefix: tuple[Action, ...] = ()
    converges_to: dict[str, Any] = {}
    from_zero: bool = False


Record = Callable[[Scenario, Request, Path], Recording]
Run = Callable[[Scenario, Request, Trial, Path], TrialResult]


def dispatch(what: str, record: Record, run: Run, entry: str = "", ops: tuple[str, ...] = ("trial",)) -> Callable[[bytes], Answer]:
    """What answers a line: `record` makes clean runs, `run` plays trials of the kind `entry` ("": of every kind) under one of `ops`.
    Anything else is no request of `what`, which the answer says."""

    def answer(line: bytes) -> Answer:
        request = msgspec.json.decode(line, type=Request)
        scenario, directory = _read_scenario(bytes(request.scenario)), Path(request.directory)
        match request.op, request.trial:
            case "record", _:
                return Answer(recording=record(scenario, request, directory))
            case op, Trial() as trial if op in ops and entry in ("", trial.entry):
                return Answer(result=run(scenario, request, trial, directory))
            case op, trial:
                kind = f" for a trial of the kind {trial.entry!r}" if trial else ""
                return Answer(error=f"{op!r}{kind} is no request of {what}")

    return answer


@functools.lru_cache(maxsize=64)
def _read_scenario(text: bytes) -> Scenario:
    return from_json(msgspec.json.decode(text))


def serve(name: str, begin: Begin) -> None:
    """Answer until standard input ends, by what `begin` makes of a fresh oracle. The process is called `name`, as a person sees it."""
    become_subreaper()
    name_process(name)
    oracle = OracleProcess([entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")])
    try:
        answer = begin(oracle)
        gc.collect()
        gc.freeze()  # what is here now is shared by every fork and need not be looked at again
        answer_lines(answer)
    finally:
        oracle.close()
