"""The runner: answers the campaign's requests, one JSON line each (chaos/zygote_client.py has the protocol).

The runner is the zygote itself: it forks the drivers, so it sees their wait statuses, and as subreaper it inherits whatever
outlives them. It starts no thread, opens no log and runs no user code; it is forked from while it is in that state.
"""

import encodings.ascii  # noqa: F401 - else every fork imports it by itself, with the first file it opens as ASCII
from collections.abc import Callable
from pathlib import Path

import msgspec

from chaos.answering import Answer
from chaos.judging import OracleProcess
from chaos.results import Trial, TrialResult
from chaos.scenario import Scenario
from chaos.serving import Request, dispatch, serve
from chaos.trial import Bench, record_scenario, run_trial

REPLAY = "replay"


def begin(oracle: OracleProcess) -> Callable[[bytes], Answer]:
    """What answers its requests."""
    bench = Bench(oracle)

    def run(scenario: Scenario, request: Request, trial: Trial, directory: Path) -> TrialResult:
        chosen = msgspec.structs.replace(trial, saved=0) if request.from_zero else trial
        return run_trial(bench, scenario, chosen, directory, request.converges_to, transcribe=request.op == REPLAY)

    return dispatch(
        "a runner of trials",
        lambda scenario, request, directory: record_scenario(bench, scenario, request.prefix, directory),
        run,
        ops=("trial", REPLAY),
    )


if __name__ == "__main__":
    serve("chaos runner", begin)
