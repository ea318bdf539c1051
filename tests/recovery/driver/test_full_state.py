"""A state directory without room: the driver ends with "try again", nothing is taken for a result, and the same session goes on later."""

import json
import subprocess

from eventlog import events
from eventlog.reader import Reader
from eventlog.verify import verify
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox, Zygote, bash, sandbox_directory
from tests.recovery.workspace.support import run_with_own_mounts

KIB = 1 << 10
BYTES = 600 * KIB
CALLS = (
    bash('echo one > a; echo one >> "$WITNESS"'),
    bash(f'head -c {BYTES} /dev/urandom > big; echo two >> "$WITNESS"'),
    bash('cat a > b; echo three >> "$WITNESS"'),
)


def drive_until_full(size: int) -> str:
    """One session on a state directory of `size` bytes, then again with room; where the first driver came to."""
    with sandbox_directory() as base:
        sandbox = Sandbox(base)
        sandbox.state.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(sandbox.state)], check=True)
        try:
            session = sandbox.session(*CALLS)
            first = sandbox.run("run", session)
            where = check_first(sandbox, first.code, first.err)
            subprocess.run(["mount", "-o", "remount,size=64m", str(sandbox.state)], check=True)
            again = sandbox.run("run", session)
            assert again.code == 0, f"{size}: {first.err}\n{again.err}"
            check_end(sandbox)
            return where
        finally:
            sandbox.close()
            subprocess.run(["umount", "--lazy", str(sandbox.state)], check=False)


def check_first(sandbox: Sandbox, code: int | None, said: str) -> str:
    """It finished, or it said "try again" and why, and no call that did not end has a result."""
    assert "Traceback" not in said, said
    if code == 0:
        return "finished"
    assert code == 1 and "room" in said, (code, said)
    if not sandbox.log.exists():
        return "no log"
    settled = [number for number, _, _, _ in sandbox.settled()]
    return f"{len(settled)} settled"


def check_end(sandbox: Sandbox) -> None:
    reader = Reader.open(str(sandbox.log))
    assert verify(reader).findings == ()
    reader.close()
    assert sandbox.witnessed() == ["one", "two", "three"], "each command ran once"
    assert [(call, ended) for call, _, ended, _ in sandbox.settled()] == [(1, "finished"), (2, "finished"), (3, "finished")]
    found = read_contents(sandbox.root)
    assert sorted(found) == ["a", "b", "big"] and found["a"] == found["b"] == b"one\n" and len(found["big"] or b"") == BYTES
    assert isinstance(sandbox.events()[-1].event, events.SessionFinished)


def test_case_17_a_driver_without_room_for_its_state_tries_again_and_finishes_when_there_is_some() -> None:
    def at_all_sizes() -> None:
        Zygote._process = None  # the one of the test process lives among its mounts
        try:
            ends = {size: drive_until_full(size * KIB) for size in SIZES}
        finally:
            if Zygote._process is not None:
                Zygote._process.kill()
                Zygote._process.wait()
        print(json.dumps(ends))
        assert {"no log", "1 settled", "finished"} <= set(ends.values()), ends

    run_with_own_mounts(at_all_sizes)


SIZES = (400, 700, 750, 900, 1200, 1600, 2400)
