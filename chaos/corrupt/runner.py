"""The runner of the mode `corrupt`. It speaks the zygote's protocol (chaos/zygote_client.py); commands are forked from it, warm."""

from collections.abc import Callable

from chaos.answering import Answer
from chaos.corrupt.commands import warm_up
from chaos.corrupt.draw import ENTRY
from chaos.corrupt.play import Bases, record_base, run_damage
from chaos.judging import OracleProcess
from chaos.serving import dispatch, serve
from chaos.trial import Bench


def begin(oracle: OracleProcess) -> Callable[[bytes], Answer]:
    """What answers its requests; commands are warmed up before anything is forked."""
    bases = Bases(Bench(oracle))
    warm_up()
    return dispatch(
        "the mode corrupt",
        lambda scenario, request, directory: record_base(bases, scenario, request.prefix, directory),
        lambda scenario, request, trial, directory: run_damage(bases, scenario, trial, directory),
        ENTRY,
    )


if __name__ == "__main__":
    serve("chaos corrupt", begin)
