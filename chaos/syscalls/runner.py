"""The runner of the syscall level. It speaks the zygote's protocol (chaos/zygote_client.py) and starts every driver as a command.

One process runs one trial at a time: everything below it belongs to that trial, the tracer too. Several jobs are several runners.
"""

from collections.abc import Callable

from chaos.answering import Answer
from chaos.judging import OracleProcess
from chaos.serving import dispatch, serve
from chaos.syscalls.enumerate import ENTRY
from chaos.syscalls.play import record_syscalls, run_syscall_trial
from chaos.trial import Bench


def begin(oracle: OracleProcess) -> Callable[[bytes], Answer]:
    """What answers its requests."""
    bench = Bench(oracle)
    return dispatch(
        "the syscall level",
        lambda scenario, request, directory: record_syscalls(bench, scenario, directory),
        lambda scenario, request, trial, directory: run_syscall_trial(bench, scenario, trial, directory, request.converges_to),
        ENTRY,
    )


if __name__ == "__main__":
    serve("chaos syscalls", begin)
