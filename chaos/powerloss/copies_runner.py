"""The runner of the mode `crosscheck`. It speaks the zygote's protocol (chaos/zygote_client.py) in a mount namespace of its own."""

import encodings.ascii  # noqa: F401 - else every fork imports it by itself, with the first file it opens as ASCII
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from chaos.answering import Answer
from chaos.judging import OracleProcess
from chaos.powerloss.copies import ENTRY
from chaos.powerloss.crosscheck import record_copies, run_copy
from chaos.results import Action, Trial
from chaos.scenario import from_json
from chaos.serving import serve
from chaos.trial import Bench


class _Request(msgspec.Struct, frozen=True):
    op: str
    scenario: dict[str, Any]
    directory: str
    trial: Trial | None = None
    prefix: tuple[Action, ...] = ()
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
            return Answer(recording=record_copies(bench, scenario, request.prefix, directory))
        case "trial", Trial(entry=entry) as trial if entry == ENTRY:
            return Answer(result=run_copy(bench, scenario, trial, directory, request.converges_to))
        case other, _:
            return Answer(error=f"{other!r} is no request of a cross-check")


if __name__ == "__main__":
    serve("chaos crosscheck", begin)
