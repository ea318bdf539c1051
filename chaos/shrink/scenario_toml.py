"""A scenario with its plan as a TOML file; `load_scenario` reads it back. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from chaos.actions import action_to_json
from chaos.scenario import Scenario, to_json
from chaos.shrink.case import Case

_DEFAULTS: Mapping[str, Any] = {
    "witnessed": [], "ready": "", "gate": "", "compare_output": False, "needs": [], "exclude": [], "answers": {}, "redriven": False,
    "ahead": False, "mount": False,
}  # fmt: skip
_TABLES = ("seed", "call", "plan", "trials")


def render_scenario(case: Case, comment: tuple[str, ...] = ()) -> str:
    """The file, with lines of comment before it."""
    table = to_json(case.scenario)
    lines = [f"# {_one_line(line)}" for line in comment]
    lines += [f"{name} = {_value(value)}" for name, value in table.items() if name not in _TABLES and value != _DEFAULTS.get(name)]
    lines += _render_seed(case.scenario, table["seed"])
    for call in table["call"]:
        lines += ["", "[[call]]", *_pairs(call)]
    for action in case.plan:
        lines += ["", "[[plan]]", *_pairs(action_to_json(action))]
    return "\n".join(lines) + "\n"


def _render_seed(scenario: Scenario, seed: list[dict[str, Any]]) -> Iterator[str]:
    if any(entry.kind == "stdlib" for entry in scenario.seed):
        yield 'seed_tree = "stdlib"'
        return
    for entry in seed:
        yield from ("", "[[seed]]", *_pairs(entry))


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in table.items() if value is not None]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_text(name)} = {_value(one)}" for name, one in value.items() if one is not None) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    # A string of JSON is one of TOML once nothing is written as a surrogate pair; DEL has to be escaped in TOML.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
