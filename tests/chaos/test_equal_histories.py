"""Twenty equal runs, through the real runner, have one history digest; and with anything taken off the list of what is volatile they
have not, so that the list is complete and minimal.

The trials chosen cannot race. In the clean run nothing can. The shim is killed when its command has ended and no exit is recorded yet:
its driver finds it lost and ends, and whenever the successor looks, the attempt has started, has no exit and never will. A kill of the
driver while its command runs would not do: the successor reattaches or adopts, as the exit is recorded before or after it looks, and the
label rightly shows which.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.oracle.history_digest import VOLATILE, history_digest, normalised_events
from chaos.oracle.load import load_log
from chaos.oracle.values import Event, Stream
from chaos.results import Action, Trial, Verdict
from chaos.scenario import Scenario, load_scenario
from chaos.zygote_client import ProcessZygote, zygote_command

ROOT = Path(__file__).resolve().parents[2]
TIMES = 20
PLANS = {"clean": (), "shim killed": (Action("shim.1@1:ended:1", "kill"),)}
OF_ANOTHER_BOOT = frozenset({"boot_id"})
"""What only a restart of the machine changes."""
Run = tuple[str, Stream]


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessZygote]:
    zygote = ProcessZygote(zygote_command(None), tmp_path_factory.mktemp("zygote") / "errors.txt")
    yield zygote
    zygote.close()


@pytest.fixture(scope="module", params=PLANS)
def runs(request: pytest.FixtureRequest, zygote: ProcessZygote, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The log id and the stream of each of the equal runs."""
    scenario = load_scenario(ROOT / "scenarios" / "ci" / "append.toml")
    return [run_once(zygote, scenario, PLANS[request.param], tmp_path_factory.mktemp("run")) for _ in range(TIMES)]


def run_once(zygote: ProcessZygote, scenario: Scenario, plan: tuple[Action, ...], directory: Path) -> Run:
    """Run a trial, which must pass, and read its log."""
    result = zygote.run(scenario, Trial(1, scenario.name, plan), directory, {})
    assert result.verdict is Verdict.PASS, result.reason
    scratch = directory / "read"
    scratch.mkdir()
    log = load_log(str(directory / "state" / "log.sqlite"), str(scratch))
    shutil.rmtree(directory)
    return log.log_id, log.streams[scenario.name]


def digests(runs: list[Run], volatile: frozenset[str] = VOLATILE) -> set[str | None]:
    """The different digests of some runs."""
    return {history_digest(normalised_events(log_id, stream, volatile)) for log_id, stream in runs}


def as_of_another_boot(run: Run) -> Run:
    """A run as it would be recorded after a restart of the machine."""
    log_id, stream = run
    return log_id, replace(stream, events=tuple(map(rebooted, stream.events)))


def rebooted(event: Event) -> Event:
    payload = dict(event.payload)
    if "boot_id" in payload:
        payload["boot_id"] = "another"
    if "identity" in payload:
        payload["identity"] = payload["identity"] | {"boot_id": "another"}
    return replace(event, payload=payload)


def test_twenty_equal_runs_have_one_digest(runs: list[Run]) -> None:
    assert len(runs) == TIMES
    found = digests(runs)
    assert len(found) == 1 and None not in found


def test_a_restart_of_the_machine_changes_no_digest(runs: list[Run]) -> None:
    assert digests([as_of_another_boot(run) for run in runs]) == digests(runs)


@pytest.mark.parametrize("name", sorted(VOLATILE))
def test_nothing_on_the_list_could_be_left_off(runs: list[Run], name: str) -> None:
    compared = [runs[0], as_of_another_boot(runs[1])] if name in OF_ANOTHER_BOOT else runs
    assert len(digests(compared, VOLATILE - {name})) > 1


def test_the_clean_run_and_the_other_differ_although_they_end_alike(zygote: ProcessZygote, tmp_path: Path) -> None:
    scenario = load_scenario(ROOT / "scenarios" / "ci" / "append.toml")
    made = []
    for number, plan in enumerate(PLANS.values()):
        (tmp_path / str(number)).mkdir()
        made.append(run_once(zygote, scenario, plan, tmp_path / str(number)))
    assert len(digests(made)) == 2
    assert len({stream.fold.roots[-1] for _, stream in made}) == 1
