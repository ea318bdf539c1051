"""Kills in system calls by strace: the command that makes one, and the proof that it was made. Pure.

    strace -D -y -o TRACE -s 0 -e trace=SET [-e inject=CALL:...:when=N] -- COMMAND
    strace -y -o TRACE -s 0 -e trace=SET [-e inject=CALL:...:when=N] -p PID

- `-D` makes the tracer a grandchild, so that COMMAND is the runner's own child and its wait status is read by `waitpid`. Without it
  strace is the parent and ends by the signal of its tracee: a killed strace would look like a killed driver.
- Without `-f` one process is traced, by its first thread: ordinals count there, and helpers and commands run untouched. A helper is
  attached to by its pid while nothing happens; ordinals count from there.
- Never `--seccomp-bpf`: with it an injected signal does not fire, and strace still ends with 0.
- Signals stay in the trace: without them the line `+++ killed by SIGKILL +++` is missing too.
- Before a call, `signal=KILL`: the signal is raised on entering, and a process that is to die of it never carries the call out. strace
  marks no such call `(INJECTED)`; what it writes of a call that was entered and never left is `= ?`.
- After a call, `delay_exit`: the call is carried out, strace writes its line with `(DELAYED)` at the end, and holds the process there,
  before it can see the result. The runner then kills it from outside, and strace after it: that would keep a dead process to the
  delay's end, so that such a trace ends with the call.

A kill is therefore proved by two things together: the wait status shows signal 9 (of a helper before a call, which is not the runner's
child, strace's own reading of that status: `+++ killed by SIGKILL +++`), and the last call of the trace is the N-th pass of CALL, entered
and never left, or held after it was carried out. Less than that is no kill.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.syscalls.calls import KINDS, Target

HOLD_MICROSECONDS = 600_000_000
"""How long strace holds a process after a call: far above any wait for the runner's kill."""
HELD = "(DELAYED)"
KILLED = "killed by SIGKILL"
_CALL = re.compile(r"(?P<name>[a-z0-9_]+)\((?P<arguments>.*)\) += (?P<result>.+)\Z")
_UNFINISHED = re.compile(r"\?( <unavailable>)?\Z")
_OTHERS = re.compile(r'"/proc/\d+/')
_END = re.compile(r"\+\+\+ (?P<end>.+) \+\+\+\Z")
_DESCRIPTOR = re.compile(r"\d+<(?P<path>[^>]*)>")
_NAME = re.compile(r'"(?P<name>[^"]*)"')


class TraceError(ValueError):
    """A trace that cannot be read: nothing is proved by it."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One system call of the traced process: the `count`-th of its `name`. Not `finished`: entered and never left. `held`: strace held the
    process after it. `what` are the files it names, without their directories; `counts` whether it is one of those that are killed in: not
    one that opens what is there, nor any that opens once the process has looked at others, which makes ordinals those of one moment."""

    name: str
    count: int
    finished: bool
    held: bool = False
    what: str = ""
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls in order, and how the process ended in strace's words (`exited with 0`, `killed by SIGKILL`); `HELD` where strace was
    killed while it held it."""

    passes: tuple[Pass, ...]
    end: str


def build_command(tracer: str, trace: str, command: Sequence[str], target: Target | None) -> list[str]:
    """The command that runs `command` traced into the file `trace`, and kills or holds it at `target`."""
    return [tracer, "-D", *_words(trace, target), "--", *command]


def build_attaching(tracer: str, trace: str, pid: int, target: Target | None) -> list[str]:
    """The command that traces the process `pid` from now on, likewise."""
    return [tracer, *_words(trace, target), "-p", str(pid)]


def _words(trace: str, target: Target | None) -> list[str]:
    # A question mark: this machine may lack the call (there is no rename on arm64).
    watched = ",".join(f"?{name}" for names in KINDS.values() for name in names)
    words = ["-y", "-o", trace, "-s", "0", "-e", f"trace={watched}"]
    if target is None:
        return words
    done = "signal=KILL" if target.moment == "before" else f"delay_exit={HOLD_MICROSECONDS}"
    return [*words, "-e", f"inject={target.name}:{done}:when={target.count}"]


def parse_trace(text: str) -> Trace:
    """Read what strace wrote. TraceError when a line is none of strace's, or when the end is missing."""
    seen: Counter[str] = Counter()
    passes: list[Pass] = []
    lines = text.splitlines()
    is_alone = True
    last = lines[-1] if lines and text.endswith("\n") else ""
    for number, line in enumerate(lines if last.endswith(HELD) else lines[:-1], 1):
        if line.startswith("--- "):
            continue
        call = _CALL.match(line)
        if call is None:
            raise TraceError(f"line {number} of the trace is not understood: {line[:200]}")
        seen[call["name"]] += 1
        is_alone = is_alone and _OTHERS.search(line) is None
        passes.append(_read_pass(call, seen[call["name"]], is_alone))
    end = _END.match(last)
    if end is None and not last.endswith(HELD):
        raise TraceError(f"the trace does not say how the process ended; its last line: {lines[-1][:200] if lines else '(it is empty)'}")
    return Trace(tuple(passes), end["end"] if end else HELD)


def _read_pass(call: "re.Match[str]", count: int, is_alone: bool) -> Pass:
    name, arguments, result = call["name"], call["arguments"], call["result"]
    named = [one["name"] for one in _NAME.finditer(arguments) if one["name"]] or [one["path"] for one in _DESCRIPTOR.finditer(arguments)]
    what = " to ".join(path.rpartition("/")[2] for path in named[:2])
    counts = name not in ("open", "openat", "openat2") or ("O_CREAT" in arguments and is_alone)
    return Pass(name, count, _UNFINISHED.match(result) is None, result.endswith(HELD), what, counts)


def find_doubt(trace: Trace, target: Target, code: int | None) -> str:
    """Why the kill at `target` is not proved; "" when it is. `code` is the process's exit code or minus its signal, None where only strace
    has read it."""
    if code not in (-9, None):
        return f"the wait status is {code}, not the one of signal 9"
    end = KILLED if target.moment == "before" else HELD
    if trace.end != end:
        return f"the trace ends with {trace.end!r}"
    last = trace.passes[-1] if trace.passes else None
    if last is None or last.finished == (target.moment == "before"):
        return "the trace ends outside of any call"
    if (last.name, last.count) != (target.name, target.count):
        return f"the process died in its {last.name} {last.count}, not in its {target}"
    if target.moment == "after" and code is None:
        return "nobody read the wait status of the process"
    return "" if last.counts else f"its {target} makes no file"
