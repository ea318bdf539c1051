"""How far a campaign is: a bar with an ETA on a terminal, plain lines elsewhere (one for each tenth, or after five seconds)."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from chaos.results import TrialResult, Verdict

LINE_SECS = 5.0
LINE_SHARE = 0.1


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


class TerminalProgress:
    """A bar on a terminal. Use as a context: it takes the last line of the screen and gives it back."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("not passed {task.fields[bad]}"))
        self._progress = Progress(*columns, TimeElapsedColumn(), TextColumn("ETA"), TimeRemainingColumn(), console=console)
        self._task: TaskID | None = None
        self._bad = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def begin(self, phase: str, total: int) -> None:
        self._bad = 0
        self._task = self._progress.add_task(phase, total=total, bad=0)

    def advance(self, result: TrialResult) -> None:
        if self._task is not None:
            self._bad += result.verdict is not Verdict.PASS
            self._progress.update(self._task, advance=1, bad=self._bad)


def make_progress(console: Console) -> PlainProgress | TerminalProgress:
    """The one that suits where the console leads."""
    if console.is_terminal:
        return TerminalProgress(console)
    return PlainProgress(lambda line: print(line, file=console.file, flush=True))
