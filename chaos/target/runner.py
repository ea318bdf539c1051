"""The runner of targets. It speaks the zygote's protocol (chaos/zygote_client.py) with the target in each request in place of a scenario.

One process runs one trial at a time: everything below it belongs to that trial. Several jobs are several runners.
"""

import os
import sys
from pathlib import Path

import msgspec

from chaos.answering import Answer, answer_lines
from chaos.judging import OracleProcess
from chaos.results import Trial
from chaos.target.check import Checker
from chaos.target.log_check import LogCheck
from chaos.target.target import Target
from chaos.target.trial import record_target, run_target
from recovery.space.kernel import become_subreaper, name_process


class _Request(msgspec.Struct, frozen=True):
    op: str
    target: Target
    directory: str
    trial: Trial | None = None


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
            return Answer(recording=record_target(target, directory, os.environ, checker))
        case "trial", Trial() as trial:
            return Answer(result=run_target(target, trial, directory, os.environ, checker))
        case other, _:
            return Answer(error=f"{other!r} is no request of a runner of targets")


if __name__ == "__main__":
    serve()
