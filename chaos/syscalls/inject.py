"""Kills in system calls by strace: the command that makes one, and the proof that it was made. Pure.

    strace -D -o TRACE -s 0 -e trace=SET [-e inject=CALL:signal=KILL:when=N] -- COMMAND

- `-D` makes the tracer a grandchild, so that COMMAND is the runner's own child and its wait status is read by `waitpid`. Without it
  strace is the parent and ends by the signal of its tracee: a killed strace would look like a killed driver.
- Without `-f` one process is traced, by its first thread: ordinals count there, and helpers and commands run untouched.
- Never `--seccomp-bpf`: with it an injected signal does not fire, and strace still ends with 0.
- Signals stay in the trace: without them the line `+++ killed by SIGKILL +++` is missing too.
- The signal is raised on entering the call, and a process that is to die of it never carries the call out. strace marks no such call
  `(INJECTED)`; what it writes of a call that was entered and never left is `= ?`.

A kill is therefore proved by three things together: the wait status shows signal 9, the trace ends with `+++ killed by SIGKILL +++`, and
the last call of the trace is the N-th pass of CALL, entered and never left. Less than that is no kill.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.step import Step, format_step, parse_step

KINDS = {
    "pwrite64": ("pwrite64",),
    "fdatasync": ("fdatasync", "fsync"),
    "rename": ("rename", "renameat", "renameat2"),
    "clone": ("clone", "clone3", "fork", "vfork"),
}
"""What is killed in, by kind; which calls of a kind a driver makes depends on the C library and the machine."""

ROLE = "driver"
PREFIX = "syscall."
_KILLED = "killed by SIGKILL"
_CALL = re.compile(r"(?P<name>[a-z0-9_]+)\(.*\) += (?P<result>.+)\Z")
_UNFINISHED = re.compile(r"\?( <unavailable>)?\Z")
_END = re.compile(r"\+\+\+ (?P<end>.+) \+\+\+\Z")


class TraceError(ValueError):
    """A trace that cannot be read: nothing is proved by it."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One system call of the traced process: the `count`-th of its `name`. Not `finished`: entered and never left."""

    name: str
    count: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls in order, and how the process ended in strace's words (`exited with 0`, `killed by SIGKILL`)."""

    passes: tuple[Pass, ...]
    end: str


def build_command(tracer: str, trace: str, command: Sequence[str], target: Pass | None) -> list[str]:
    """The command that runs `command` traced into the file `trace`, and kills it on entering `target`."""
    # A question mark: this machine may lack the call (there is no rename on arm64).
    watched = ",".join(f"?{name}" for names in KINDS.values() for name in names)
    words = [tracer, "-D", "-o", trace, "-s", "0", "-e", f"trace={watched}"]
    if target is not None:
        words += ["-e", f"inject={target.name}:signal=KILL:when={target.count}"]
    return [*words, "--", *command]


def parse_trace(text: str) -> Trace:
    """Read what strace wrote. TraceError when a line is none of strace's, or when the end is missing."""
    seen: Counter[str] = Counter()
    passes = []
    lines = text.splitlines()
    for number, line in enumerate(lines[:-1], 1):
        if line.startswith("--- "):
            continue
        call = _CALL.match(line)
        if call is None:
            raise TraceError(f"line {number} of the trace is not understood: {line[:200]}")
        seen[call["name"]] += 1
        passes.append(Pass(call["name"], seen[call["name"]], _UNFINISHED.match(call["result"]) is None))
    end = _END.match(lines[-1]) if lines and text.endswith("\n") else None
    if end is None:
        raise TraceError(f"the trace does not say how the process ended; its last line: {lines[-1][:200] if lines else '(it is empty)'}")
    return Trace(tuple(passes), end["end"])


def find_doubt(trace: Trace, target: Pass, code: int) -> str:
    """Why the kill on entering `target` is not proved; "" when it is. `code` is the process's exit code or minus its signal."""
    if code != -9:
        return f"the wait status is {code}, not the one of signal 9"
    if trace.end != _KILLED:
        return f"the trace ends with {trace.end!r}"
    last = trace.passes[-1] if trace.passes else None
    if last is None or last.finished:
        return "the trace ends outside of any call"
    if (last.name, last.count) != (target.name, target.count):
        return f"the process died in its {last.name} {last.count}, not in its {target.name} {target.count}"
    return ""


def format_pass(one: Pass) -> str:
    """The step of a pass in the first driver: `driver@1:syscall.NAME:N`."""
    return format_step(Step(ROLE, 1, PREFIX + one.name, one.count))


def parse_target(step: str) -> Pass:
    """The pass that a step names. ValueError when it is no system call of the first driver."""
    parsed = parse_step(step)
    name = parsed.name.removeprefix(PREFIX)
    if (parsed.role, parsed.epoch) != (ROLE, 1) or name == parsed.name:
        raise ValueError(f"{step} is no system call of the first driver; write {ROLE}@1:{PREFIX}NAME:N")
    return Pass(name, parsed.count, finished=False)
