"""One clean run under the recorder, and what came of it: the history from which every cut is made."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.drivers import Place, driver_environment, start_driver
from chaos.judging import OracleProcess
from chaos.powerloss.device import KEPT, STRICT, build, cut_after
from chaos.powerloss.disk import read_attributes, read_logged
from chaos.powerloss.events import Event, encode_event, read_events
from chaos.powerloss.history import History, find_strange, read_history
from chaos.powerloss.recorder import LOGGED, Instant, Recorder, look_at_all
from chaos.powerloss.vfs import RecordingVfs
from chaos.processes import end_everything, reap_all, wait_all_ended, wait_readable
from chaos.saved import SavedState
from chaos.scenario import Scenario
from chaos.stage import Ended, left_behind
from eventlog import durable, steps

RECORD = "record"
RECORD_SECS = 300.0
"""How long the recorded driver may take: each thing it does to the disk is written down with a look at all its files, which on a busy
machine takes a multiple of what a plain driver needs."""
QUIET_SECS = 10.0
REBUILT = ("ledger.end",)
"""Files whose content nobody announces, since whatever they hold is right: notes that may be older than what they tell of."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one clean run left. `epoch` is its driver's, `others` are the outputs of drivers before it by the names of their files, `output`
    and `witness` what it said and what commands noted; `attributes` are those of the root. `record` is what `history` was read from."""

    history: History
    epoch: int
    before: SavedState
    code: int
    others: dict[str, bytes]
    output: bytes
    witness: bytes
    attributes: dict[str, bytes]
    record: bytes = b""

    def without(self, point: str) -> "Recorded":
        """The same run, whose syncs of one point cover nothing."""
        return replace(self, history=read_history(read_events(self.record), point))


def record_run(
    scenario: Scenario, place: Place, before: SavedState, oracle: OracleProcess, record: Path | None = None, instant: Instant | None = None
) -> Recorded:
    """Drive the session in `place` to its end with the recorder in all its processes; the record is written to `record`, in `place` when
    None, and at `instant` something else is done. TimeoutError, OSError, ValueError: the record is no good."""
    epoch = max((ended.epoch for ended in before.ends), default=0) + 1
    others = {path.name: path.read_bytes() for path in place.directory.glob("driver-*")}
    record = record or place.directory / RECORD
    first = Event("driver@1", "look", "beginning", "", False, 0, b"", 0, 0, look_at_all(place.directory), [])
    record.write_bytes(encode_event(first))
    recorder = Recorder(place.directory, record, place.output(epoch), instant)
    kept: list[object] = []

    def prepare() -> None:
        steps.install(recorder)
        durable.observe(recorder)
        kept.append(RecordingVfs(recorder))

    environment = driver_environment(place, epoch, frozenset(), frozenset())
    code = _wait(start_driver(scenario, place, epoch, "fork", environment, prepare))
    if wait_all_ended(left_behind(oracle.pid), QUIET_SECS):
        reap_all(oracle.pid)
    end_everything(os.getpid(), oracle.pid)
    data = record.read_bytes()
    history = read_history(read_events(data))
    output, witness = _read(place.output(epoch)), _read(place.witness)
    history.trouble += _find_trouble(history, place)
    return Recorded(history, epoch, before, code, others, output, witness, read_attributes(place.work), data)


def _wait(pid: int) -> int:
    descriptor = os.pidfd_open(pid)
    try:
        wait_readable(descriptor, RECORD_SECS, "the recorded driver to end")
    finally:
        os.close(descriptor)
    status = os.waitpid(pid, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _find_trouble(history: History, place: Place) -> list[str]:
    """Why the record is no base for cuts: nothing of some kind in it, or the disk holds what it does not tell of."""
    if not history.points:
        return ["the recorder has recorded no sync at all"]
    cut = cut_after(history.operations, len(history.operations), STRICT)
    built = build(cut, (KEPT,) * len(cut.pending)).list_paths(history.is_directory)
    strange = find_strange(built, read_logged(place, LOGGED))
    found = [path for path in strange if path.rpartition("/")[2] not in REBUILT]
    return [f"not recorded as it is: {', '.join(found[:5])}"] if found else []


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def ended(recorded: Recorded) -> tuple[Ended, ...]:
    """The drivers of a trial so far, the recorded one dead of the cut."""
    return (*recorded.before.ends, Ended(recorded.epoch, -9))
