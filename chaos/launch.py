"""From a request to a finished run directory: the pieces of a campaign put together."""

import contextlib
import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from chaos.area import open_area
from chaos.campaign import Campaign, CampaignResult, Watcher
from chaos.options import Request
from chaos.plan import Enumeration, enumerate_trials
from chaos.pool import Pool
from chaos.results import TrialResult, Verdict
from chaos.rundir import Config, KnownLabel, RunDirectory, describe_scenarios
from chaos.scenario import Scenario
from chaos.zygote_client import ProcessZygote, Zygote, zygote_command
from eventlog.errors import MisuseError
from recovery.labels import NOT_ACTED_ON, Label

StartZygote = Callable[[int], Zygote]
Review = Callable[[CampaignResult], CampaignResult]


class Silent:
    """A watcher that says nothing."""

    def begin(self, phase: str, total: int) -> None:
        """Nothing to show."""

    def advance(self, result: TrialResult) -> None:
        """Nothing to show."""


def make_config(request: Request, command: str, program: str, scenario_argument: str) -> Config:
    """What `config.json` says of a request. `scenario_argument` is what was given to --scenario."""
    arguments = {scenario.name: scenario_argument or scenario.name for scenario in request.scenarios}
    return Config(
        seed=request.seed,
        mode=request.mode,
        command=command,
        program=program,
        arguments=arguments,
        jobs=request.jobs,
        started_ms=time.time_ns() // 1_000_000,
        scenarios=describe_scenarios(request.scenarios),
        engine=str(request.engine or ""),
        project=_project_version(),
        python=platform.python_version(),
        labels=tuple(KnownLabel(label.value, label not in NOT_ACTED_ON) for label in Label),
    )


def start_processes(run: RunDirectory, engine: Path | None) -> StartZygote:
    """What starts the real zygotes of a run; their standard error goes to its directory."""
    command = zygote_command(engine)
    return lambda slot: ProcessZygote(command, run.path / "zygotes" / f"{slot}.txt")


@contextlib.contextmanager
def open_pool(start: StartZygote, jobs: int) -> Iterator[Pool]:
    """Zygotes for one campaign; all have ended when this is left."""
    pool = Pool(start, jobs)
    try:
        yield pool
    finally:
        pool.close()


def run_request(request: Request, run: RunDirectory, watcher: Watcher, start: StartZygote, review: Review | None = None) -> CampaignResult:
    """Run the campaign into `run`. The verdict is returned, not written: the caller adds its summary.

    `review` may lower the verdict once every trial stands in the run directory.
    """
    with open_area() as area, open_pool(start, request.jobs) as pool:
        result = Campaign(pool, run, area, watcher).run(request.scenarios, request.limits, request.seed)
    result = review(result) if review else result
    run.history.note("campaign ended", verdict=result.verdict)
    return result


def record_steps(scenarios: Sequence[Scenario], engine: Path | None, jobs: int) -> list[Enumeration]:
    """The steps of each scenario's clean run, for `chaos list steps`. MisuseError when a clean run does not pass."""
    with open_area() as area:
        config = Config(0, "list", "chaos list steps", jobs, 0, describe_scenarios(scenarios))
        with RunDirectory(area / "run", config, time.monotonic) as run, open_pool(start_processes(run, engine), jobs) as pool:
            recordings = Campaign(pool, run, area, Silent()).record(scenarios)
    for recording in recordings:
        if recording.result.verdict is not Verdict.PASS:
            reason = recording.result.reason
            raise MisuseError(
                f"{recording.scenario}: its clean run does not pass ({reason}); chaos --scenario {recording.scenario} shows more"
            )
    return [enumerate_trials(one) for one in recordings]


def _project_version() -> str:
    try:
        return importlib.metadata.version("crashworthy")
    except importlib.metadata.PackageNotFoundError:
        return ""
