"""What is tried in a scenario: sets of trials, each with what comes before and the roles that are killed or frozen at every step. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from chaos.actions import check_action, format_plan, parse_plan
from chaos.results import Action
from chaos.step import format_step, parse_step
from eventlog.errors import MisuseError

ROLES = ("driver", "spawner", "shim", "worker", "filler", "redriver")
PLAIN_ROLES = ROLES[:-1]
"""Those that there are without a redriver."""
AT_EACH = ("edit", "turn", "jump", "lose")
"""What can be done at each step in place of a kill."""
_KEYS = (
    "before", "call", "until", "kill", "freeze", "label", "sample", "held", "converges", "depth", "ci", "in_ci", "then", "lose", "each",
    "back", "race",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrialSet:
    """One set of trials: `before` is done in each of them; then there is one for each later step of the roles in `kill`, and in `freeze`.

    `call` limits the steps to those of one call, the N-th that the recorded driver begins (0: no limit), `until` to those up to a step.
    `converges` tells that every trial ends in the state in which the clean run of the set ends.
    With a `label` it is a set of second kills: `before` crashes the session so that recovery takes this decision. `sample` is how many of
    the kills (in a race of the second freezes) are tried, evenly spread, `held` how many of the freezes with a lock held; 0 means all.
    `ci` is `sample` in the mode `ci`, 0 for the same; it has the set at all only `in_ci`. `then` is done after each kill. With `lose`
    something is taken away at each step, and nothing killed; with `each` that one action is done there. With `back` N the log's files are
    put back after each kill as they were N commits of that driver before. With `race` each freeze is made while what `before` froze still
    sleeps, and both are woken, in either order. `depth` is how many kills a trial has, one inside the recovery from the other, where that
    is more than two.
    """

    before: tuple[Action, ...] = ()
    kill: tuple[str, ...] = PLAIN_ROLES
    freeze: tuple[str, ...] = ()
    label: str = ""
    sample: int = 0
    call: int = 0
    until: str = ""
    converges: bool = True
    held: int = 0
    depth: int = 0
    ci: int = 0
    in_ci: bool = True
    then: tuple[Action, ...] = ()
    lose: str = ""
    each: tuple[Action, ...] = ()
    back: int = 0
    race: bool = False

    @property
    def does(self) -> tuple[Action, ...]:
        """What is done at each step in place of a kill; nothing where it is a kill."""
        return (Action("", "lose", path=self.lose),) if self.lose else self.each

    @property
    def is_inside_recovery(self) -> bool:
        """Whether only the steps of recovery are killed."""
        return bool(self.label) or self.depth > 1


def parse_trial_sets(tables: Any, where: str) -> tuple[TrialSet, ...]:
    """The `[[trials]]` tables of a scenario; one plain set when there is none."""
    if not isinstance(tables, list):
        raise MisuseError(f"{where}: trials must be [[trials]] tables")
    return tuple(_parse(table, f"{where}: trials {number}") for number, table in enumerate(tables, 1)) or (TrialSet(),)


def _parse(table: Any, where: str) -> TrialSet:
    if not isinstance(table, Mapping):
        raise MisuseError(f"{where}: expected a table, found {type(table).__name__}")
    for key in table:
        if key not in _KEYS:
            raise MisuseError(f"{where}: unknown key {key!r}; a set of trials has {', '.join(_KEYS)}")
    before, label, until, then, lose, each = texts = [table.get(key, "") for key in ("before", "label", "until", "then", "lose", "each")]
    if not all(isinstance(text, str) for text in texts):
        raise MisuseError(
            f'{where}: before, then, each, lose, label and until are strings; before is a plan, such as before = "kill driver@1:decided:1"'
        )
    return TrialSet(
        before=parse_plan(before, f"{where}: before"),
        kill=_roles(table, "kill", PLAIN_ROLES, where),
        freeze=_roles(table, "freeze", (), where),
        label=label,
        sample=_number(table, "sample", "a number of trials, 0 for all", where),
        held=_number(table, "held", "a number of freezes with a lock held, 0 for all", where),
        call=_number(table, "call", "the number of a call, from 1, or 0 for all", where),
        until=format_step(parse_step(until, f"{where}: until")) if until else "",
        then=parse_plan(then, f"{where}: then"),
        lose=check_action(Action("", "lose", path=lose), f"{where}: lose").path if lose else "",
        each=_each(each, lose, f"{where}: each"),
        back=_number(table, "back", "a number of commits, 0 for none", where),
        race=_flag(table, "race", where, is_on=False),
        converges=_flag(table, "converges", where),
        depth=_number(table, "depth", "a number of kills, 0 for one or two", where),
        in_ci=_flag(table, "in_ci", where),
        ci=_number(table, "ci", "a number of trials, 0 for as many as in other modes", where),
    )


def _each(text: str, lose: str, where: str) -> tuple[Action, ...]:
    """The one action that is done at each step: such as `turn "notes" "fifo"`."""
    actions = parse_plan(text, where)
    if len(actions) > 1 or any(action.at or action.who or action.do not in AT_EACH for action in actions):
        raise MisuseError(f"{where}: {text!r} must be one action that may name a step and names none: {', '.join(AT_EACH)}")
    if actions and lose:
        raise MisuseError(f"{where}: lose says what is done at each step already; keep one")
    return actions


def _flag(table: Mapping[str, Any], key: str, where: str, *, is_on: bool = True) -> bool:
    value = table.get(key, is_on)
    if not isinstance(value, bool):
        raise MisuseError(f"{where}: {key} must be true or false, found {value!r}")
    return value


def _number(table: Mapping[str, Any], key: str, meaning: str, where: str) -> int:
    value = table.get(key, 0)
    if type(value) is not int or value < 0:
        raise MisuseError(f"{where}: {key} must be {meaning}; found {value!r}")
    return value


def _roles(table: Mapping[str, Any], key: str, default: tuple[str, ...], where: str) -> tuple[str, ...]:
    value = table.get(key, list(default))
    if not isinstance(value, list) or not all(role in ROLES for role in value):
        raise MisuseError(f"{where}: {key} must be a list of {', '.join(ROLES)}; found {value!r}")
    return tuple(role for role in ROLES if role in value)


def narrow(sets: tuple[TrialSet, ...]) -> tuple[TrialSet, ...]:
    """The sets that the mode `ci` has, as it tries them: `ci` in place of `sample`."""
    return tuple(replace(one, sample=one.ci or one.sample) for one in sets if one.in_ci)


def widen(sets: tuple[TrialSet, ...]) -> tuple[TrialSet, ...]:
    """The sets as a soak tries them: without `call`, `until`, `sample`, `held`; and one that kills the whole session from its first step
    on. A set that edits at each step keeps its call: what is edited after the last scan of a session nobody is there to see."""
    free = (one if one.each else replace(one, call=0, until="") for one in sets)
    wide = tuple(replace(one, sample=0, ci=0, held=0) for one in free)
    return tuple(dict.fromkeys(wide if any(not one.before for one in wide) else (TrialSet(), *wide)))


def trial_set_to_json(one: TrialSet) -> dict[str, Any]:
    """A set as a table; `parse_trial_sets` reads it back."""
    return {
        "before": format_plan(one.before),
        "kill": list(one.kill),
        "freeze": list(one.freeze),
        "label": one.label,
        "sample": one.sample,
        "held": one.held,
        "call": one.call,
        "until": one.until,
        "converges": one.converges,
        "depth": one.depth,
        "ci": one.ci,
        "in_ci": one.in_ci,
        "then": format_plan(one.then),
        "lose": one.lose,
        "each": format_plan(one.each),
        "back": one.back,
        "race": one.race,
    }
