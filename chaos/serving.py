"""A runner as a process: what becomes of the zygote before its first request, the same for every kind of trial.

It is subreaper, so that it inherits whatever outlives its trials, and has an oracle beside it. It starts no thread.
"""

import gc
import sys
from collections.abc import Callable
from pathlib import Path

from chaos.answering import Answer, answer_lines
from chaos.judging import OracleProcess
from recovery.space.kernel import become_subreaper, name_process

Begin = Callable[[OracleProcess], Callable[[bytes], Answer]]


def serve(name: str, begin: Begin) -> None:
    """Answer until standard input ends, by what `begin` makes of a fresh oracle. The process is called `name`, as a person sees it."""
    become_subreaper()
    name_process(name)
    oracle = OracleProcess([entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")])
    try:
        answer = begin(oracle)
        gc.collect()
        gc.freeze()  # what is here now is shared by every fork and need not be looked at again
        answer_lines(answer)
    finally:
        oracle.close()
