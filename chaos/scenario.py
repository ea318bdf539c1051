"""Scenarios: one scripted session and what is done to it, read from TOML (keys: scenarios/README.md).

A scenario is a value. It goes to a zygote and into a run directory as JSON (`to_json`, `from_json`: a round trip), so that neither
reads the file again. Every malformed thing is a MisuseError of one sentence: file, place, what to write instead.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from chaos.actions import action_from_json, action_to_json
from chaos.results import Action
from chaos.trial_set import TrialSet, parse_trial_sets, trial_set_to_json
from eventlog.errors import MisuseError
from eventlog.events import Limits, Mode
from eventlog.show import encode_bytes
from eventlog.values import SESSION_NAME
from recovery.script import (
    BashCall,
    Call,
    OnInterrupted,
    call_from_json,
    call_to_json,
    decode_bytes,
    parse_calls,
    parse_on_interrupted,
)
from recovery.session_file import load_toml, parse_bound, parse_limits, parse_mode
from recovery.workspace.profile import Profile, parse_profile

_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*\Z")

SeedKind = Literal["file", "directory", "symlink", "hardlink", "fifo", "stdlib"]

LIBRARY_PLACE = b"lib"
"""Where `seed_tree = "stdlib"` puts its copy: below the root, so that no command imports from it by chance."""

KEYS = (
    "name",
    "about",
    "on_interrupted",
    "exclude",
    "needs",
    "seed",
    "seed_tree",
    "call",
    "calls",
    "witnessed",
    "ready",
    "gate",
    "compare_output",
    "plan",
    "trials",
    "answers",
    "redriven",
    "ahead",
    "mount",
    "mode",
    "lost_work_bound",
    "limits",
)
"""What a scenario file may hold at its top; `calls` stands for [[call]] tables."""
_SEED_KEYS: dict[SeedKind, tuple[str, ...]] = {
    "file": ("content", "mode"),
    "directory": ("mode",),
    "symlink": ("target",),
    "hardlink": ("target",),
    "fifo": ("mode",),
    "stdlib": (),
}


@dataclass(frozen=True, slots=True)
class SeedEntry:
    """One entry of the workspace before the session. `target`: a symlink's text, or the earlier file a hard link names.

    A `stdlib` is a whole directory: a copy of packages of the running Python's standard library (chaos/seed.py).
    """

    path: bytes
    kind: SeedKind
    content: bytes = b""
    mode: int = 0o644
    target: bytes = b""


@dataclass(frozen=True, slots=True)
class Modes:
    """Where the session keeps its images: `transactional`, `checkpoint` or `auto`, with what belongs to it (recovery/README, "Modes")."""

    mode: Mode = "transactional"
    lost_work_bound: int = 0
    limits: Limits | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario file, checked.

    `witnessed` are indexes of `calls` from 0. `ready` and `gate` are file names in the trial's outside directory ("" for none): a
    command makes `ready` when it waits, the runner makes `gate` to let it go on. A `plan` of its own makes it one trial, else `trials`
    say which there are. `needs` are programs without which it is unavailable (chaos/needs.py); `profile` is what the session leaves out.
    `answers` are what a person does after a driver that ended with 78: words of its last line, and the command of `recovery` for them.
    With `redriven` a redriver starts every driver but the first, and with `ahead` it counts each next start ahead; with `mount` the
    workspace is a file system of its own.
    """

    name: str
    about: str
    on_interrupted: OnInterrupted
    seed: tuple[SeedEntry, ...]
    calls: tuple[Call, ...]
    witnessed: tuple[int, ...]
    ready: str
    gate: str
    compare_output: bool
    plan: tuple[Action, ...]
    trials: tuple[TrialSet, ...] = (TrialSet(),)
    needs: tuple[str, ...] = ()
    profile: Profile = field(default_factory=Profile)
    answers: tuple[tuple[str, str], ...] = ()
    redriven: bool = False
    ahead: bool = False
    mount: bool = False
    modes: Modes = Modes()


def load_scenario(file: Path) -> Scenario:
    """Read a scenario file. `calls = "FILE"` is relative to it."""
    table = load_toml(file)
    if isinstance(table.get("calls"), str):
        if "call" in table:
            raise MisuseError(f"{file}: has both calls and [[call]]; keep one")
        calls_file = file.parent / table["calls"]
        calls = parse_calls(load_toml(calls_file).get("call"), str(calls_file))
    elif "calls" in table:
        raise MisuseError(f'{file}: calls must be the name of a TOML file, such as calls = "nightly.toml"')
    else:
        calls = parse_calls(table.get("call"), str(file))
    return _parse(table, calls, str(file))


def to_json(scenario: Scenario) -> dict[str, Any]:
    """The scenario as a JSON object, self-contained."""
    return {
        "name": scenario.name,
        "about": scenario.about,
        "on_interrupted": scenario.on_interrupted,
        "seed": [_seed_to_json(entry) for entry in scenario.seed],
        "call": [call_to_json(call) for call in scenario.calls],
        "witnessed": list(scenario.witnessed),
        "ready": scenario.ready,
        "gate": scenario.gate,
        "compare_output": scenario.compare_output,
        "plan": [action_to_json(action) for action in scenario.plan],
        "trials": [trial_set_to_json(one) for one in scenario.trials],
        "needs": list(scenario.needs),
        "exclude": list(scenario.profile.excludes),
        "answers": dict(scenario.answers),
        "redriven": scenario.redriven,
        "ahead": scenario.ahead,
        "mount": scenario.mount,
        **_modes_to_json(scenario.modes),
    }


