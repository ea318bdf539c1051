"""The log oracle over a target that is a driver of this engine: its state directory holds a log, which its workspace must equal."""

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from chaos.drivers import Place
from chaos.judging import OracleProcess
from chaos.results import OracleVerdict, Verdict
from chaos.target.place import TargetPlace
from chaos.target.target import CHECK
from chaos.trees import remove_tree
from eventlog.errors import CrashworthyError, MisuseError
from eventlog.reader import Reader

LOG = "log.sqlite"


@dataclass(frozen=True, slots=True)
class KnownSession:
    """What the oracle has to be told of a session: its stream, and how many calls its script has. `kinds` are those of its events."""

    stream: str
    script_length: int
    kinds: tuple[str, ...]


class LogCheck:
    """Asks the oracle. What a target writes is its own affair: no plain run stands beside it, so that order, chain, laundering and the
    workspace are judged, and output and effects outside are not."""

    def __init__(self, oracle: OracleProcess) -> None:
        self._oracle = oracle

    @property
    def pid(self) -> int:
        """The oracle's process, which is none of any trial."""
        return self._oracle.pid

    def judge(self, place: TargetPlace, *, suspect: bool = False) -> tuple[OracleVerdict, ...]:
        """What the oracle says of the one log below the state directory; with `suspect` each part of it is doubted."""
        logs = find_logs(place)
        if len(logs) != 1:
            found = "CHAOS_STATE holds no log of this engine" if not logs else f"CHAOS_STATE holds {len(logs)} logs of this engine"
            return (OracleVerdict(CHECK, Verdict.UNKNOWN, f"nobody judges this target: {found}; give --check CMD or --workload N"),)
        try:
            session = read_session(logs[0], place.directory / "copied")
        except (CrashworthyError, OSError) as error:
            return (OracleVerdict(CHECK, Verdict.UNKNOWN, f"the log cannot be read: {error}"),)
        scratch = place.directory / "scratch"
        scratch.mkdir(exist_ok=True)
        asked: dict[str, object] = {
            "log": str(logs[0]), "scratch": str(scratch), "stream": session.stream, "workspace": str(place.work), "witness": None,
            "witnessed": [], "acknowledged": None, "reference": None, "reference_outputs": None, "reference_exits": None,
            "on_interrupted": "stop", "script_length": session.script_length, "expect_finished": True, "outside_edits": False,
            "superseded": [], "quarantine": str(Place(place.directory).find_quarantine()), "suspect": suspect,
        }  # fmt: skip
        verdicts = self._oracle.judge(asked).verdicts
        remove_tree(scratch)
        return verdicts


def find_logs(place: TargetPlace) -> list[Path]:
    """The logs below a state directory."""
    return sorted(place.state.rglob(LOG))


def read_session(log: Path, copies: Path) -> KnownSession:
    """The log's own session, read from a copy: a plain open of a killed log would change it. Raises CrashworthyError, OSError."""
    copies.mkdir()
    try:
        for file in log.parent.glob(f"{LOG}*"):
            if not file.name.endswith("-shm"):
                shutil.copyfile(file, copies / file.name)
        with contextlib.closing(Reader.open(str(copies / LOG))) as reader:
            stream = next((row.id for row in reader.streams() if row.origin is None and row.parent is None), None)
            if stream is None:
                raise MisuseError(f"{log}: holds no session that began in it, only forks or imported ones; give --check CMD")
            events = [stored.event for stored in reader.events(stream)]
        # What the session was opened for, not what it came to: calls that are missing at its end are no shorter script.
        script = len(getattr(events[0], "script", ())) if events else 0
        indexes = [index for event in events if (index := getattr(event, "script_index", None)) is not None]
        return KnownSession(stream, max(script, 1 + max(indexes, default=-1)), tuple(event.kind for event in events))
    finally:
        remove_tree(copies)
