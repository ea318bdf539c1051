"""The good trial that every oracle passes, for tests to spoil."""

from pathlib import Path

import pytest

from chaos.oracle.listing_json import listing_to_json
from chaos.oracle.tree import list_tree
from tests.chaos.oracle.log_builder import Trial


def build_restored(home: Path) -> Trial:
    """Two script calls; the second one's first attempt was killed by way of its driver, restored, and run again.

    seq 1 session_opened, 2 driver 1, 3 attempt 1.1, 4 settled 1, 5 attempt 2.1, 6 driver 2, 7 recovery_decided, 8 quarantined,
    9 restore_finished, 10 attempt 2.2, 11 settled 2, 12 synced, 13 session_finished.
    """
    trial = Trial(home)
    (trial.work / "notes").mkdir()
    (trial.work / "notes" / "a.txt").write_text("a")
    trial.open()
    trial.drive()
    trial.start(1, note="start end")
    (trial.work / "log.txt").write_text("one\n" * 50)
    (trial.work / "link").symlink_to("log.txt")
    settled = trial.finish(1, output=b"first\n")
    trial.start(2, note="start")
    successor = trial.drive()
    trial.restore(2, settled, ["1/notes/b.txt", "1/other"])
    trial.start(2, attempt=2, index=1, note="start end")
    (trial.work / "notes" / "b.txt").write_text("b")
    trial.finish(2, attempt=2, output=b"second\n")
    trial.append("synced", root=trial.events[-1].payload["root"], boot_id="boot-1")
    trial.end()
    trial.request["superseded"] = [[1, successor]]
    trial.request["reference"] = listing_to_json(list_tree(bytes(trial.work)))
    trial.request["reference_outputs"] = {"0": b"first\n".hex(), "1": b"second\n".hex()}
    trial.request["reference_exits"] = {index: {"kind": "exited", "code": 0, "signal": None} for index in ("0", "1")}
    return trial


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """`build_restored`, not written yet."""
    return build_restored(tmp_path / "trial")
