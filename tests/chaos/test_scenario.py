"""Scenario files: what ships loads, JSON is a round trip, and each mistake is one sentence that names it."""

import json
import json.decoder
import os
import shutil
import stat
from pathlib import Path

import pytest

from chaos.catalogue import SCENARIOS, choose, find_files, load_mode
from chaos.drivers import base_environment
from chaos.reference import run_script
from chaos.results import Action
from chaos.scenario import KEYS, SeedEntry, from_json, load_scenario, to_json
from chaos.seed import LEAST_LIBRARY_FILES, list_library, plant_seed
from chaos.trial_set import TrialSet
from eventlog.errors import MisuseError
from recovery.session_file import load_session
from tests.helpers import read_contents

CALL = '[[call]]\ntool = "bash"\nrun = "true"\n'
CODES = {"deaths": [-9, -11, 137, 3], "time-up-exited": [5, 0], "flood": [0, -15, 0], "hung": [-9, 0]}
"""What the calls of a scenario end with, where that is not 0."""
ALL = [*find_files("ci"), SCENARIOS / "examples" / "append-and-kill.toml"]


@pytest.mark.parametrize("file", ALL, ids=lambda file: file.stem)
def test_a_shipped_scenario_survives_the_way_through_json(file: Path) -> None:
    scenario = load_scenario(file)
    assert scenario.name == file.stem
    assert from_json(json.loads(json.dumps(to_json(scenario)))) == scenario


def test_plan_and_sets_of_trials_are_read_and_survive_the_way_through_json(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(
        f"""name = "two"
{CALL}
[[plan]]
at = "shim@1:running:1"
do = "wait"
[[plan]]
do = "edit"
path = "a b"
content = ""
[[trials]]
before = "kill driver@1:decided:1"
freeze = ["shim"]
label = "settled"
[[trials]]
kill = []
sample = 3
"""
    )
    scenario = load_scenario(file)
    assert scenario.plan == (Action("shim.1@1:running:1", "wait"), Action("", "edit", path="a b", content=""))
    assert scenario.trials == (
        TrialSet((Action("driver@1:decided:1", "kill"),), freeze=("shim",), label="settled"),
        TrialSet(kill=(), sample=3),
    )
    assert from_json(json.loads(json.dumps(to_json(scenario)))) == scenario


def test_a_scenario_without_sets_of_trials_has_the_plain_one(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(f'name = "one"\n{CALL}')
    assert load_scenario(file).trials == (TrialSet(),)


def test_the_scenarios_of_ci_are_there() -> None:
    first = {"append", "odd-names", "reattach"}
    hostile = {"big", "closes-output", "deaths", "delete-all", "source-tree", "survivors", "time-up-exited"}
    assert first | hostile <= {scenario.name for scenario in load_mode("ci")}


def test_the_example_session_is_a_session() -> None:
    assert load_session(SCENARIOS / "examples" / "nightly.toml").name == "nightly"


@pytest.mark.parametrize("file", ALL, ids=lambda file: file.stem)
def test_a_shipped_scenario_runs_by_plain_means_and_notes_in_its_witness(file: Path, tmp_path: Path) -> None:
    scenario = load_scenario(file)
    place = tmp_path / "plain"
    ends = run_script(scenario, place, base_environment())
    assert [end.code for end in ends] == CODES.get(scenario.name, [0] * len(scenario.calls))
    witness = place / "witness"
    assert witness.exists() == bool(scenario.witnessed)
    assert not scenario.witnessed or witness.read_text() == "plain start\nplain end\n" * len(scenario.witnessed)
    assert not scenario.ready or (place / "outside" / scenario.ready).exists()
    shutil.rmtree(place)


def test_the_seed_of_odd_names_has_each_kind_of_thing(tmp_path: Path) -> None:
    plant_seed(load_scenario(SCENARIOS / "ci" / "odd-names.toml").seed, tmp_path)
    assert (tmp_path / "pair/first").stat().st_ino == (tmp_path / "pair/second").stat().st_ino
    assert os.readlink(tmp_path / "pointer") == "pair/first"
    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "empty").stat().st_mode) == 0o711
    assert b"caf\xe9.txt" in os.listdir(os.fsencode(tmp_path))


