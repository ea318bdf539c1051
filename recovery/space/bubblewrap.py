"""The namespaced space: each command runs under bubblewrap, in a pid namespace of its own, and may write to the workspace alone.

Chosen once, when a drive or a handle begins; whether it is to be had is told by really running it then. Shims execute what `wrap` gives.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from eventlog.errors import MisuseError
from eventlog.show import show_text
from recovery.space import inner

SpaceKind = Literal["local", "namespaced"]
PROBE_SECS = 60.0
_OWN_TMP = "/tmp"
_NOT_FOR_ROOT = ("SYS_ADMIN", "MKNOD", "SYS_RAWIO", "SYS_MODULE", "SYS_TIME", "SYS_BOOT")
"""By what root's commands could still write elsewhere: other mounts, devices of their own making, ports, the kernel, its clock."""
_KERNEL_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr")
"""Parts of /proc that are the machine's and not a process's (those that container runtimes make read-only); root may write to them where
bubblewrap, which asks for the mode of the directory, leaves them as they are."""
_OPTIONS = (
    *("--die-with-parent", "--unshare-pid", "--as-pid-1"),
    *(word for name in _NOT_FOR_ROOT for word in ("--cap-drop", f"CAP_{name}")),
    *("--ro-bind", "/", "/"),
    *("--dev", "/dev"),
    *("--proc", "/proc"),
    *(word for name in _KERNEL_SETTINGS for word in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")),
    *("--tmpfs", _OWN_TMP),
)
_INSTEAD = "or use the local space (SESSION_SPACE=local)"


class Bubblewrap(msgspec.Struct, frozen=True):
    """How commands are confined: by the program `program`, with the directory `workspace` (absolute, no links in it) writable, and what a
    person lets them write besides (`writable`, the same)."""

    program: str
    workspace: str
    writable: tuple[str, ...] = ()

    def wrap(self) -> list[bytes]:
        """The argument list that executes inner.py inside; its own arguments follow."""
        interpreter = os.path.realpath(sys.executable)
        helper = os.path.realpath(inner.__file__)
        # What it needs of its own is to be seen, although /tmp is another one in there.
        needed = [path for path in (sys.base_prefix, sys.base_exec_prefix, interpreter, helper) if _lies_in_tmp(path)]
        shown = [word for path in needed for word in ("--ro-bind", path, path)]
        written = [word for path in (self.workspace, *self.writable) for word in ("--bind", path, path)]
        words = [
            self.program, *_OPTIONS, *shown, *written, "--chdir", "/", "--",
            interpreter, "-I", "-S", helper,
        ]  # fmt: skip
        return [os.fsencode(word) for word in words]


def _lies_in_tmp(path: str) -> bool:
    return path.startswith(_OWN_TMP + "/")


def parse_space(value: str, where: str) -> SpaceKind:
    """One of local, namespaced; `where` is what a message begins with. Raises MisuseError."""
    for kind in get_args(SpaceKind):
        if value == kind:
            return kind  # type: ignore[no-any-return]
    raise MisuseError(f"{where}: unknown space {show_text(str(value))!r}; use {' or '.join(get_args(SpaceKind))}")


def choose_bubblewrap(
    kinds: Iterable[SpaceKind], workspace: str, path: str | None, left_behind: str = "kill", writable: Sequence[str] = ()
) -> Bubblewrap | None:  # fmt: skip
    """What confines commands that are to run in these kinds of space, None where nothing need; `path` is a PATH to look in, `writable` what
    they may write besides. Raises MisuseError, with the reason, where it is not to be had, or does not go with what is wished for processes
    left behind."""
    if "namespaced" not in kinds:
        return None
    if left_behind == "keep":
        raise MisuseError(f"left_behind = keep: in the namespaced space everything ends with its command; use kill or fail, {_INSTEAD}")
    workspace = os.path.realpath(workspace)
    if workspace == "/":
        raise MisuseError("the namespaced space makes its workspace writable and nothing else, so / cannot be one; name another directory")
    program = _find_program("bwrap", path)
    if program is None:
        raise MisuseError(
            "the namespaced space needs bubblewrap, and there is no `bwrap` in PATH; install the package bubblewrap "
            f"(on Debian: apt-get install bubblewrap), {_INSTEAD}"
        )
    made = Bubblewrap(os.path.realpath(program), workspace, tuple(map(_check_writable, writable)))
    refusal = _probe(made)
    if refusal:
        raise MisuseError(
            f"the namespaced space is not to be had here ({refusal}); allow user namespaces (sysctl user.max_user_namespaces, "
            f"kernel.unprivileged_userns_clone, or the container's own settings) and this user to execute {sys.executable}, {_INSTEAD}"
        )
    return made


def _find_program(name: str, path: str | None) -> str | None:
    """Where a PATH has it; without one, the system's own is looked in, as for any command. (shutil would bring three compressors along.)"""
    found = (os.path.join(place, name) for place in (path or os.defpath).split(os.pathsep) if place)
    return next((one for one in found if os.path.isfile(one) and os.access(one, os.X_OK)), None)


def _check_writable(path: str) -> str:
    real = os.path.realpath(path)
    if not os.path.isabs(path) or real == "/" or not os.path.exists(real):
        raise MisuseError(f"SESSION_SPACE_WRITABLE: {show_text(path)} is not the absolute path of a file or directory that is there")
    return real


def explain_bubblewrap(workspace: str, path: str | None) -> str:
    """Why the namespaced space is not to be had, "" when it is."""
    try:
        choose_bubblewrap(["namespaced"], workspace, path)
    except MisuseError as error:
        return str(error)
    return ""


def _probe(bubblewrap: Bubblewrap) -> str:
    """Why nothing can be run so, "" when it can."""
    import subprocess  # only where the namespaced space is asked for: every start of a driver would wait for it

    try:
        done = subprocess.run(
            [*bubblewrap.wrap(), b"probe"], stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECS, check=False, env={}
        )
    except OSError as error:
        return f"{bubblewrap.program}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"a trial of bubblewrap did not end in {PROBE_SECS:g} s"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "surrogateescape").strip().splitlines()
    return show_text(lines[-1]) if lines else f"a trial of bubblewrap ended with {done.returncode}"
