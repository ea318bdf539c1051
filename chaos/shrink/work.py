"""One shrink from a kept trial to a scenario file: flakiness first, then the search, then the proof from the written file.

What must hold: a result is called one only after its file was read back and played in a zygote that had played nothing else, and failed
alike. Else nothing is written.
"""

import shlex
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from chaos.actions import format_plan
from chaos.area import open_area
from chaos.launch import has_mounts
from chaos.results import Signature, Verdict, signature_of
from chaos.scenario import Scenario, from_json, load_scenario
from chaos.shrink import passes
from chaos.shrink.case import Case, describe, measure
from chaos.shrink.reruns import choose_tries, describe_rate
from chaos.shrink.scenario_toml import render_scenario
from chaos.shrink.shrinker import Shrinker
from chaos.shrink.trying import Bench, comes_back, count_returns
from chaos.transcript import read_transcript
from chaos.trial_set import TrialSet
from chaos.volume import NAMESPACE
from chaos.zygote_client import ProcessZygote, Zygote, zygote_command
from eventlog.errors import MisuseError

SHRINK_FORMAT = 1
ENTRIES = ("fork", "exec")
"""Kinds of trials that can be shrunk: those that the runner of steps plays."""

Say = Callable[[str], None]
Start = Callable[[Path], Zygote]
"""Starts a zygote whose standard error goes to a file."""


class Shrunk(msgspec.Struct, frozen=True):
    """The end of one shrink, as `--json` writes it. `returned` of `reruns` trials had the signature before anything was made smaller,
    `verified` of `verifications` of the written file; `file` and `command` are "" when that did not come back. `asked` cases were tried,
    `complete` tells that the time did not end the search."""

    scenario: str
    signature: Signature
    returned: int
    reruns: int
    asked: int = 0
    complete: bool = False
    verified: int = 0
    verifications: int = 0
    plan: str = ""
    actions: int = 0
    calls: int = 0
    seed_entries: int = 0
    file: str = ""
    command: str = ""
    seconds: float = 0.0
    format: int = SHRINK_FORMAT

    @property
    def is_proved(self) -> bool:
        """Whether the result was written, which it is only when it failed alike."""
        return bool(self.file)


@dataclass(frozen=True, slots=True)
class Order:
    """How a shrink is done: on which engine copy (None: the installed one), how many reruns, until when (monotonic seconds), into which
    file; `program` begins the command that runs the result."""

    engine: Path | None
    reruns: int
    deadline: float
    target: Path
    program: str


def read_case(place: Path) -> tuple[Case, Signature]:
    """The kept trial as a case, and how it failed. MisuseError for one that did not fail or is of a kind that cannot be shrunk."""
    transcript = read_transcript(place)
    result = transcript.result
    if result.trial.entry not in ENTRIES:
        raise MisuseError(f"{place}: a trial of the kind {result.trial.entry!r} cannot be shrunk, only {' and '.join(ENTRIES)} can")
    if result.verdict is not Verdict.FAIL:
        raise MisuseError(f"{place}: this trial ended {result.verdict}; only a failure can be shrunk (chaos replay {place} plays it again)")
    scenario = from_json(transcript.scenario, "the transcript's scenario")
    return make_case(replace(scenario, plan=result.trial.plan), result.trial.entry), signature_of(result)


def make_case(scenario: Scenario, entry: str) -> Case:
    """A scenario with a plan of its own as a case."""
    return Case(replace(scenario, plan=(), trials=(TrialSet(),)), scenario.plan, entry)


