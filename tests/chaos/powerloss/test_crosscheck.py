"""The model of a disk held against real ones: sessions on ext4, xfs and btrfs whose images are copied while they are mounted."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.area import open_area
from chaos.powerloss.copies import COPIES, ENTRY, FAULT, RUNNER, enumerate_copies, required_of_copies
from chaos.powerloss.crosscheck import ORACLE, format_name, list_instants, parse_name
from chaos.powerloss.events import Event, Kind
from chaos.powerloss.loops import KINDS, copy_image, find_lack
from chaos.results import Action, Recording, Trial, TrialResult, Verdict
from chaos.volume import NAMESPACE
from chaos.zygote_client import ProcessZygote, zygote_command
from tests.chaos.fakes import make_result
from tests.chaos.powerloss.test_play import ANSWER_SECS, SCENARIO

LACKS = {kind: find_lack(kind) for kind in KINDS}
FEW = 3
"""Instants that are copied for each file system here; campaigns draw more."""


class Bench:
    """A runner, and the directory at which it mounts."""

    def __init__(self, area: Path) -> None:
        self.directory = area / "trial"
        self.directory.mkdir()
        command = [*NAMESPACE, *zygote_command(None), "--runner", RUNNER]
        self.runner = ProcessZygote(command, area / "errors.txt", ANSWER_SECS)

    def record(self) -> Recording:
        return self.runner.record(SCENARIO, (), self.empty())

    def copy(self, step: str) -> TrialResult:
        return self.runner.run(SCENARIO, Trial(1, SCENARIO.name, (Action(step, "cut"),), ENTRY, FAULT), self.empty(), {})

    def empty(self) -> Path:
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        return self.directory


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    if all(LACKS.values()):
        pytest.skip("; ".join(f"{kind}: {lack}" for kind, lack in LACKS.items()))
    with open_area() as area:
        found = Bench(area)
        yield found
        found.runner.close()


@pytest.fixture(scope="module")
def recording(bench: Bench) -> Recording:
    found = bench.record()
    assert found.result.verdict is Verdict.PASS, found.result.reason
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_real_disk_holds_is_a_state_of_the_model(kind: str, bench: Bench, recording: Recording) -> None:
    if LACKS[kind]:
        pytest.skip(f"{kind}: {LACKS[kind]}")
    names = [one for one in recording.steps if parse_name(one)[0] == kind]
    results = [bench.copy(names[len(names) * number // FEW]) for number in range(1, FEW)]
    assert [(one.verdict, one.reason) for one in results] == [(Verdict.PASS, "")] * len(results)
    for one in results:
        assert [oracle.verdict for oracle in one.oracles if oracle.oracle == ORACLE] == [Verdict.PASS]
        assert {oracle.oracle for oracle in one.oracles} >= required_of_copies(SCENARIO, one.trial.plan)
    assert sum(one.states for one in results) > 0, "no copy lacked anything of what was written: nothing was compared"


def test_an_instant_that_no_run_comes_by_is_unknown(bench: Bench, recording: Recording) -> None:
    step = next(one for one in recording.steps).rpartition(":")[0] + ":9999"
    result = bench.copy(step)
    assert result.verdict is Verdict.UNKNOWN and f"was copied at {step}" in result.reason


def test_every_file_system_that_cannot_be_had_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("chaos.powerloss.loops.PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_lack.__wrapped__("xfs").startswith("it needs mkfs.xfs, mount")


def event(kind: Kind, *, end: bool = False) -> Event:
    return Event("driver@0", kind, "ledger", "state/space/ledger", end, 0, b"", 0, 0, {}, [])


def test_instants_are_what_is_begun_and_the_ends_of_syncs() -> None:
    events = [event("look"), event("name"), event("name", end=True), event("write"), event("sync"), event("sync", end=True), event("sync")]
    assert list_instants(iter(events)) == [
        "driver@1:name.ledger:1",
        "driver@1:write.ledger:1",
        "driver@1:sync.ledger:1",
        "driver@1:sync.ledger.done:1",
        "driver@1:sync.ledger:2",
    ]


def test_names_of_instants_are_read_back() -> None:
    assert parse_name(format_name("xfs", "shim.1@1:sync.ledger.done:3")) == ("xfs", "shim.1@1:sync.ledger.done:3")
    for wrong in ("driver@1:cut.sync.ledger:1", "driver@1:copy.fat.sync.ledger:1"):
        with pytest.raises(ValueError, match="no instant at which an image is copied"):
            parse_name(wrong)


def recording_of(count: int) -> Recording:
    names = [format_name(kind, f"driver@1:write.log:{number}") for kind in KINDS for number in range(1, count + 1)]
    return Recording(SCENARIO.name, tuple(names), make_result(Trial(0, SCENARIO.name, ()), Verdict.PASS))


def test_each_stretch_of_a_run_has_one_copy_on_each_file_system_and_the_rest_is_not_drawn() -> None:
    recording = recording_of(5 * COPIES)
    made = enumerate_copies(recording, 7, 1)
    steps = [trial.plan[-1].at for trial in made.trials]
    assert len(steps) == COPIES * len(KINDS) and made.trials[0].number == 7
    for kind in KINDS:
        numbers = [int(step.rpartition(":")[2]) - 1 for step in steps if parse_name(step)[0] == kind]
        assert [number // 5 for number in numbers] == list(range(COPIES))
    assert {*steps, *(one.step for one in made.unreachable)} == set(recording.steps)
    assert {one.reason for one in made.unreachable} == {"not drawn"}
    other = [trial.plan[-1].at for trial in enumerate_copies(recording, 7, 2).trials]
    assert other != steps and [trial.plan[-1].at for trial in enumerate_copies(recording, 7, 1).trials] == steps


def test_a_step_chooses_one_whether_drawn_or_not() -> None:
    recording = recording_of(5 * COPIES)
    step = recording.steps[17]
    assert [trial.plan[-1].at for trial in enumerate_copies(recording, 1, 1, step).trials] == [step]


def test_a_copy_is_the_same_as_its_image_and_the_first_one_stays(tmp_path: Path) -> None:
    image, copy = tmp_path / "image", tmp_path / "copy"
    with open(image, "wb") as file:
        file.truncate(3 << 20)
        file.seek(2 << 20)
        file.write(b"text")
    copy_image(image, copy)
    assert copy.read_bytes() == image.read_bytes()
    image.write_bytes(b"later")
    copy_image(image, copy)
    assert copy.stat().st_size == 3 << 20