def from_json(table: Mapping[str, Any], where: str = "scenario") -> Scenario:
    """The inverse of `to_json`."""
    calls = tuple(call_from_json(call, f"{where}: call {number}") for number, call in enumerate(table["call"], 1))
    return _parse(table, calls, where)


def _parse(table: Mapping[str, Any], calls: tuple[Call, ...], where: str) -> Scenario:
    for key in table:
        if key not in KEYS:
            raise MisuseError(f"{where}: unknown key {key!r}; a scenario has {', '.join(KEYS)}")
    ready, gate = _file_name(table, "ready", where), _file_name(table, "gate", where)
    if bool(ready) != bool(gate):
        raise MisuseError(f"{where}: ready and gate stand together or not at all; add {'gate' if ready else 'ready'}")
    redriven, ahead = _flag(table, "redriven", where), _flag(table, "ahead", where)
    if ahead and not redriven:
        raise MisuseError(f"{where}: ahead says how a redriver starts drivers; add redriven = true, or leave it out")
    return Scenario(
        name=_name(table, where),
        about=_text(table, "about", where),
        on_interrupted=_on_interrupted(table, where),
        seed=_parse_seed(table, where),
        calls=calls,
        witnessed=_witnessed(table, calls, where),
        ready=ready,
        gate=gate,
        compare_output=_flag(table, "compare_output", where),
        plan=_parse_plan(table.get("plan", []), where),
        trials=parse_trial_sets(table.get("trials", []), where),
        needs=_needs(table, where),
        profile=parse_profile(table.get("exclude", []), [], where),
        answers=_answers(table, where),
        redriven=redriven,
        ahead=ahead,
        mount=_flag(table, "mount", where),
        modes=_modes(table, where),
    )


def _name(table: Mapping[str, Any], where: str) -> str:
    name = table.get("name")
    if name is None:
        raise MisuseError(f'{where}: name is missing; add name = "..."')
    if not isinstance(name, str) or not SESSION_NAME.match(name):
        raise MisuseError(f"{where}: name {name!r} must be 1 to 64 letters, digits, '.', '_' or '-'")
    return name


def _on_interrupted(table: Mapping[str, Any], where: str) -> OnInterrupted:
    choice = parse_on_interrupted(table.get("on_interrupted", "reissue"), where)
    if choice == "stop":
        raise MisuseError(f'{where}: on_interrupted "stop" leaves a trial unfinished; use "reissue" or "continue"')
    return choice


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise MisuseError(f"{where}: {key} must be a string, found {value!r}")
    return value


def _file_name(table: Mapping[str, Any], key: str, where: str) -> str:
    value = _text(table, key, where)
    if value in (".", "..") or "/" in value or "\0" in value:
        raise MisuseError(f"{where}: {key} {value!r} must be a plain file name; it stands in the trial's outside directory")
    return value