def shrink_one(place: Path, order: Order, say: Say, start: Start | None = None) -> Shrunk:
    """Shrink one kept trial, saying what happens. `start` makes zygotes in place of the real ones."""
    began = time.monotonic()
    case, wanted = read_case(place)
    start = start or _make_start(case.scenario, order.engine)
    say(f"SHRINK {case.scenario.name}: {describe(case)}; {wanted}")
    with open_area() as area, tempfile.TemporaryDirectory(prefix="chaos-shrink-") as errors:

        def open_bench(name: str) -> Bench:
            return Bench(lambda: start(Path(errors) / name), area / "slot-1" / "trial")

        with open_bench("search.txt") as bench:
            case, wanted = _prefer_clean_run(bench, case, wanted, say)
            returned = count_returns(bench, case, wanted, order.reruns)
            say(describe_rate("before", returned, order.reruns))
            if not returned:
                say("NOT SHRUNK: the failure did not come back, or its scenario's clean run does not pass; chaos replay plays it as it was")
                return Shrunk(case.scenario.name, wanted, 0, order.reruns, seconds=time.monotonic() - began)
            tries = choose_tries(returned, order.reruns)
            shrinker = Shrinker(
                lambda one: comes_back(bench, one, wanted, tries), measure, lambda: time.monotonic() >= order.deadline,
                lambda one: say(f"smaller: {describe(one)}; {format_plan(one.plan) or 'no plan'}"),
            )  # fmt: skip
            smallest = search(shrinker, bench, case)
        if not shrinker.is_complete:
            say("the time was up: there may be a smaller one (--budget)")
        draft = area / "draft.toml"
        draft.write_text(render_scenario(smallest, (f"Shrunk from a trial of {case.scenario.name}.", str(wanted))), "utf-8")
        times = order.reruns if returned == order.reruns else order.reruns * tries
        with open_bench("proof.txt") as bench:
            verified = count_returns(bench, make_case(load_scenario(draft), smallest.entry), wanted, times)
        say(describe_rate("after", verified, times))
        found = _conclude(smallest, wanted, (returned, order.reruns), (verified, times), shrinker, order)
        if found.is_proved:
            order.target.write_bytes(draft.read_bytes())
            say(f"SHRUNK {describe(case)} to {describe(smallest)}; {shrinker.asked} cases tried")
        else:
            say("NOT SHRUNK: what was found did not fail alike when it was played from its file; nothing was written")
        return msgspec.structs.replace(found, seconds=round(time.monotonic() - began, 2))


def _prefer_clean_run(bench: Bench, case: Case, wanted: Signature, say: Say) -> tuple[Case, Signature]:
    """The case, or its clean run where that fails by itself: a campaign would come no further."""
    clean = bench.record(case.scenario, ()) if case.plan else None
    if clean is None or clean.result.verdict is not Verdict.FAIL:
        return case, wanted
    found = signature_of(clean.result)
    say(f"its clean run fails by itself, and is shrunk in its place: {found}")
    return Case(case.scenario, ()), found


def _make_start(scenario: Scenario, engine: Path | None) -> Start:
    command = [*(NAMESPACE if has_mounts([scenario]) else ()), *zygote_command(engine)]
    return lambda log: ProcessZygote(command, log)


def search(shrinker: Shrinker[Case], bench: Bench, case: Case) -> Case:
    """The smallest case found; at last with each action at the earliest step at which it fails alike."""

    def list_steps(one: Case, place: int) -> tuple[str, ...]:
        recording = bench.record(one.scenario, one.plan[:place])
        return recording.steps if recording is not None else ()

    ways = (
        passes.fewer_actions, passes.fewer_calls, passes.smaller_tree, passes.plainer_scenario, passes.make_earlier_steps(list_steps),
        passes.shorter_calls,
    )  # fmt: skip
    return passes.move_to_earliest(shrinker.shrink(case, ways), list_steps, shrinker.consider)


def write_command(program: str, case: Case, file: Path, engine: Path | None) -> str:
    """The command that runs a shrunk scenario: its clean run and its one trial."""
    words = [*shlex.split(program), "--scenario", str(file)]
    if case.entry == "exec":
        words += ["--fault", "exec"]
    if engine is not None:
        words += ["--engine", str(engine)]
    return shlex.join([*words, "--seed", "1"])


def _conclude(
    case: Case, wanted: Signature, before: tuple[int, int], after: tuple[int, int], shrinker: Shrinker[Case], order: Order
) -> Shrunk:
    """What came of it. A failure that came back every time must do so from the file too, a flaky one at least once."""
    (returned, reruns), (verified, times) = before, after
    is_proved = verified == times if returned == reruns else verified > 0
    return Shrunk(
        scenario=case.scenario.name,
        signature=wanted,
        returned=returned,
        reruns=reruns,
        asked=shrinker.asked,
        complete=shrinker.is_complete,
        verified=verified,
        verifications=times,
        plan=format_plan(case.plan),
        actions=len(case.plan),
        calls=len(case.scenario.calls),
        seed_entries=len(case.scenario.seed),
        file=str(order.target) if is_proved else "",
        command=write_command(order.program, case, order.target, order.engine) if is_proved else "",
    )
