"""The runner of power losses. It speaks the zygote's protocol (chaos/zygote_client.py) and forks its drivers, as `chaos.runner` does."""

import encodings.ascii  # noqa: F401 - else every fork imports it by itself, with the first file it opens as ASCII
from collections.abc import Callable

from chaos.answering import Answer
from chaos.judging import OracleProcess
from chaos.powerloss.enumerate import ENTRY
from chaos.powerloss.play import PowerBench, record_scenario, run_cut
from chaos.serving import dispatch, serve
from chaos.trial import Bench


def begin(oracle: OracleProcess) -> Callable[[bytes], Answer]:
    """What answers its requests."""
    bench = PowerBench(Bench(oracle))
    return dispatch(
        "a power loss",
        lambda scenario, request, directory: record_scenario(bench, scenario, request.prefix, directory),
        lambda scenario, request, trial, directory: run_cut(bench, scenario, trial, directory, request.converges_to),
        ENTRY,
    )


if __name__ == "__main__":
    serve("chaos powerloss", begin)
