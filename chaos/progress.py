"""How far a campaign is: a live view with an ETA on a terminal, plain lines elsewhere (one for each tenth, or after five seconds)."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from chaos.results import Signature, TrialResult, Verdict, signature_of

LINE_SECS = 5.0
LINE_SHARE = 0.1
SHOWN = 8


class PlainProgress:
    """Lines for logs. `write` gets whole lines without their end; `clock` counts seconds."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._phase = ""
        self._total = self._done = self._bad = 0
        self._began = self._said_at = clock()
        self._said_done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing to put back."""

    def begin(self, phase: str, total: int) -> None:
        self._phase, self._total = phase, total
        self._done = self._bad = self._said_done = 0
        self._began = self._said_at = self._clock()
        self._write(f"{phase}: {total}")

    def advance(self, result: TrialResult) -> None:
        self._done += 1
        self._bad += result.verdict is not Verdict.PASS
        now = self._clock()
        due = now - self._said_at >= LINE_SECS or self._done - self._said_done >= self._total * LINE_SHARE
        if due or self._done == self._total:
            self._said_at, self._said_done = now, self._done
            elapsed = now - self._began
            left = elapsed / self._done * (self._total - self._done)
            share = 100 * self._done // max(self._total, 1)
            self._write(f"{self._phase} {self._done}/{self._total} ({share} %) not passed {self._bad}, {elapsed:.0f} s, ETA {left:.0f} s")


class _Screen(Progress):
    """The bars, and below them what did not pass, by signature."""

    def __init__(self, *columns: ProgressColumn, console: Console) -> None:
        self.signatures: Counter[Signature] = Counter()
        super().__init__(*columns, console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.signatures:
            yield make_signature_table(self.signatures)


def make_signature_table(signatures: "Counter[Signature]") -> Table:
    """What did not pass so far, by signature, failures and the most frequent first; more than `SHOWN` are counted only."""
    table = Table("trials", "how", "what", box=None, pad_edge=False)
    ordered = sorted(signatures.items(), key=lambda one: (one[0].verdict is not Verdict.FAIL, -one[1]))
    for signature, trials in ordered[:SHOWN]:
        table.add_row(str(trials), signature.verdict.upper(), Text(str(signature), no_wrap=True, overflow="ellipsis"))
    if len(ordered) > SHOWN:
        table.add_row("", "", f"and {len(ordered) - SHOWN} more signatures")
    return table


class TerminalProgress:
    """The live view of a terminal: trials done, their rate, an ETA, and below what did not pass by signature. Use as a context: it takes
    the last lines of the screen and gives them back."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]} per s"),
            TextColumn("not passed {task.fields[bad]}"),
        )  # fmt: skip
        self._screen = _Screen(*columns, TimeElapsedColumn(), TextColumn("ETA"), TimeRemainingColumn(), console=console)
        self._clock = clock
        self._task: TaskID | None = None
        self._bad = self._done = 0
        self._began = clock()

    def __enter__(self) -> Self:
        self._screen.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._screen.stop()

    def render(self) -> RenderableType:
        """What stands on the screen."""
        return Group(*self._screen.get_renderables())

    def begin(self, phase: str, total: int) -> None:
        self._bad = self._done = 0
        self._began = self._clock()
        self._task = self._screen.add_task(phase, total=total, bad=0, rate="-")

    def advance(self, result: TrialResult) -> None:
        if self._task is None:
            return
        self._done += 1
        if result.verdict is not Verdict.PASS:
            self._bad += 1
            self._screen.signatures[signature_of(result)] += 1
        elapsed = self._clock() - self._began
        self._screen.update(self._task, advance=1, bad=self._bad, rate=f"{self._done / elapsed:.1f}" if elapsed else "-")


def make_progress(console: Console) -> PlainProgress | TerminalProgress:
    """The one that suits where the console leads."""
    if console.is_terminal:
        return TerminalProgress(console)
    return PlainProgress(lambda line: print(line, file=console.file, flush=True))
