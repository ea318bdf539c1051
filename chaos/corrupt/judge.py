"""What is made of the commands' answers on a damaged session, held against their answers on the sound one. Pure.

The rule: damage is told (a typed error that names what and what to do now), or it is harmless (the answer is that of the sound state). One
exception is stated in eventlog/README ("Threats"): a log that lost whole transactions at its end is a sound, shorter log. There what is
shown must be the beginning of what was, `verify --anchor` must say so, and what a driver makes of it is held against the bound.

`broken` is what no person may ever see: a traceback, an exit code that is no command's, an end by a signal.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from chaos.corrupt.commands import Said
from chaos.results import OracleVerdict, Verdict

ORACLE = "damage"
End = Literal["detected", "harmless", "cut tail"]
Kind = Literal["equal", "told", "silent", "broken"]
REFUSALS: Mapping[str, frozenset[int]] = {"eventlog": frozenset({1, 2}), "recovery": frozenset({1, 78})}
"""What a command ends with that has told an error. 75 is not among them: damage is no newer epoch; nor 70, which is a bug."""
_TRACEBACK = "Traceback (most recent call last)"
_SENTENCE = re.compile(r"(eventlog|recovery): .{20,}", re.DOTALL)
_NEXT = re.compile(r"`[^`]+`|; |\b(run|put|make|remove|restore|give|use|repair|open|drive|look|say)\b")
FINDERS = ("eventlog verify", "recovery checkpoints")
"""Commands whose findings are their output."""
FORECAST = "recovery plan"
SHOWN = ("eventlog show", "eventlog verify", "eventlog diff", "eventlog checkout", "recovery checkpoints", FORECAST)
"""What may say less of a log that lost its end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One command's answer, judged; `why` says what is wrong with it, "" for nothing."""

    said: Said
    kind: Kind
    why: str = ""


def compare(intact: Said, now: Said) -> Answer:
    """One answer beside that of the sound session."""
    program = now.command.partition(" ")[0]
    if _TRACEBACK in now.err or _TRACEBACK in now.out:
        return Answer(now, "broken", f"{now.command} ended with a traceback: {_last(now.err)}")
    if now.code != intact.code and now.code not in REFUSALS[program] | ({0, 2} if now.command == FORECAST else {0}):
        return Answer(now, "broken", f"{now.command} ended with {now.code}: {_last(now.err or now.out)}")
    if (now.code, now.out, now.tree) == (intact.code, intact.out, intact.tree):
        return Answer(now, "equal")
    if now.code in REFUSALS[program] and (now.code != intact.code or now.err != intact.err):
        return _check_told(now)
    if now.command == FORECAST and now.code != 0:
        return Answer(now, "told")
    return Answer(now, "silent", f"{now.command} says something else than of the sound session, and ends with {now.code}")


def _check_told(now: Said) -> Answer:
    """An error: its last line is one sentence with what to do now, or its findings are what it printed."""
    if now.command.startswith(FINDERS) and now.out.strip():
        return Answer(now, "told")
    words = now.err.strip().splitlines()
    sentence = words[-1] if words else ""
    if now.command == FORECAST and now.out.strip() and not sentence:
        return Answer(now, "told")
    if not _SENTENCE.match(sentence) or not _NEXT.search(sentence):
        return Answer(now, "broken", f"{now.command} ended with {now.code} and no sentence that says what to do: {sentence[:200]!r}")
    return Answer(now, "told")


def judge_answers(intact: Sequence[Said], now: Sequence[Said]) -> tuple[OracleVerdict, End]:
    """The verdict of the commands that change nothing, and what became of the damage. An empty comparison is unknown."""
    answers = [compare(one, other) for one, other in zip(intact, now, strict=True)]
    if not answers:
        return OracleVerdict(ORACLE, Verdict.UNKNOWN, "no command was compared"), "harmless"
    if broken := [one for one in answers if one.kind == "broken"]:
        return OracleVerdict(ORACLE, Verdict.FAIL, broken[0].why), "detected"
    silent = [one for one in answers if one.kind == "silent"]
    told = [one.said for one in answers if one.kind == "told"]
    if silent and not (_is_shorter(intact, now) and _has_anchor_spoken(answers)):
        wrong = silent[0]
        before = next(one for one in intact if one.command == wrong.said.command)
        return OracleVerdict(ORACLE, Verdict.FAIL, wrong.why, expected=_last(before.out), found=_last(wrong.said.out)), "detected"
    if silent:
        return OracleVerdict(ORACLE, Verdict.PASS, "cut tail: told by the anchor"), "cut tail"
    if told:
        return OracleVerdict(ORACLE, Verdict.PASS, f"detected: {told[0].command}: {_last(told[0].err or told[0].out)}"), "detected"
    return OracleVerdict(ORACLE, Verdict.PASS, "harmless: every answer is that of the sound session"), "harmless"


def _is_shorter(intact: Sequence[Said], now: Sequence[Said]) -> bool:
    """Whether the history shown is a beginning of the one that was and lacks its end: where it is whole, or was not shown at all, nothing
    may be said but what was said of the sound session."""
    for one, other in zip(intact, now, strict=True):
        if one.command == "eventlog show":
            before, after = one.out.splitlines(), other.out.splitlines()
            return one.code == other.code and 0 < len(after) < len(before) and after == before[: len(after)]
    return False


def _has_anchor_spoken(answers: Sequence[Answer]) -> bool:
    """Whether the second `verify`, the one with the anchor, told of damage."""
    verified = [one for one in answers if one.said.command == "eventlog verify"]
    return verified[-1].kind == "told" and all(one.said.command in SHOWN for one in answers if one.kind == "silent")


def judge_untouched(before: Mapping[str, str], after: Mapping[str, str]) -> OracleVerdict:
    """Commands that only look leave every file of the session as it was. Both map paths to digests."""
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path):
            detail = "a command that only looks has changed a file"
            return OracleVerdict("looked-only", Verdict.FAIL, detail, path, before.get(path, "absent"), after.get(path, "absent"))
    return OracleVerdict("looked-only", Verdict.PASS if before else Verdict.UNKNOWN, f"{len(before)} files")


def judge_drive(said: Said, end: End, tree: Mapping[str, Any], expected: Mapping[str, Any]) -> OracleVerdict:
    """What a driver made of it: it went to the end and the workspace is the one that the sound session ends in, or it refused what another
    command had told of too: who asked first must not learn less."""
    if _TRACEBACK in said.err or said.code not in (0, 1, 78):
        return OracleVerdict("driven", Verdict.FAIL, f"recovery drive ended with {said.code}: {_last(said.err)}")
    if said.code == 0:
        path = next((one for one in sorted({*tree, *expected}) if tree.get(one) != expected.get(one)), None)
        if path is None:
            return OracleVerdict("driven", Verdict.PASS, "to the end")
        detail = "the driver came to the end, and the workspace is another than that of the sound session"
        return OracleVerdict("driven", Verdict.FAIL, detail, path, str(expected.get(path)), str(tree.get(path)))
    answer = _check_told(said)
    if answer.kind == "broken":
        return OracleVerdict("driven", Verdict.FAIL, answer.why)
    if end == "harmless":
        detail = f"no other command notices anything, and recovery drive ends with {said.code}: {_last(said.err)}"
        return OracleVerdict("driven", Verdict.FAIL, detail)
    return OracleVerdict("driven", Verdict.PASS, f"refused: {_last(said.err)}")


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "(nothing)"
