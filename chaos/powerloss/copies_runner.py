"""The runner of the mode `crosscheck`. It speaks the zygote's protocol (chaos/zygote_client.py) in a mount namespace of its own."""

import encodings.ascii  # noqa: F401 - else every fork imports it by itself, with the first file it opens as ASCII
import gc
import sys
from pathlib import Path
from typing import Any

import msgspec

from chaos.answering import Answer, answer_lines
from chaos.judging import OracleProcess
from chaos.powerloss.copies import ENTRY
from chaos.powerloss.crosscheck import record_copies, run_copy
from chaos.results import Action, Trial
from chaos.scenario import from_json
from chaos.trial import Bench
from recovery.space.kernel import become_subreaper, name_process


class _Request(msgspec.Struct, frozen=True):
    op: str
    scenario: dict[str, Any]
    directory: str
    trial: Trial | None = None
    prefix: tuple[Action, ...] = ()
    converges_to: dict[str, Any] = {}


def serve() -> None:
    """Answer until standard input ends."""
    become_subreaper()
    name_process("chaos crosscheck")
    oracle = OracleProcess([entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")])
    bench = Bench(oracle)
    gc.collect()
    gc.freeze()
    try:
        answer_lines(lambda line: _answer(bench, line))
    finally:
        oracle.close()


def _answer(bench: Bench, line: bytes) -> Answer:
    request = msgspec.json.decode(line, type=_Request)
    scenario, directory = from_json(request.scenario), Path(request.directory)
    match request.op, request.trial:
        case "record", _:
            return Answer(recording=record_copies(bench, scenario, request.prefix, directory))
        case "trial", Trial(entry=entry) as trial if entry == ENTRY:
            return Answer(result=run_copy(bench, scenario, trial, directory, request.converges_to))
        case other, _:
            return Answer(error=f"{other!r} is no request of a cross-check")


if __name__ == "__main__":
    serve()
