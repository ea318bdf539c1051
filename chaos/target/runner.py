"""The runner of targets. It speaks the zygote's protocol (chaos/zygote_client.py) with the target in each request in place of a scenario.

One process runs one trial at a time: everything below it belongs to that trial. Several jobs are several runners.
"""

import os
import sys
from pathlib import Path

import msgspec

from chaos.answering import Answer, answer_lines
from chaos.judging import OracleProcess
from chaos.results import Action, Trial, TrialResult, Verdict
from chaos.target.check import Checker
from chaos.target.log_check import LogCheck
from chaos.target.target import Target
from chaos.target.trial import make_transcript, record_target, run_target
from chaos.transcript import write_transcript
from recovery.space.kernel import become_subreaper, name_process


class _Request(msgspec.Struct, frozen=True):
    op: str
    target: Target
    directory: str
    trial: Trial | None = None
    prefix: tuple[Action, ...] = ()


def serve() -> None:
    """Answer until standard input ends."""
    become_subreaper()
    name_process("chaos targets")
    oracle = OracleProcess([entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")])
    try:
        answer_lines(lambda line: _answer(oracle, line))
    finally:
        oracle.close()


def _answer(oracle: OracleProcess, line: bytes) -> Answer:
    request = msgspec.json.decode(line, type=_Request)
    target, directory = request.target, Path(request.directory)
    checker = Checker(target, os.environ, LogCheck(oracle))
    match request.op, request.trial:
        case "record", _:
            recording = record_target(target, directory, os.environ, checker, request.prefix)
            _keep(target, recording.result, directory, always=False)
            return Answer(recording=recording)
        case ("trial" | "replay") as op, Trial() as trial:
            result = run_target(target, trial, directory, os.environ, checker)
            _keep(target, result, directory, always=op == "replay")
            return Answer(result=result)
        case other, _:
            return Answer(error=f"{other!r} is no request of a runner of targets")


def _keep(target: Target, result: TrialResult, directory: Path, *, always: bool) -> None:
    """Leave the transcript of a trial that did not pass in its directory, which will be kept."""
    if always or result.verdict is not Verdict.PASS:
        write_transcript(directory, make_transcript(target, result, directory))


if __name__ == "__main__":
    serve()
