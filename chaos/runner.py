"""The runner: answers the campaign's requests, one JSON line each (chaos/zygote_client.py has the protocol).

The runner is the zygote itself: it forks the drivers, so it sees their wait statuses, and as subreaper it inherits whatever
outlives them. It starts no thread, opens no log and runs no user code; it is forked from while it is in that state.
"""

import encodings.ascii  # noqa: F401 - else every fork imports it by itself, with the first file it opens as ASCII
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from chaos.answering import Answer
from chaos.judging import OracleProcess
from chaos.results import Action, Trial
from chaos.scenario import Scenario, from_json
from chaos.serving import serve
from chaos.trial import Bench, record_scenario, run_trial


class _Request(msgspec.Struct, frozen=True):
    op: str
    scenario: msgspec.Raw
    directory: str
    trial: Trial | None = None
    prefix: tuple[Action, ...] = ()
    converges_to: dict[str, Any] = {}
    from_zero: bool = False


def begin(oracle: OracleProcess) -> Callable[[bytes], Answer]:
    """What answers its requests."""
    bench = Bench(oracle)
    return lambda line: _answer(bench, line)


@functools.lru_cache(maxsize=64)
def _read_scenario(text: bytes) -> Scenario:
    return from_json(msgspec.json.decode(text))


def _answer(bench: Bench, line: bytes) -> Answer:
    request = msgspec.json.decode(line, type=_Request)
    scenario = _read_scenario(bytes(request.scenario))
    match request.op, request.trial:
        case "record", _:
            return Answer(recording=record_scenario(bench, scenario, request.prefix, Path(request.directory)))
        case "trial", Trial() as trial:
            return Answer(result=run_trial(bench, scenario, trial, Path(request.directory), request.converges_to))
        case "replay", Trial() as trial:
            chosen = msgspec.structs.replace(trial, saved=0) if request.from_zero else trial
            return Answer(result=run_trial(bench, scenario, chosen, Path(request.directory), request.converges_to, transcribe=True))
        case other, _:
            return Answer(error=f"unknown request {other!r}")


if __name__ == "__main__":
    serve("chaos runner", begin)
