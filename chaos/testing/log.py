"""The log that a tool on this engine has left, for the assertions of a test."""

import contextlib
import sys
from pathlib import Path

from chaos.judging import OracleProcess
from chaos.results import OracleVerdict, Verdict
from chaos.target.log_check import LogCheck, find_logs, read_session
from chaos.target.place import TargetPlace
from eventlog.errors import MisuseError


class Log:
    """The one log below the state directory of `place`."""

    def __init__(self, place: TargetPlace) -> None:
        self._place = place

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its events, in order. MisuseError when there is not one log."""
        logs = find_logs(self._place)
        if len(logs) != 1:
            raise MisuseError(f"{self._place.state}: holds {len(logs)} logs of this engine, not one; is the tool a driver of it?")
        return read_session(logs[0], self._place.directory / "copied").kinds

    def judge(self) -> tuple[OracleVerdict, ...]:
        """What the log oracle says of log and workspace, each part of it doubted."""
        places = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
        with contextlib.closing(OracleProcess(places)) as oracle:
            return LogCheck(oracle).judge(self._place, suspect=True)

    def assert_sound(self) -> None:
        """AssertionError with the words of the first oracle that does not say pass."""
        for said in self.judge():
            if said.verdict is not Verdict.PASS:
                raise AssertionError(f"{said.oracle} says {said.verdict}: {said.detail} {said.path}".rstrip())
