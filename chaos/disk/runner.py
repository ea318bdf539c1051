"""The runner of the mode `disk`: the plain one, but that a clean run counts what a driver does to its disk, and no steps."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from chaos.answering import Answer
from chaos.disk import inodes
from chaos.disk.enumerate import find_next_epoch, format_counts, make_action
from chaos.disk.fault import COUNT, INODES, DiskFault
from chaos.disk.rules import count_operations, read_trace
from chaos.drivers import Place
from chaos.judging import OracleProcess
from chaos.powerloss.loops import find_lack
from chaos.results import Action, Recording, Trial, TrialResult, Verdict
from chaos.scenario import Scenario
from chaos.serving import Request, dispatch, serve
from chaos.trees import empty_tree
from chaos.trial import Bench, read_kill_mark, run_trial


def record_disk(bench: Bench, scenario: Scenario, prefix: tuple[Action, ...], directory: Path) -> Recording:
    """Two runs on a disk that only counts, the second of which is judged; its lines are `ROLE OPERATION LEAST|ROLE OPERATION MOST`."""
    count = make_action(DiskFault("", COUNT, 0, ""), find_next_epoch(prefix))
    saved = bench.saved.find_longest(scenario, prefix, directory)
    trial = Trial(0, scenario.name, (*prefix, count), fault="", saved=saved)
    place = Place(directory)
    found = []
    for number in range(2):
        if number:
            empty_tree(directory)
        result = run_trial(bench, scenario, trial, directory, {})
        found.append(count_operations(read_trace(place)))
        if not find_lack(inodes.KIND):
            copy = bench.saved.find_copy(scenario, trial.plan[:saved], directory)
            # A takeover gives back what was left behind, and may end with fewer: the first that it makes it needs all the same.
            found[-1][INODES, "take"] = max(1, inodes.count_files(place) - (inodes.count_files(Place(copy)) if copy else 0))
    lines = format_counts(found[0] & found[1], found[0] | found[1])
    result = msgspec.structs.replace(result, trial=Trial(0, scenario.name, prefix, fault="", saved=saved))
    return Recording(scenario.name, lines, result, read_kill_mark(place), prefix, saved)


def begin(oracle: OracleProcess) -> Callable[[bytes], Answer]:
    """What answers its requests."""
    bench = Bench(oracle)

    def run(scenario: Scenario, request: Request, trial: Trial, directory: Path) -> TrialResult:
        result = run_trial(bench, scenario, trial, directory, request.converges_to)
        if inodes.is_mounted(Place(directory)):
            inodes.put_back(Place(directory), keeps=result.verdict is not Verdict.PASS)
        return result

    return dispatch("the mode disk", lambda scenario, request, directory: record_disk(bench, scenario, request.prefix, directory), run)


if __name__ == "__main__":
    serve("chaos disk", begin)
