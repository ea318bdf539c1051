"""A caller's own tools: Python functions that run as calls, each in a process of its own; and the asyncio face."""

import asyncio
import functools
import subprocess
import sys
from typing import Any

import pytest

from eventlog.errors import MisuseError
from recovery.aio import open_session_async
from recovery.session import Session, open_session
from recovery.tools import tool
from tests.helpers import read_contents, wait_until
from tests.recovery.sessions import PROJECT, Sandbox
from tests.recovery.tools_of_a_program import add_line, fail

PROGRAM = '''
import sys
from recovery.session import open_session
from recovery.tools import tool

@tool()
def square(number: int) -> int:
    return number * number

if __name__ == "__main__":
    with open_session(sys.argv[1], sys.argv[2]) as session:
        print(session.run(square(7), key="one").value)
'''


def test_a_tool_runs_once_for_its_key_in_a_process_of_its_own_and_gives_its_value(sandbox: Sandbox) -> None:
    for is_recorded in (False, True):
        with open_session(sandbox.state, sandbox.root, environ=sandbox.environment(None, ())) as session:
            result = session.run(add_line("a", "x", times=2), key="one")
        assert result.ok and result.value == {"size": 4, "where": "work"} and result.call.is_recorded == is_recorded
        assert result.call.stderr == b"printed\n", "what it prints is not its value"
    assert read_contents(sandbox.root) == {"a": b"x\nx\n"} and len(sandbox.witnessed()) == 1


def test_a_tool_with_other_arguments_is_another_call(sandbox: Sandbox) -> None:
    with open_session(sandbox.state, sandbox.root, environ=sandbox.environment(None, ())) as session:
        session.run(add_line("a", "x"), key="one")
        with pytest.raises(MisuseError, match="a key names one call for good"):
            session.run(add_line("a", "y"), key="one")


def test_a_tool_that_raises_is_a_result_without_a_value(sandbox: Sandbox) -> None:
    with open_session(sandbox.state, sandbox.root, environ=sandbox.environment(None, ())) as session:
        raised = session.run(fail("luck"), key="one")
        assert not raised.ok and raised.call.exit is not None and raised.call.exit.code == 1
        with pytest.raises(MisuseError, match="ValueError: no luck"):
            assert raised.value
        left = session.run(fail("exit"), key="two")
        assert left.call.exit is not None and left.call.exit.code == 3


def test_a_tool_of_a_program_itself_is_found_by_the_program_s_file(sandbox: Sandbox) -> None:
    program = sandbox.base / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(sandbox.state), str(sandbox.root)],
        env=sandbox.environment(None, ()), capture_output=True, text=True, check=False, cwd=sandbox.base,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("49\n", 0), done.stderr


def test_only_its_program_runs_a_cut_tool_again(sandbox: Sandbox) -> None:
    """A driver without the program's tools does nothing and says what to do; the program then has it run, under the same provider key."""
    environment = sandbox.environment(1, ("driver@1:intent.commit.after:1",))
    program = sandbox.base / "tool_program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(PROJECT)!r})\n"
        "from recovery.session import open_session\nfrom tests.recovery.tools_of_a_program import add_line\n"
        "with open_session(sys.argv[1], sys.argv[2]) as session:\n    assert session.run(add_line('a', 'x'), key='one').ok\n"
    )
    command = [sys.executable, str(program), str(sandbox.state), str(sandbox.root)]
    with subprocess.Popen(command, env=environment) as process:
        sandbox.steps.kill("driver@1:intent.commit.after:1")
        assert process.wait() == -9
    head = None
    for _ in range(2):
        driver = sandbox.run("drive", sandbox.state)
        assert driver.code == 78 and "start that program again" in driver.err, driver.err
        kinds = [stored.event.kind for stored in sandbox.events() if stored.event.kind not in ("driver_started", "recovery_decided")]
        assert head in (None, kinds)
        head = kinds
    subprocess.run(command, env=sandbox.environment(None, ()), check=True)
    assert read_contents(sandbox.root) == {"a": b"x\n"}
    (line,) = sandbox.witnessed()
    provider, key = line.split()
    assert key == f"{provider}/2/1", "the second attempt, and the key of the call"


@pytest.mark.parametrize("arguments", [(object(),), ({1, 2},), (float("nan"),)])
def test_arguments_that_are_no_json_are_refused(arguments: Any) -> None:
    with pytest.raises(MisuseError, match="its arguments must be JSON"):
        add_line(*arguments)


def test_what_another_process_cannot_import_is_no_tool() -> None:
    def inner() -> None:
        """Nobody finds this one."""

    for function in (inner, lambda: None, functools.partial(print)):
        with pytest.raises(MisuseError, match="another process imports a tool by its name"):
            tool()(function)


@pytest.mark.parametrize("policy", ["safe", "after-restore"])
def test_a_tool_that_acts_outside_is_never_run_again(policy: Any) -> None:
    with pytest.raises(MisuseError, match="no restore takes back what it did outside"):
        tool(policy=policy, effects="outside")(fail.function)
    assert tool(policy="ask", effects="outside")(fail.function).effects == "outside"


def test_the_asyncio_face_does_what_the_session_does(sandbox: Sandbox) -> None:
    environ = sandbox.environment(None, ())

    async def work() -> None:
        async with open_session_async(sandbox.state, sandbox.root, environ=environ) as session:
            results = await asyncio.gather(*(session.do(Session.bash, f"echo {n} >> a", key=f"k{n}") for n in range(3)))
            assert all(result.ok for result in results), "one after the other"
            value = await session.do(lambda held: held.run(add_line("b", "x"), key="tool").value)
            assert value["size"] == 2
        with pytest.raises(KeyError, match="mine"):
            async with open_session_async(sandbox.state, sandbox.root, environ=environ):
                raise KeyError("mine")
        with pytest.raises(MisuseError, match="needs Python|not a directory"):
            async with open_session_async(sandbox.base / "s2", sandbox.base / "none", environ=environ):
                raise AssertionError("it was opened")

    asyncio.run(work())
    assert read_contents(sandbox.root) == {"a": b"0\n1\n2\n", "b": b"x\n"}


def test_a_cancelled_task_takes_nothing_back(sandbox: Sandbox) -> None:
    run = "echo began >> $WITNESS; until test -e $GATE; do sleep 0.05; done; echo x > a"
    environ = sandbox.environment(None, ())

    async def work() -> None:
        async with open_session_async(sandbox.state, sandbox.root, environ=environ) as session:
            task = asyncio.create_task(session.do(Session.bash, run, key="one"))
            await asyncio.to_thread(wait_until, lambda: bool(sandbox.witnessed()), "the command's beginning")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            sandbox.open_gate()
            assert (await session.do(Session.bash, run, key="one")).is_recorded

    asyncio.run(work())
    assert sandbox.witnessed() == ["began"] and read_contents(sandbox.root) == {"a": b"x\n"}
