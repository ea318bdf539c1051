"""What the simulated engine touches: nothing outside its process."""

import subprocess
import sys

import pytest

from chaos.sim.seams import SEAMS, Seam, simulated
from eventlog.errors import InternalError

WATCHED = """
import sys
from chaos.sim.fixed import enumerate_fixed, make_bench, run_fixed
from chaos.sim.draw import run_drawn
from chaos.sim.naming import Name
from chaos.sim.seams import simulated

touched = []
def watch(event, arguments):
    if is_watched and event.partition(".")[0] in ("open", "os", "socket", "subprocess", "fcntl", "shutil", "tempfile", "ctypes"):
        touched.append((event, repr(arguments)[:80]))
is_watched = False
sys.addaudithook(watch)
with simulated():
    bench = make_bench("sim-repeatable")
    trials = enumerate_fixed(bench).trials[::12]
    run_drawn(Name(3, 1))
    is_watched = True
    results = [run_fixed(bench, trial) for trial in trials] + [run_drawn(Name(3, number)) for number in range(1, 20)]
    is_watched = False
print(len(results) > 25, sorted({one.verdict.value for one in results}), touched[:3])
"""


def test_a_trial_opens_no_file_no_socket_and_no_process() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "True ['pass'] []", done.stdout + done.stderr


def test_the_engine_is_itself_again_afterwards() -> None:
    def look() -> list[object]:
        return [getattr(sys.modules[seam.module], seam.name) for seam in SEAMS if seam.module in sys.modules]

    with simulated():
        during = look()
    after = look()
    assert len(after) == len(SEAMS)
    assert all(one is not other for one, other in zip(during, after, strict=True))


def test_an_engine_without_a_name_of_the_table_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.sim.seams.SEAMS", (*SEAMS, Seam("recovery.restore", "no_such_name", None)))
    with pytest.raises(InternalError, match=r"recovery\.restore\.no_such_name"), simulated():
        pass
    assert not hasattr(sys.modules["recovery.restore"], "no_such_name")
