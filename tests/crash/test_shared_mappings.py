"""A process of the space that lives across a scan stores through a mapping: neither of the file's times moves, the image has the store.

Section 6 of the design: files mapped shared by processes of the space that live across the scan are always read again.
"""

import os
import shlex
import sys

import pytest
from blake3 import blake3

from recovery.opening import read_log
from recovery.space.marks import find_cgroup_base
from tests.helpers import is_running, wait_until
from tests.recovery.sessions import Sandbox, bash

SIZE = 4096
STORES = """
import mmap, os, sys, time
base, leaves = sys.argv[1], len(sys.argv) > 2
if leaves:
    leaf = os.environ["CRASHWORTHY_MARK"].partition(":")[2]
    open(os.path.dirname(os.path.dirname(leaf)) + "/cgroup.procs", "w").write("0")
with open("mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    for number in (1, 2):
        deadline = time.monotonic() + 60
        while not os.path.exists(f"{base}/go{number}") and time.monotonic() < deadline:
            time.sleep(0.002)
        mapped[0] = number
        with open(f"{base}/stored{number}.new", "w") as told:
            told.write(str(os.getpid()))
        os.rename(f"{base}/stored{number}.new", f"{base}/stored{number}")
    if leaves:
        time.sleep(60)
"""
"""Stores 1 when it is let, then 2 into the page that is dirty already."""


def storing(sandbox: Sandbox, *more: str) -> str:
    """The shell command that runs STORES."""
    return shlex.join([sys.executable, "-c", STORES, str(sandbox.base), *more])


def let_store(sandbox: Sandbox, number: int) -> None:
    (sandbox.base / f"go{number}").touch()
    wait_until((sandbox.base / f"stored{number}").exists, f"store {number}")


def assert_image_has(sandbox: Sandbox, store: int) -> None:
    content = bytes([store]) + bytes(SIZE - 1)
    assert (sandbox.root / "mapped").read_bytes() == content
    assert read_log(str(sandbox.state)).image[b"mapped"].content == blake3(content).digest()


@pytest.mark.parametrize("mark", ["auto", "environment"])
def test_a_store_of_a_claimed_command_between_two_scans_is_in_its_outcome(sandbox: Sandbox, mark: str) -> None:
    """The scan at the takeover reads the file while the command holds it mapped; the outcome's must read it again."""
    (sandbox.root / "mapped").write_bytes(bytes(SIZE))
    driver = sandbox.start("run", sandbox.session(bash(storing(sandbox))), epoch=1, SESSION_KILL_MARK=mark)
    let_store(sandbox, 1)
    driver.kill()
    second = sandbox.start("drive", sandbox.state, epoch=2, SESSION_KILL_MARK=mark)
    wait_until(lambda: sandbox.labels() == ["reattach"], "the decision to reattach")
    let_store(sandbox, 2)
    assert second.end() == 0, second.err
    assert_image_has(sandbox, 2)


def test_a_store_of_what_left_its_cgroup_is_in_the_calls_own_outcome(sandbox: Sandbox) -> None:
    """A background child that, as root, moved itself out of the cgroups of its space is ended with its call, before the outcome's scan."""
    if os.geteuid() != 0 or not find_cgroup_base():
        pytest.skip("only root may move itself to another cgroup, and only cgroups can be left")
    (sandbox.root / "mapped").write_bytes(bytes(SIZE))
    base = shlex.quote(str(sandbox.base))
    script = f"{storing(sandbox, 'leaves')} > /dev/null 2>&1 & touch {base}/go1; until [ -e {base}/stored1 ]; do sleep 0.01; done"
    driver = sandbox.run("run", sandbox.session(bash(script), bash(f"touch {base}/go2")), epoch=1)
    assert driver.code == 0, driver.err
    assert not is_running(int((sandbox.base / "stored1").read_text())) and not (sandbox.base / "stored2").exists()
    assert_image_has(sandbox, 1)
