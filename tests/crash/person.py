"""Sessions for a person's commands: three finished calls, then a restore to the first."""

from eventlog import events
from tests.recovery.sessions import Driver, Sandbox, Table, bash

CALLS = (bash("echo one > a"), bash("echo two > a; echo new > b"), bash("exit 1"))


def begun(sandbox: Sandbox, calls: tuple[Table, ...] = CALLS) -> int:
    """Finished calls, stopped before the end of the session; the seq of the first one's outcome."""
    driver = sandbox.start("run", sandbox.session(*calls), epoch=1, wait=("driver@1:finish.commit.before:1",))
    sandbox.steps.kill("driver@1:finish.commit.before:1", driver)
    driver.end()
    return next(stored.seq for stored in sandbox.events() if isinstance(stored.event, events.CallSettled))


def restore(sandbox: Sandbox, seq: int, expect: int = 0) -> Driver:
    """A person's restore to `seq`."""
    done = sandbox.run("restore", sandbox.state, "--at", str(seq), "--workspace", sandbox.root)
    assert done.code == expect, done.out + done.err
    return done


def finish(sandbox: Sandbox) -> None:
    """Drive the session to its end, without the calls that a restore undid."""
    sandbox.drive("--on-interrupted", "continue")
