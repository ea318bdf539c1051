"""Plans as data: what is done to which process, in which order; printed and parsed. Pure.

A plan is a list of actions, carried out one after the other. In text they are joined by `; `:

    wait STEP                   the process that reaches the step is held there
    kill STEP                   SIGKILL the process that waits at the step
    kill who ROLE@EPOCH         SIGKILL a process now, wherever it is; `command@EPOCH` is a running command
    freeze STEP                 SIGSTOP the process at the step; it stays there until it is woken or killed
    freeze who ROLE@EPOCH       the same now, wherever it is
    wake ROLE@EPOCH             SIGCONT a frozen process
    killed ROLE@EPOCH           a frozen process, which held a lock, must be dead of signal 9 by now, and its successor at its end
    release ROLE@EPOCH          let a process that is held at a step go on
    start                       start the next driver, whatever became of those before
    end ROLE@EPOCH              wait for the end of that process
    edit STEP "PATH" "CONTENT"  somebody else writes a file of the workspace while the process waits at the step
    edit STEP "PATH"            the same, but the file is removed
    edit "PATH" "CONTENT"       the same now
    turn STEP "PATH" "KIND"     somebody else makes a `directory`, a `fifo` or a `symlink TARGET` of a path, whatever was there
    turn "PATH" "KIND"          the same now
    jump STEP "TIME"            the clock that drivers read jumps while the process waits at the step: "+3h", "-10y" (d, h, s too)
    jump "TIME"                 the same now
    lose STEP "WHAT"            something is taken away while the process waits at the step, which then goes on (chaos/losses.py)
    lose "WHAT"                 the same now
    keep STEP "log"             the log's files are copied while the process waits at the step, to be put back by `lose "log"`
    parked ROLE@EPOCH "WORDS"   that driver must have ended with 78, and its last line on stderr have these words
    person "COMMAND"            a person runs `recovery COMMAND`, the state directory its first argument, as the next driver
    fail driver@EPOCH "FILES" "FAULT"  that driver is started on a disk that fails so (mode disk; chaos/disk/fault.py), and its end awaited
    corrupt "WHAT" "DAMAGE"     bytes of a file of the session are others (mode corrupt; chaos/corrupt/damage.py)
    cut STEP                    the power is lost while this operation on the disk is under way (modes powerloss, crosscheck)

Without `start` the next driver begins when none runs any more and the session is not finished. What is still held when the plan has
ended is released, and the session driven to its end.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.corrupt.damage import check_target, format_damage, parse_damage
from chaos.disk.fault import parse_fault
from chaos.losses import LOSSES
from chaos.results import Action
from chaos.step import STEP_FORM, format_step, parse_step
from eventlog.errors import MisuseError


@dataclass(frozen=True, slots=True)
class Verb:
    """What a verb takes: a step (`at`), a process (`who`), either, or nothing; and what its text in quotes names, "" for none."""

    about: str
    takes: tuple[str, ...]
    names: str = ""


VERBS: Mapping[str, Verb] = {
    "wait": Verb("the process that reaches the step is held there", ("at",)),
    "kill": Verb("SIGKILL, from outside; the wait status must show signal 9", ("at", "who")),
    "freeze": Verb("SIGSTOP; the process must be seen stopped", ("at", "who")),
    "wake": Verb("SIGCONT to a frozen process", ("who",)),
    "killed": Verb("its successor must have killed a frozen process that held a lock", ("who",)),
    "release": Verb("let a held process go on", ("who",)),
    "start": Verb("start the next driver while others live", ()),
    "end": Verb("wait for a process's end", ("who",)),
    "edit": Verb("somebody else writes or removes a file of the workspace", ("at", ""), "path"),
    "turn": Verb("somebody else makes something of another type of a path", ("at", ""), "path"),
    "jump": Verb("the clock that drivers read jumps", ("at", ""), "time"),
    "lose": Verb("something of the session is taken away", ("at", ""), "loss"),
    "cut": Verb("the power is lost while this is under way (--mode powerloss)", ("at",)),
    "keep": Verb("the log's files are copied, to be put back later", ("at",), "copy"),
    "parked": Verb("a driver must have ended with 78 and these words", ("who",), "sentence"),
    "person": Verb("a person runs a command of recovery as the next driver", (), "command"),
    "fail": Verb("the next driver works on a disk that fails", ("who",), "disk"),
    "corrupt": Verb("bytes of a file of the session are others", (), "target"),
}
ROLES = "driver, spawner, shim.K, worker, filler, redriver or command"
_JUMP = re.compile(r"(?P<sign>[+-])(?P<number>[1-9][0-9]{0,5})(?P<unit>[shdy])\Z")
_UNIT_MS = {"s": 1_000, "h": 3_600_000, "d": 86_400_000, "y": 31_536_000_000}
SYMLINK = "symlink "
_WHO = re.compile(
    r"(?P<role>driver|spawner|worker|filler|command|shim(?:\.[1-9][0-9]*)?|redriver(?=@0))@(?P<epoch>[1-9][0-9]*|(?<=redriver@)0)\Z"
)


def parse_who(text: str, where: str = "who") -> tuple[str, int]:
    """Role and epoch of `ROLE@EPOCH`; MisuseError when it is none."""
    match = _WHO.match(text)
    if match is None:
        raise MisuseError(f"{where}: {text!r} is no process; write ROLE@EPOCH with ROLE {ROLES}, such as driver@1")
    return "shim.1" if match["role"] == "shim" else match["role"], int(match["epoch"])


def parse_jump(text: str) -> int | None:
    """Milliseconds from `+3h`, `-10y`, `+90s` or `-2d` (a year has 365 days); None when it is none."""
    match = _JUMP.match(text)
    return None if match is None else int(match["sign"] + match["number"]) * _UNIT_MS[match["unit"]]


def is_kind(text: str) -> bool:
    """Whether `turn` can make this of a path."""
    return text in ("directory", "fifo") or (text.startswith(SYMLINK) and len(text) > len(SYMLINK))


def check_action(action: Action, where: str = "plan") -> Action:
    """The action with its names in full; MisuseError when its verb is unknown or has what it does not take or lacks what it takes."""
    verb = VERBS.get(action.do)
    if verb is None:
        raise MisuseError(f"{where}: unknown do {action.do!r}; use {', '.join(VERBS)}")
    given = "at" if action.at else "who" if action.who else ""
    if (action.at and action.who) or given not in (verb.takes or ("",)):
        wanted = " or ".join({"at": "a step (at)", "who": "a process (who)", "": "nothing"}[one] for one in verb.takes or ("",))
        raise MisuseError(f"{where}: {action.do} takes {wanted}; found at = {action.at!r}, who = {action.who!r}")
    if bool(verb.names) != bool(action.path) or (action.content is not None and verb.names not in ("path", "target", "disk")):
        needs = f"{action.do} needs a {verb.names} in quotes" if verb.names else f"{action.do} takes no path or content"
        raise MisuseError(f"{where}: {needs}")
    if action.do == "turn" and not is_kind(action.content or ""):
        raise MisuseError(f'{where}: turn makes a "directory", a "fifo" or a "symlink TARGET" of a path, found {action.content!r}')
    if verb.names == "time" and parse_jump(action.path) is None:
        raise MisuseError(f'{where}: jump {action.path!r} is no time; write "+3h", "-10y", "+90s" or "-2d"')
    if verb.names == "copy" and action.path != "log":
        raise MisuseError(f'{where}: unknown copy {action.path!r}; what can be kept is "log"')
    if verb.names == "loss" and action.path not in LOSSES:
        raise MisuseError(f"{where}: unknown loss {action.path!r}; use {', '.join(LOSSES)} (chaos list faults tells more)")
    if verb.names == "target":
        content = format_damage(parse_damage(action.content or "", where))
        return Action("", action.do, path=check_target(action.path, where), content=content)
    if verb.names == "disk":
        parse_fault(action.path, action.content or "", where)
    at = format_step(parse_step(action.at, where)) if action.at else ""
    who = "@".join(map(str, parse_who(action.who, where))) if action.who else ""
    return Action(at, action.do, who, action.path, action.content)


def format_action(action: Action) -> str:
    """One action as text; `parse_plan` reads it back."""
    words = [action.do]
    if action.at:
        words.append(action.at)
    if action.who:
        words += ["who", action.who] if "at" in VERBS[action.do].takes else [action.who]
    if action.path:
        words += [json.dumps(text) for text in (action.path, action.content) if text is not None]
    return " ".join(words)


def format_plan(plan: Sequence[Action]) -> str:
    """A plan as text."""
    return "; ".join(map(format_action, plan))


_WORD = re.compile(r'\s*(?:(?P<semicolon>;)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>[^\s;"]+))')


def parse_plan(text: str, where: str = "plan") -> tuple[Action, ...]:
    """A plan from its text; MisuseError names the action that is wrong."""
    actions: list[list[tuple[bool, str]]] = [[]]
    position = 0
    while text[position:].strip():
        match = _WORD.match(text, position)
        if match is None:
            raise MisuseError(f"{where}: {text[position:].strip()!r} cannot be read; paths and contents stand in double quotes")
        position = match.end()
        if match["semicolon"]:
            actions.append([])
        else:
            quoted = match["string"] is not None
            actions[-1].append((quoted, _unquote(match["string"], where) if quoted else match["word"]))
    numbered = [(number, words) for number, words in enumerate(actions, 1) if words or len(actions) > 1]
    return tuple(_parse_action(words, f"{where}: action {number}") for number, words in numbered)


def _unquote(text: str, where: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError as error:
        raise MisuseError(f"{where}: {' '.join(text.split())} is no string as in JSON") from error


def _parse_action(words: list[tuple[bool, str]], where: str) -> Action:
    if not words or words[0][0]:
        raise MisuseError(f"{where}: has no verb; use {', '.join(VERBS)}")
    do, *plain = [word for quoted, word in words if not quoted]
    strings = [word for quoted, word in words if quoted]
    at = who = ""
    if plain[:1] == ["who"] and len(plain) == 2:
        who = plain[1]
    elif len(plain) == 1:
        at, who = (plain[0], "") if "at" in VERBS.get(do, VERBS["kill"]).takes else ("", plain[0])
    elif plain:
        raise MisuseError(f"{where}: {' '.join([do, *plain])!r} is too much; a step is {STEP_FORM}")
    if len(strings) > 2:
        raise MisuseError(f"{where}: {do} takes a path and at most one content")
    path, content = (strings[0] if strings else ""), (strings[1] if len(strings) > 1 else None)
    return check_action(Action(at, do, who, path, content), where)


def action_to_json(action: Action) -> dict[str, Any]:
    """An action as a table, without what is empty."""
    table = {"at": action.at, "do": action.do, "who": action.who, "path": action.path}
    return {name: value for name, value in table.items() if value} | ({} if action.content is None else {"content": action.content})


def action_from_json(table: Any, where: str) -> Action:
    """The inverse of `action_to_json`, checked."""
    known = ("at", "do", "who", "path", "content")
    if not isinstance(table, Mapping) or "do" not in table or not all(isinstance(value, str) for value in table.values()):
        raise MisuseError(f'{where}: an action is a table of strings, such as at = "driver@1:outcome.commit.before:1", do = "kill"')
    for name in table:
        if name not in known:
            raise MisuseError(f"{where}: unknown key {name!r}; an action has {', '.join(known)}")
    return check_action(Action(**{"at": "", **table}), where)
