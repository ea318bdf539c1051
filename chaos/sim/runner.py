"""The runner of simulated trials. It speaks the zygote's protocol (chaos/zygote_client.py) and is one process: nothing real is started.

    {"op": "fixed", "name": NAME, "step": STEP, "fault": FAULT, "plan": [Action ...], "seed": S, "count": K}
                                                                                       -> {"recording": R, "results": [TrialResult ...]}
    {"op": "drawn", "seed": S, "first": N, "count": K, "plan": [Action ...]}           -> {"results": [TrialResult ...]}

Of a fixed session the trials with that step and fault are run ("" for all), at most K of them (0: all) drawn by the seed, or the plan that
is given; drawn ones as they were drawn, or with the plan in place of their own.
"""

import gc
import time
from collections.abc import Callable
from functools import partial

import msgspec

from chaos.answering import Answer, answer_lines
from chaos.plan import select_trials
from chaos.results import Action, Trial, TrialResult
from chaos.sim.draw import name_fault, run_drawn
from chaos.sim.fixed import draw_fixed, enumerate_fixed, make_bench, run_fixed
from chaos.sim.naming import Name
from chaos.sim.seams import simulated
from chaos.sim.tally import Tally
from recovery.space.kernel import name_process

COLLECT_AFTER = 200
"""Trials between two collections of what greenlets and closures leave in cycles: never in the middle of one."""


class _Request(msgspec.Struct, frozen=True):
    op: str
    name: str = ""
    step: str = ""
    fault: str = ""
    plan: tuple[Action, ...] = ()
    seed: int = 0
    first: int = 1
    count: int = 0


def serve() -> None:
    """Answer until standard input ends."""
    name_process("chaos sim")
    with simulated():
        gc.collect()
        gc.freeze()
        gc.disable()
        answer_lines(_answer)


def _answer(line: bytes) -> Answer:
    request = msgspec.json.decode(line, type=_Request)
    match request.op:
        case "fixed":
            return _answer_fixed(request)
        case "drawn":
            return _answer_drawn(request)
        case other:
            return Answer(error=f"{other!r} is no request of the simulation")


def _answer_fixed(request: _Request) -> Answer:
    """The clean run of a fixed session and its trials, or the one with the plan that was given."""
    bench = make_bench(request.name)
    enumerated = enumerate_fixed(bench, prunes=not request.step and not request.plan)
    trials = tuple(draw_fixed(select_trials(enumerated.trials, request.step, request.fault), request.count, request.seed))
    if request.plan:
        known = tuple(trial for trial in trials if trial.plan == request.plan)
        trials = known or (Trial(len(enumerated.trials) + 1, request.name, request.plan, fault=name_fault(request.plan)),)
    results = [_timed(partial(run_fixed, bench, trial), number) for number, trial in enumerate(trials)]
    return Answer(recording=enumerated.recording, results=tuple(results))


def _answer_drawn(request: _Request) -> Answer:
    tally = Tally()
    for number in range(request.first, request.first + request.count):
        tally.add(_timed(partial(run_drawn, Name(request.seed, number), request.plan), number))
    return Answer(results=tally.results)


def _timed(run: Callable[[], TrialResult], number: int) -> TrialResult:
    began = time.monotonic()
    result = run()
    if number % COLLECT_AFTER == 0:
        gc.collect()
    return msgspec.structs.replace(result, seconds=time.monotonic() - began)


if __name__ == "__main__":
    serve()
