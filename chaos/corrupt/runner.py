"""The runner of the mode `corrupt`. It speaks the zygote's protocol (chaos/zygote_client.py); commands are forked from it, warm."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from chaos.answering import Answer
from chaos.corrupt.commands import warm_up
from chaos.corrupt.draw import ENTRY
from chaos.corrupt.play import Bases, record_base, run_damage
from chaos.judging import OracleProcess
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


def begin(oracle: OracleProcess) -> Callable[[bytes], Answer]:
    """What answers its requests; commands are warmed up before anything is forked."""
    bases = Bases(Bench(oracle))
    warm_up()
    return lambda line: _answer(bases, line)


def _answer(bases: Bases, line: bytes) -> Answer:
    request = msgspec.json.decode(line, type=_Request)
    scenario, directory = from_json(request.scenario), Path(request.directory)
    match request.op, request.trial:
        case "record", _:
            return Answer(recording=record_base(bases, scenario, request.prefix, directory))
        case "trial", Trial(entry=entry) as trial if entry == ENTRY:
            return Answer(result=run_damage(bases, scenario, trial, directory))
        case other, _:
            return Answer(error=f"{other!r} is no request of the mode corrupt")


if __name__ == "__main__":
    serve("chaos corrupt", begin)
