"""Who says whether a target's end is right: a command of the user's, the judge of the standard workload, or the log oracle.

Each is asked about a clean run first, and then about the same with everything emptied or spoiled: what is content with that too proves
nothing by being content.
"""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from chaos.processes import end_everything
from chaos.results import OracleVerdict, Verdict
from chaos.target.log_check import LogCheck
from chaos.target.place import TargetPlace, make_environment, make_place
from chaos.target.target import CHECK, Target
from chaos.target.workload import LEFT, RIGHT, WITNESS, End, find_blind, judge_end
from chaos.trees import copy_tree, remove_tree

Spoil = Callable[[TargetPlace, TargetPlace], bool]
"""Makes in the second place, which is empty, a spoiled copy of what a clean run has left in the first; whether it is another one."""
WORDS = {0: Verdict.PASS, 1: Verdict.FAIL}
SHOWN = 400


class Checker:
    """Asks whoever judges a target. `given` is the environment in which the harness was started."""

    def __init__(self, target: Target, given: Mapping[str, str], log: LogCheck) -> None:
        self._target = target
        self._given = given
        self._log = log

    @property
    def pid(self) -> int:
        """The process of whoever judges, which is none of any trial; 0 for none."""
        return self._log.pid

    def judge(self, place: TargetPlace, starts: int, *, suspect: bool = False) -> tuple[OracleVerdict, ...]:
        """What is said of the end in `place` after that many starts; with `suspect` an oracle that can doubts itself."""
        if not self._target.is_judged:
            return ()
        if self._target.workload:
            return judge_end(read_end(place, self._target.workload))
        return (self._run(place, starts),) if self._target.check else self._log.judge(place, suspect=suspect)

    def find_blind(self, place: TargetPlace) -> str:
        """Why the judge of the clean run in `place` proves nothing, "" when it would notice."""
        if not self._target.is_judged:
            return ""
        if self._target.workload:
            kind = find_blind(read_end(place, self._target.workload))
            return f"the judge of {kind} does not notice what was spoiled for it" if kind else ""
        if not self._target.check:
            return ""  # the log oracle doubts itself
        for name, spoil, what in SPOILED:
            spoiled = make_place(place.directory / name)
            try:
                if spoil(place, spoiled) and self._run(spoiled, 1).verdict is Verdict.PASS:
                    return f"the check is content with {what} too, so that it proves nothing"
            finally:
                remove_tree(spoiled.directory)
        return ""

    def _run(self, place: TargetPlace, starts: int) -> OracleVerdict:
        environment = make_environment(self._given, place, starts, is_told=False)
        try:
            done = subprocess.run(
                self._target.check, cwd=place.work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                timeout=self._target.patience_secs,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return OracleVerdict(CHECK, Verdict.UNKNOWN, f"the check did not end within {self._target.patience_secs:g} s")
        except OSError as error:
            return OracleVerdict(CHECK, Verdict.UNKNOWN, f"the check does not start: {error.strerror}")
        finally:
            end_everything(os.getpid(), self.pid)  # what it left running would be told of the next trial's target
        place.output(0).write_bytes(done.stdout)
        place.errors(0).write_bytes(done.stderr)
        verdict = WORDS.get(done.returncode, Verdict.UNKNOWN)
        if verdict is Verdict.PASS:
            return OracleVerdict(CHECK, verdict)
        ended = "" if verdict is Verdict.FAIL else f"the check ended with {done.returncode}: "
        return OracleVerdict(CHECK, verdict, ended + _last_words(done.stdout or done.stderr))


def spoil_contents(place: TargetPlace, spoiled: TargetPlace, share: float) -> bool:
    """Copy what is there, of each file only this share of its bytes: every name stands, and no content is whole."""
    changed = False
    for source, copy in zip(place.given, spoiled.given, strict=True):
        copy_tree(source, copy)
        for file in copy.rglob("*"):
            if file.is_file() and not file.is_symlink() and (size := file.stat().st_size):
                file.chmod(0o600)
                os.truncate(file, int(size * share))
                changed = True
    return changed


SPOILED: tuple[tuple[str, Spoil, str], ...] = (
    ("emptied", lambda place, spoiled: True, "three empty directories"),
    ("hollow", lambda place, spoiled: spoil_contents(place, spoiled, 0.0), "every file there and empty"),
    ("halved", lambda place, spoiled: spoil_contents(place, spoiled, 0.5), "every file cut to its first half"),
)
"""What a check is shown once each, after a sound end: a name for the copy, how it is made, and what it is in words."""


def read_end(place: TargetPlace, steps: int) -> End:
    """What a target of the standard workload has left."""
    return End(steps, _lines(place.outside / WITNESS), _lines(place.work / LEFT), _lines(place.work / RIGHT))


def _lines(file: Path) -> tuple[str, ...]:
    """The lines of a file, none when it is not there. A last line without its end counts as one of its own."""
    try:
        return tuple(file.read_text("utf-8", "replace").splitlines())
    except OSError:
        return ()


def _last_words(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:SHOWN] if lines else "(it said nothing)"
