"""A caller's own tools: Python functions that run as calls, each in a process of its own in the workspace.

    @tool(policy="after-restore")
    def add_line(path: str, text: str) -> int:
        with open(path, "a") as file:
            return file.write(text + "\\n")

    session.run(add_line("notes.txt", "hello"), key="step-3").value

Why a process of its own: what a function writes has to die with its epoch, to be waited for, and to be undone when it is cut. Only a
command is that (S5, S8); the calling process writes no workspace path (S6), and a thread of it that a newer epoch has superseded could
not be stopped. So the function is imported by a fresh interpreter whose current directory is the workspace (run_tool.py), its arguments
come as JSON on standard input, what it prints is the call's output, and what it returns, as JSON, is the value. It shares no variable
with the caller. It may write the workspace as any command may; what it does elsewhere happens at most once per attempt and may be half
done. A function that raises ends with exit code 1 and its traceback in the output: that is a result.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

import msgspec

from eventlog.errors import MisuseError
from eventlog.show import show_text
from recovery.results import CallResult
from recovery.script import TOOL_RUN, BashCall, Effects, Policy, check_effects

P = ParamSpec("P")
T = TypeVar("T")
RUNNER = Path(__file__).with_name("run_tool.py")
PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."


class Tool(msgspec.Struct, Generic[P, T], frozen=True):
    """A function as a tool, by the name (`module:function`) under which another interpreter can import it. Calling it runs nothing: it
    gives the request for a session to run."""

    function: Callable[P, T]
    name: str
    policy: Policy
    effects: Effects
    timeout_secs: float | None

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> "ToolRequest[T]":
        """The request to run it with these. Raises MisuseError for arguments that are no JSON."""
        try:
            given = json.dumps({"arguments": arguments, "named": named}, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise MisuseError(f"tool {self.name}: its arguments must be JSON, as they go to another process: {error}") from error
        run = (TOOL_RUN + self.name).encode()
        return ToolRequest(BashCall(run, self.timeout_secs, self.policy, given.encode(), separate=True, effects=self.effects))


class ToolRequest(msgspec.Struct, Generic[T], frozen=True):
    """A tool with its arguments, as the call that runs it."""

    call: BashCall


class ToolResult(msgspec.Struct, Generic[T], frozen=True):
    """The result of a tool's call, and the value that its function returned."""

    call: CallResult

    @property
    def ok(self) -> bool:
        """Whether the function ran to its end and returned."""
        return self.call.ok

    @property
    def value(self) -> T:
        """What the function returned, as JSON brings it back (a tuple comes as a list). Raises MisuseError where it returned nothing."""
        if not self.ok:
            why = self.call.reason or self.call.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise MisuseError(f"call {self.call.call} has no value, as it did not return: {show_text(why)}")
        if self.call.output is not None and self.call.output.cut:
            raise MisuseError(f"call {self.call.call}: more than is kept was returned; have it write a file and return the path")
        value: T = json.loads(self.call.stdout)
        return value


@overload
def tool(function: Callable[P, T], /) -> Tool[P, T]: ...
@overload
def tool(
    *, policy: Policy = "never", effects: Effects = "inside", timeout_secs: float | None = None
) -> Callable[[Callable[P, T]], Tool[P, T]]: ...
def tool(
    function: Callable[P, T] | None = None, /, *, policy: Policy = "never", effects: Effects = "inside", timeout_secs: float | None = None
) -> Tool[P, T] | Callable[[Callable[P, T]], Tool[P, T]]:
    """Make a function of a module, found there by its name, a tool; `policy` and `effects` as for a call (recovery/README, "Policies").
    `@tool` alone is `@tool()`.

    Raises MisuseError for a function that another process could not find: a lambda, or one inside a function; and for effects outside under
    a policy that would run it again.
    """

    def decorate(function: Callable[P, T]) -> Tool[P, T]:
        name = _name(function)
        check_effects(policy, effects, f"tool {name}")
        return Tool(function, name, policy, effects, timeout_secs)

    return decorate if function is None else decorate(function)


def _name(function: Callable[..., Any]) -> str:
    module, name = str(getattr(function, "__module__", "")), str(getattr(function, "__qualname__", f"<{type(function).__name__}>"))
    where = f"{module}:{name}"
    if not set(module + name) <= set(PLAIN):
        raise MisuseError(
            f"tool {show_text(where)}: another process imports a tool by its name, so it must be a function of a module, "
            "not a lambda and not one inside a function, with a name of ASCII letters"
        )
    return where


def tool_environment() -> dict[str, str]:
    """What a command of a tool finds its interpreter, its runner and its modules by. It stands in no log: elsewhere it is another."""
    main = sys.modules.get("__main__")
    program = os.path.abspath(getattr(main, "__file__", None) or "") if getattr(main, "__file__", None) else ""
    path = [os.path.abspath(one) for one in sys.path]
    return {"TOOL_PYTHON": sys.executable, "TOOL_RUNNER": str(RUNNER), "TOOL_PATH": json.dumps(path), "TOOL_PROGRAM": program}