def _flag(table: Mapping[str, Any], key: str, where: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise MisuseError(f"{where}: {key} must be true or false, found {value!r}")
    return value


def _witnessed(table: Mapping[str, Any], calls: tuple[Call, ...], where: str) -> tuple[int, ...]:
    indexes = table.get("witnessed", [])
    if not isinstance(indexes, list) or not all(type(index) is int for index in indexes):
        raise MisuseError(f"{where}: witnessed must be a list of call numbers from 0, such as [0, 2], found {indexes!r}")
    for index in indexes:
        if not 0 <= index < len(calls):
            raise MisuseError(f"{where}: witnessed names call {index}, but the calls are 0 to {len(calls) - 1}")
        if not isinstance(calls[index], BashCall):
            raise MisuseError(f"{where}: witnessed names call {index}, which is no bash call; only a command can note in the witness")
    return tuple(sorted(set(indexes)))


def _needs(table: Mapping[str, Any], where: str) -> tuple[str, ...]:
    programs = table.get("needs", [])
    if not isinstance(programs, list) or not all(isinstance(program, str) for program in programs):
        raise MisuseError(f'{where}: needs must be a list of programs, such as ["git"], found {programs!r}')
    for program in programs:
        if not _PROGRAM.match(program):
            raise MisuseError(f"{where}: needs {program!r} must be a program's plain name, as it is looked up on PATH")
    return tuple(dict.fromkeys(programs))


def _parse_seed(table: Mapping[str, Any], where: str) -> tuple[SeedEntry, ...]:
    tables = table.get("seed", [])
    tree = table.get("seed_tree", "empty")
    if tree not in ("empty", "stdlib"):
        raise MisuseError(f'{where}: unknown seed_tree {tree!r}; use "empty", "stdlib" or [[seed]] entries')
    if "seed_tree" in table and tables:
        raise MisuseError(f"{where}: seed_tree is {tree}, but there are [[seed]] entries; keep one")
    if tree == "stdlib":
        return (SeedEntry(LIBRARY_PLACE, "stdlib"),)
    if not isinstance(tables, list):
        raise MisuseError(f"{where}: seed must be [[seed]] tables")
    kinds: dict[bytes, SeedKind] = {}
    entries = []
    for number, one in enumerate(tables, 1):
        entry = _parse_seed_entry(one, f"{where}: seed {number}")
        _check_place(entry, kinds, f"{where}: seed {number}")
        kinds[entry.path] = entry.kind
        entries.append(entry)
    return tuple(entries)


def _parse_seed_entry(table: Any, where: str) -> SeedEntry:
    if not isinstance(table, Mapping):
        raise MisuseError(f"{where}: expected a table, found {type(table).__name__}")
    kind = _seed_kind(table.get("kind"), where)
    known = ("path", "kind", *_SEED_KEYS[kind])
    for key in table:
        if key not in known:
            raise MisuseError(f"{where}: a {kind} has no {key!r}; it has {', '.join(known)}")
    for key in ("path", "target") if "target" in known else ("path",):
        if key not in table:
            raise MisuseError(f"{where}: {key} is missing")
    target = decode_bytes(table.get("target", ""), f"{where}: target")
    if "target" in known and not target:
        raise MisuseError(f"{where}: target is empty; name what the link leads to")
    return SeedEntry(
        path=_seed_path(table["path"], f"{where}: path"),
        kind=kind,
        content=decode_bytes(table.get("content", ""), f"{where}: content"),
        mode=_seed_mode(table.get("mode"), kind, where),
        target=target,
    )


def _seed_kind(value: Any, where: str) -> SeedKind:
    for kind in get_args(SeedKind):
        if value == kind:
            return kind  # type: ignore[no-any-return]
    raise MisuseError(f"{where}: unknown kind {value!r}; use {', '.join(get_args(SeedKind))}")


def _seed_path(value: Any, where: str) -> bytes:
    path = decode_bytes(value, where)
    if b"\0" in path or any(component in (b"", b".", b"..") for component in path.split(b"/")):
        raise MisuseError(f"{where}: {path!r} must be relative, inside the workspace, without empty, '.' or '..' parts")
    return path


def _seed_mode(value: Any, kind: SeedKind, where: str) -> int:
    if value is None:
        return 0o755 if kind == "directory" else 0o644
    if type(value) is not int or not 0 <= value <= 0o7777:
        raise MisuseError(f"{where}: mode must be between 0o0 and 0o7777, found {value!r}")
    return value


def _check_place(entry: SeedEntry, kinds: Mapping[bytes, SeedKind], where: str) -> None:
    if entry.path in kinds:
        raise MisuseError(f"{where}: {entry.path!r} is there already; give each path once")
    parts = entry.path.split(b"/")
    for depth in range(1, len(parts)):
        parent = b"/".join(parts[:depth])
        if kinds.get(parent, "directory") != "directory":
            raise MisuseError(f"{where}: {parent!r} is a {kinds[parent]}, so {entry.path!r} cannot lie below it")
    if any(path.startswith(entry.path + b"/") for path in kinds):
        raise MisuseError(f"{where}: {entry.path!r} was made as a parent of an earlier entry; put it before that")
    if entry.kind == "hardlink" and kinds.get(entry.target) != "file":
        raise MisuseError(f"{where}: a hard link's target must be the path of an earlier file, found {entry.target!r}")


def _modes(table: Mapping[str, Any], where: str) -> Modes:
    mode = parse_mode(table.get("mode", "transactional"), where)
    return Modes(mode, parse_bound(table, mode, where), parse_limits(table.get("limits"), mode, where))


def _modes_to_json(modes: Modes) -> dict[str, Any]:
    table: dict[str, Any] = {} if modes.mode == "transactional" else {"mode": modes.mode, "lost_work_bound": modes.lost_work_bound}
    if modes.limits is not None:
        values = {name: getattr(modes.limits, name) for name in ("bytes", "paths", "file_bytes")}
        table["limits"] = {name: value for name, value in values.items() if value is not None}
    return table


def _answers(table: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    answers = table.get("answers", {})
    if not isinstance(answers, Mapping) or not all(isinstance(command, str) and command for command in answers.values()):
        raise MisuseError(f'{where}: answers must be a table of commands by words, such as root_replaced = "settle --rebuild"')
    return tuple(answers.items())


def _parse_plan(tables: Any, where: str) -> tuple[Action, ...]:
    if not isinstance(tables, list):
        raise MisuseError(f"{where}: plan must be [[plan]] tables with at and do")
    return tuple(action_from_json(table, f"{where}: plan {number}") for number, table in enumerate(tables, 1))


def _seed_to_json(entry: SeedEntry) -> dict[str, Any]:
    values = {"content": encode_bytes(entry.content), "mode": entry.mode, "target": encode_bytes(entry.target)}
    return {"path": encode_bytes(entry.path), "kind": entry.kind} | {key: values[key] for key in _SEED_KEYS[entry.kind]}