def test_seeds_get_their_exact_modes_and_kinds(tmp_path: Path) -> None:
    seed = (
        SeedEntry(b"closed", "directory", mode=0o500),
        SeedEntry(b"closed/file", "file", b"x", 0o4711),
        SeedEntry(b"pipe", "fifo", mode=0o622),
    )
    plant_seed(seed, tmp_path)
    assert stat.S_IMODE((tmp_path / "closed").stat().st_mode) == 0o500
    assert stat.S_IMODE((tmp_path / "closed/file").stat().st_mode) == 0o4711
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_the_library_of_a_source_tree_is_whole_plain_and_the_same_each_time(tmp_path: Path) -> None:
    seed = load_scenario(SCENARIOS / "ci" / "source-tree.toml").seed
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        plant_seed(seed, tmp_path / place)
    assert read_contents(tmp_path / "one") == read_contents(tmp_path / "two")
    library = tmp_path / "one" / "lib"
    files = [path for path in library.rglob("*") if path.is_file()]
    assert len(files) >= LEAST_LIBRARY_FILES and {path.suffix for path in files} == {".py"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}
    assert {stat.S_IMODE(path.stat().st_mode) for path in library.rglob("*") if path.is_dir()} == {0o755}
    assert (library / "json" / "decoder.py").read_bytes() == Path(json.decoder.__file__).read_bytes()


