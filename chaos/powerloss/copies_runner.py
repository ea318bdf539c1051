"""The runner of the mode `crosscheck`. It speaks the zygote's protocol (chaos/zygote_client.py) in a mount namespace of its own."""

import encodings.ascii  # noqa: F401 - else every fork imports it by itself, with the first file it opens as ASCII
from collections.abc import Callable

from chaos.answering import Answer
from chaos.judging import OracleProcess
from chaos.powerloss.copies import ENTRY
from chaos.powerloss.crosscheck import record_copies, run_copy
from chaos.serving import dispatch, serve
from chaos.trial import Bench


def begin(oracle: OracleProcess) -> Callable[[bytes], Answer]:
    """What answers its requests."""
    bench = Bench(oracle)
    return dispatch(
        "a cross-check",
        lambda scenario, request, directory: record_copies(bench, scenario, request.prefix, directory),
        lambda scenario, request, trial, directory: run_copy(bench, scenario, trial, directory, request.converges_to),
        ENTRY,
    )


if __name__ == "__main__":
    serve("chaos crosscheck", begin)
