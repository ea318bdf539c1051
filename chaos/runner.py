"""The runner: answers the campaign's requests, one JSON line each (chaos/zygote_client.py has the protocol).

The runner is the zygote itself: it forks the drivers, so it sees their wait statuses, and as subreaper it inherits whatever
outlives them. It starts no thread, opens no log and runs no user code; it is forked from while it is in that state.
"""

import encodings.ascii  # noqa: F401 - else every fork imports it by itself, with the first file it opens as ASCII
import functools
import gc
import sys
from pathlib import Path
from typing import Any

import msgspec

from chaos.answering import Answer, answer_lines
from chaos.judging import OracleProcess
from chaos.results import Action, Trial
from chaos.scenario import Scenario, from_json
from chaos.trial import Bench, record_scenario, run_trial
from recovery.space.kernel import become_subreaper, name_process


class _Request(msgspec.Struct, frozen=True):
    op: str
    scenario: msgspec.Raw
    directory: str
    trial: Trial | None = None
    prefix: tuple[Action, ...] = ()
    converges_to: dict[str, Any] = {}
    from_zero: bool = False


def serve() -> None:
    """Answer until standard input ends."""
    become_subreaper()
    name_process("chaos runner")
    oracle = OracleProcess([entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")])
    bench = Bench(oracle)
    gc.collect()
    gc.freeze()  # what is here now is shared by every fork and need not be looked at again
    try:
        answer_lines(lambda line: _answer(bench, line))
    finally:
        oracle.close()


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
    serve()
