"""A planted bug: a data file that says which lines of the project become wrong, and who must notice.

```toml
name = "fence-skipped"            # also the file's name
about = "which invariant it breaks, and what a user would lose"
target = "engine"                 # eventlog and recovery; or "harness": chaos itself
area = "fence"                    # engine, optional: which part of the engine it breaks (AREAS)
fast = true                       # optional: one of the few of `chaos planted --fast`
halts = true                      # engine, optional: the engine's own check (exit 70) may be what stops a driver
expect = ["fencing"]              # engine: the oracles whose fail counts; harness: how the campaign may end, unknown or fail
scenario = "append"               # optional, as in chaos --scenario; a file below chaos/planted is given as scenarios/NAME.toml
step = "driver:intent.commit.before:2"   # optional, as in chaos --step; so are fault, plan and runs
fault = "kill"
runs = 3
mode = "powerloss"                # optional, as in chaos --mode

[[replace]]                       # each `old` occurs exactly once in its file
file = "eventlog/writer.py"
old = "the sound text"
new = "the wrong text"
```

A bug of the log may name a test of the shipped suite of stores (`eventlog.conformance`), one of the ledger and its processes a test of the
suite of spaces (`recovery.space.conformance`), in place of `expect` and of what a campaign runs:

```toml
conformance = "test_rule_L3_..."  # engine only: that test must fail by its own assertion
suite = "spaces"                  # optional; "stores" when absent
```

`[[given]]` tables have the form of `[[replace]]` and go into the sound copy as well: they switch off another line of defence that would
hide the bug, and the campaign must pass without that line before the bug is planted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from chaos.catalogue import check_mode
from chaos.options import Options
from chaos.syscalls.level import STEP
from eventlog.errors import MisuseError
from recovery.session_file import load_toml

Target = Literal["engine", "harness"]
Suite = Literal["stores", "spaces", "redrivers", "sessions", "checkpoints"]

HOME = Path(__file__).resolve().parent
BUGS = HOME / "bugs"
PACKAGES: Mapping[Target, tuple[str, ...]] = {
    "engine": ("eventlog", "recovery"),
    "harness": ("eventlog", "recovery", "chaos", "reports", "scenarios"),
}
"""What is copied for a target; only its own packages may be changed."""
CHANGEABLE: Mapping[Target, tuple[str, ...]] = {"engine": PACKAGES["engine"], "harness": ("chaos",)}
AREAS = (
    "fence", "takeover", "commit", "ledger", "kill", "scan", "diff", "apply", "checkpoint", "decision", "redriver", "log", "disk", "power",
    "other",
)  # fmt: skip
"""What an engine bug breaks: the fence of the log, the order of a takeover, the order of commits, ..."""
_ENDS = ("unknown", "fail")
_OF_CAMPAIGNS = ("scenario", "step", "fault", "plan", "runs", "mode")
_KEYS = {"name", "about", "target", "area", "fast", "halts", "expect", "conformance", "suite", "given", "replace", *_OF_CAMPAIGNS}


@dataclass(frozen=True, slots=True)
class Replace:
    """One change: `old`, which occurs exactly once in `file` (a path that begins with its package), becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Selection:
    """What is run to meet a bug: a campaign, by the options of `chaos` with the same names, or, when `conformance` is not empty, that
    test of `suite`; and what both copies are given."""

    target: Target
    scenario: str
    step: str
    fault: str
    plan: str
    runs: int | None
    given: tuple[Replace, ...]
    conformance: str = ""
    suite: Suite = "stores"
    mode: str = "ci"
    level: str = STEP


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug file, checked."""

    name: str
    about: str
    expect: tuple[str, ...]
    selection: Selection
    replace: tuple[Replace, ...]
    area: str = "other"
    is_fast: bool = False
    may_halt: bool = False


def load_bugs(directory: Path = BUGS) -> list[Bug]:
    """Every bug of a directory, in order of name. Raises MisuseError naming the file and the key."""
    bugs = [load_bug(file) for file in sorted(directory.glob("*.toml"))]
    if not bugs:
        raise MisuseError(f"{directory}: holds no planted bug; put a TOML file there (chaos/README.md has the form)")
    return bugs


def choose_bugs(bugs: Sequence[Bug], target: Target, names: Sequence[str], *, fast: bool = False) -> list[Bug]:
    """The bugs of these names, or all of a target when none is named; of these only the `fast` ones, when that is asked for."""
    if fast and names:
        raise MisuseError("--fast chooses the bugs, and --bug names them; leave one of the two away")
    known = {bug.name: bug for bug in bugs}
    for name in names:
        if name not in known:
            raise MisuseError(f"unknown bug {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names] or [bug for bug in bugs if bug.selection.target == target and (bug.is_fast or not fast)]


def load_bug(file: Path) -> Bug:
    """Read one bug file. Raises MisuseError naming the file and the key."""
    table = load_toml(file)
    for key in sorted(set(table) - _KEYS):
        raise MisuseError(f"{file}: unknown key {key!r}; known are {', '.join(sorted(_KEYS))}")
    name, target = _text(table, "name", file), _target(table, file)
    if name != file.stem:
        raise MisuseError(f"{file}: name {name!r} must be the name of the file, {file.stem!r}")
    changes = _replaces(table, "replace", target, file)
    if not changes:
        raise MisuseError(f"{file}: changes nothing; add a [[replace]] with file, old and new")
    given = _replaces(table, "given", target, file)
    selection = _selection(table, target, given, file)
    expect = (selection.conformance,) if selection.conformance else _expect(table, target, file)
    area, fast, halts = table.get("area", "other"), table.get("fast", False), table.get("halts", False)
    if area not in AREAS:
        raise MisuseError(f"{file}: area {area!r} is unknown; there are {', '.join(AREAS)}")
    for key, value in (("fast", fast), ("halts", halts)):
        if not isinstance(value, bool):
            raise MisuseError(f"{file}: {key} must be true or false, found {value!r}")
    return Bug(name, _text(table, "about", file), expect, selection, changes, area, fast, halts)


def campaign_options(selection: Selection) -> Options:
    """The selection as options of a campaign, all but where its files go; one seed, so that every campaign takes the same trials."""
    scenario = str(HOME / selection.scenario) if selection.scenario.endswith(".toml") else selection.scenario
    return Options(
        mode=selection.mode, level=selection.level, seed=1, runs=selection.runs, scenario=scenario,
        step=selection.step, fault=selection.fault, plan=selection.plan,
    )  # fmt: skip


def _text(table: Mapping[str, Any], key: str, file: Path) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise MisuseError(f"{file}: {key} is missing or not a string")
    return value


def _target(table: Mapping[str, Any], file: Path) -> Target:
    match table.get("target"):
        case "engine":
            return "engine"
        case "harness":
            return "harness"
        case other:
            raise MisuseError(f"{file}: target {other!r} is unknown; use engine or harness")


def _expect(table: Mapping[str, Any], target: Target, file: Path) -> tuple[str, ...]:
    value = table.get("expect")
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise MisuseError(f"{file}: expect must list names")
    if target == "harness" and not set(value) <= set(_ENDS):
        raise MisuseError(f"{file}: a harness bug may only make a campaign end {' or '.join(_ENDS)}, not {', '.join(value)}")
    return tuple(value)


def _selection(table: Mapping[str, Any], target: Target, given: tuple[Replace, ...], file: Path) -> Selection:
    words = {key: _text(table, key, file) if key in table else "" for key in ("scenario", "step", "fault", "plan")}
    runs = table.get("runs")
    if runs is not None and (type(runs) is not int or runs < 1):
        raise MisuseError(f"{file}: runs must be a number above 0, found {runs!r}")
    test = _conformance(table, target, file)
    suite = _suite(table, test, file)
    mode = check_mode(_text(table, "mode", file)) if "mode" in table else "ci"
    return Selection(target, words["scenario"], words["step"], words["fault"], words["plan"], runs, given, test, suite, mode)


def _conformance(table: Mapping[str, Any], target: Target, file: Path) -> str:
    if "conformance" not in table:
        return ""
    if target != "engine":
        raise MisuseError(f"{file}: only engine bugs are hunted by a conformance test")
    for key in ("expect", *_OF_CAMPAIGNS):
        if key in table:
            raise MisuseError(f"{file}: {key} belongs to a campaign; a bug with a conformance test has none")
    return _text(table, "conformance", file)


def _suite(table: Mapping[str, Any], test: str, file: Path) -> Suite:
    match table.get("suite", "stores"):
        case "stores":
            return "stores"
        case "spaces" if test:
            return "spaces"
        case "redrivers" if test:
            return "redrivers"
        case "sessions" if test:
            return "sessions"
        case "checkpoints" if test:
            return "checkpoints"
        case other:
            known = "stores, spaces, redrivers, sessions or checkpoints"
            raise MisuseError(f"{file}: suite {other!r} is unknown or has no conformance beside it; use {known}")


def _replaces(table: Mapping[str, Any], key: str, target: Target, file: Path) -> tuple[Replace, ...]:
    rows = table.get(key, [])
    if not isinstance(rows, list):
        raise MisuseError(f"{file}: {key} must be [[{key}]] tables")
    return tuple(_replace(row, target, f"{file}: {key} {number}") for number, row in enumerate(rows, 1))


def _replace(row: Any, target: Target, where: str) -> Replace:
    if not isinstance(row, Mapping) or set(row) != {"file", "old", "new"} or not all(isinstance(value, str) for value in row.values()):
        raise MisuseError(f"{where}: must be a table of three strings: file, old and new")
    path = Path(row["file"])
    if path.is_absolute() or ".." in path.parts or path.parts[:1] not in [(package,) for package in CHANGEABLE[target]]:
        raise MisuseError(f"{where}: {row['file']!r} lies in none of {', '.join(CHANGEABLE[target])}, which {target} bugs may change")
    if not row["old"] or row["old"] == row["new"]:
        raise MisuseError(f"{where}: old is empty or equals new")
    return Replace(row["file"], row["old"], row["new"])
