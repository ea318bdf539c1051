"""Plans and trials in words for people, and names made safe to show. Pure."""

import json

from chaos.results import Action, Fault, Trial

ENTRY_WORDS = {
    "exec": " (the real command)", "syscall": " (under strace)", "power": " (the power is lost)", "copy": " (the image is copied)",
}  # fmt: skip


def escape(text: str) -> str:
    """The text on one line, what cannot be printed written as an escape: it moves no cursor, and any of it may stand in XML."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode("ascii") for char in text)


def is_clean(trial: Trial) -> bool:
    """Whether it is the clean run of its scenario: trial 0, which may begin with the actions of a prefix. Of a target that prefix is one
    kill or more, and the run as good as any trial."""
    return not trial.plan or (trial.number == 0 and trial.entry != "target")


def describe_trial(trial: Trial) -> str:
    """A trial in a few words: its plan, or that it is a clean run. The same words for the same trial in every run."""
    if is_clean(trial):
        return "clean run"
    return escape(", ".join(map(describe_action, trial.plan)) + ENTRY_WORDS.get(trial.entry, ""))


def describe_action(action: Action) -> str:
    """One action: what is done, to whom or to which path, at which step."""
    if action.do in ("lose", "jump", "parked", "person"):
        return _join(action.do, f"{action.who} {json.dumps(action.path, ensure_ascii=False)}".strip(), action.at)
    if action.do == "turn":
        return _join("turn", f"{json.dumps(action.path, ensure_ascii=False)} into a {action.content}", action.at)
    if action.do != "edit":
        return _join(action.do, action.who, action.at)
    path = json.dumps(action.path, ensure_ascii=False)
    if action.content is None:
        return _join("remove", path, action.at)
    return _join("edit", f"{path} to {json.dumps(action.content, ensure_ascii=False)}", action.at)


def describe_fault(fault: Fault) -> str:
    """What became of one action, with its note."""
    return escape(f"{_join(fault.do, fault.who, fault.at)} {fault.note}".rstrip())


def _join(do: str, what: str, at: str) -> str:
    return f"{do}{' ' if what else ''}{what}{' at ' if at else ''}{at}"