def test_a_library_that_is_not_whole_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "json" / "__pycache__").mkdir(parents=True)
    for name in ("a.py", "b.txt", "__pycache__/c.py"):
        (tmp_path / "json" / name).touch()
    with pytest.raises(MisuseError, match="has 1 of the files that .* fewer than 300; run chaos with a Python whose") as caught:
        list_library(os.fsencode(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [*KEYS, *(f"`{scenario.name}`" for scenario in load_mode("ci"))])
def test_every_key_and_every_scenario_stands_in_the_readme(name: str) -> None:
    text = (SCENARIOS / "README.md").read_text("utf-8")
    first_cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    assert any(name in cell for cell in first_cells) if name.startswith("`") else f"`{name}" in text or f"[[{name}]]" in text


def test_the_keys_that_make_a_scenario_cheap_are_read(tmp_path: Path) -> None:
    file = tmp_path / "heavy.toml"
    file.write_text(f'name = "heavy"\nneeds = ["git", "sed", "git"]\n{CALL}{CALL}')
    scenario = load_scenario(file)
    assert scenario.needs == ("git", "sed")
    file.write_text(f'name = "light"\n{CALL}')
    scenario = load_scenario(file)
    assert scenario.needs == ()


PLAN = '[[plan]]\nat = "driver@1:x:1"\ndo = "kill"\n'
MISTAKES = {
    "unknown key": (f'name = "a"\nfrob = 1\n{CALL}', "unknown key 'frob'"),
    "no name": (CALL, 'name is missing; add name = "..."'),
    "bad name": (f'name = "a b"\n{CALL}', "name 'a b' must be"),
    "no call": ('name = "a"\n', r"no \[\[call\]\] found"),
    "calls is no file name": ('name = "a"\ncalls = 3\n', "calls must be the name of a TOML file"),
    "calls not there": ('name = "a"\ncalls = "none.toml"\n', "none.toml: no such file"),
    "calls and call": (f'name = "a"\ncalls = "b.toml"\n{CALL}', "keep one"),
    "stop": (f'name = "a"\non_interrupted = "stop"\n{CALL}', "leaves a trial unfinished"),
    "on_interrupted": (f'name = "a"\non_interrupted = "retry"\n{CALL}', "unknown on_interrupted 'retry'"),
    "witnessed text": (f'name = "a"\nwitnessed = ["x"]\n{CALL}', "witnessed must be a list"),
    "witnessed too high": (f'name = "a"\nwitnessed = [1]\n{CALL}', "names call 1, but the calls are 0 to 0"),
    "witnessed write": ('name = "a"\nwitnessed = [0]\n[[call]]\ntool = "write"\npath = "a"\ncontent = ""\n', "is no bash call"),
    "gate alone": (f'name = "a"\ngate = "g"\n{CALL}', "add ready"),
    "gate elsewhere": (f'name = "a"\ngate = "../g"\nready = "r"\n{CALL}', "plain file name"),
    "flag": (f'name = "a"\ncompare_output = "yes"\n{CALL}', "must be true or false"),
    "about": (f'name = "a"\nabout = 1\n{CALL}', "about must be a string"),
    "seed tree": (f'name = "a"\nseed_tree = "big"\n{CALL}', "unknown seed_tree 'big'; use \"empty\", \"stdlib\" or"),
    "seed tree and seed": (f'name = "a"\nseed_tree = "stdlib"\n{CALL}[[seed]]\npath = "a"\nkind = "file"\n', "seed_tree is stdlib, but"),
    "seed below library": (
        f'name = "a"\n{CALL}[[seed]]\npath = "a"\nkind = "stdlib"\n[[seed]]\npath = "a/b"\nkind = "file"\n',
        "b'a' is a stdlib, so b'a/b' cannot lie below it",
    ),
    "seed library key": (f'name = "a"\n{CALL}[[seed]]\npath = "a"\nkind = "stdlib"\nmode = 1\n', "a stdlib has no 'mode'"),
    "needs text": (f'name = "a"\nneeds = "git"\n{CALL}', "needs must be a list of programs"),
    "needs a number": (f'name = "a"\nneeds = [1]\n{CALL}', "needs must be a list of programs"),
    "needs a path": (f'name = "a"\nneeds = ["/bin/git"]\n{CALL}', "needs '/bin/git' must be a program's plain name"),
    "seed kind": (f'name = "a"\n{CALL}[[seed]]\npath = "a"\nkind = "socket"\n', "seed 1: unknown kind 'socket'"),
    "seed key": (f'name = "a"\n{CALL}[[seed]]\npath = "a"\nkind = "symlink"\ncontent = ""\n', "a symlink has no 'content'"),
    "seed path": (f'name = "a"\n{CALL}[[seed]]\npath = "../a"\nkind = "file"\n', "inside the workspace"),
    "seed no path": (f'name = "a"\n{CALL}[[seed]]\nkind = "file"\n', "path is missing"),
    "seed twice": (f'name = "a"\n{CALL}' + '[[seed]]\npath = "a"\nkind = "file"\n' * 2, "seed 2: b'a' is there already"),
    "seed below file": (
        f'name = "a"\n{CALL}[[seed]]\npath = "a"\nkind = "file"\n[[seed]]\npath = "a/b"\nkind = "file"\n',
        "cannot lie below",
    ),
    "seed hard link": (f'name = "a"\n{CALL}[[seed]]\npath = "a"\nkind = "hardlink"\ntarget = "b"\n', "an earlier file"),
    "seed mode": (f'name = "a"\n{CALL}[[seed]]\npath = "a"\nkind = "file"\nmode = 99999\n', "mode must be between"),
    "plan step": (f'name = "a"\n{CALL}[[plan]]\nat = "driver:x:1"\ndo = "kill"\n', "'driver:x:1' is no step; write ROLE@EPOCH:NAME:N"),
    "plan do": (f'name = "a"\n{CALL}[[plan]]\nat = "driver@1:x:1"\ndo = "hug"\n', "unknown do 'hug'; use wait, kill, freeze"),
    "plan keys": (f'name = "a"\n{CALL}[[plan]]\nat = "driver@1:x:1"\n', "plan 1: an action is a table of strings, such as at ="),
    "plan": (f'name = "a"\nplan = 3\n{CALL}', r"plan must be \[\[plan\]\] tables"),
    "trials": (f'name = "a"\n{CALL}[[trials]]\nkill = ["drivers"]\n', "trials 1: kill must be a list of driver, spawner, shim, worker"),
    "not TOML": ("name = \n", "not valid TOML"),
}


@pytest.mark.parametrize(("text", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence_that_names_file_and_fault(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(MisuseError, match=sentence) as caught:
        load_scenario(file)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_scenario_is_chosen_by_name_or_by_file(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'name = "own"\n{CALL}')
    assert [scenario.name for scenario in choose("ci", str(file))] == ["own"]
    assert [scenario.name for scenario in choose("ci", "append")] == ["append"]
    with pytest.raises(MisuseError, match="unknown scenario 'apend'; mode ci has .*append"):
        choose("ci", "apend")


def test_two_scenarios_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("ci", "regression"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.toml").write_text(f'name = "same"\n{CALL}')
    with pytest.raises(MisuseError, match="'same' is taken by"):
        load_mode("ci", tmp_path)
