"""Which system calls are killed in, and how a kill is named: `ROLE@1:syscall.NAME.MOMENT:N`. Pure.

In place of 1 stands the start of a target. N counts the calls of NAME in one process: from its start in a driver, from the moment it is
attached to in a helper. MOMENT is `before` (on entering: the call is not carried out) or `after` (it was carried out, and nothing that
follows it).
"""

from dataclasses import dataclass
from typing import Literal, get_args

from chaos.step import Step, format_step, parse_step

Moment = Literal["before", "after"]
MOMENTS: tuple[Moment, ...] = get_args(Moment)

KINDS = {
    "pwrite64": ("pwrite64",),
    "write": ("write",),
    "fdatasync": ("fdatasync", "fsync"),
    "rename": ("rename", "renameat", "renameat2"),
    "link": ("link", "linkat"),
    "unlink": ("unlink", "unlinkat"),
    "create": ("creat", "open", "openat", "openat2"),
    "clone": ("clone", "clone3", "fork", "vfork"),
    "kill": ("kill", "tgkill", "pidfd_send_signal"),
}
"""What is killed in, by kind; which calls of a kind a process makes depends on the C library and the machine. Of the calls of `create`
only those count as passes that may make a file (`creat`, or with O_CREAT)."""
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}

PREFIX = "syscall."
ROLES = {"driver": "", "spawner": "spawner", "shim.1": "shim", "worker": "file worker"}
"""Whose calls are killed in, with the name that such a process gives itself (a driver is found as the child that it is)."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where one process is killed: before or after its `count`-th call of `name`."""

    name: str
    count: int
    moment: Moment = "before"

    def __str__(self) -> str:
        return f"{self.name} {self.count}"


@dataclass(frozen=True, slots=True)
class Aim:
    """A target in the process that has `role`, in the start of this number."""

    role: str
    target: Target
    start: int = 1


def format_aim(aim: Aim) -> str:
    """The step of an aim: `ROLE@START:syscall.NAME.MOMENT:N`."""
    return format_step(Step(aim.role, aim.start, f"{PREFIX}{aim.target.name}.{aim.target.moment}", aim.target.count))


def parse_aim(step: str, start: int = 1) -> Aim:
    """The aim that a step of this start names; a step without a moment is the one before the call. ValueError when it names none."""
    parsed = parse_step(step)
    name, _, moment = parsed.name.removeprefix(PREFIX).partition(".")
    known = parsed.role in ROLES and parsed.epoch == start and parsed.name.startswith(PREFIX) and name in KIND_OF
    if known and moment in ("", "before"):
        return Aim(parsed.role, Target(name, parsed.count, "before"), start)
    if known and moment == "after":
        return Aim(parsed.role, Target(name, parsed.count, "after"), start)
    raise ValueError(
        f"{step} is no system call of {f'start {start}' if start > 1 else 'the first driver'} or one of its helpers; "
        f"write ROLE@{start}:{PREFIX}NAME.before:N or .after:N "
        f"with ROLE {', '.join(ROLES)} and NAME such as fdatasync"
    )
