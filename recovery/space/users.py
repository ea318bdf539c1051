"""Who uses a workspace: by directory, root, files open for writing, shared mappings; and who carries a call's key (rule S11). Asks only.

Told by path, as /proc gives it: what reaches the workspace by another mount of it is not seen. Who may not be looked at (another user's) is
passed over.

Cost: numbers are given to processes in turn, so that those begun since a call began are told from the rest by their numbers alone, without
a look at each (`list_begun_since`): one listing of /proc a call, and a look at the few that are new.
"""

import contextlib
import os
from collections.abc import Collection, Iterator

import msgspec

from eventlog.ports import Host
from eventlog.process_identity import ProcessIdentity, identify, read_stat
from eventlog.show import show_text
from recovery.space.marks.descendants import is_zombie, read_newest

_STATE, _TERMINAL = 0, 4  # in what read_stat gives


class User(msgspec.Struct, frozen=True):
    """A living process that uses a workspace or carries a key. `writes` are what it has there open for writing or mapped shared, `is_in`
    its directory or root; `has_terminal`: a person may sit before it."""

    identity: ProcessIdentity
    name: str
    is_in: str
    writes: tuple[str, ...]
    carries_key: bool
    has_terminal: bool

    def describe(self) -> str:
        """A clause for people."""
        what = ", ".join(self.writes[:3]) or self.is_in
        how = "has open for writing" if self.writes else "has as its directory"
        return f"process {self.identity.pid} ({show_text(self.name)}) {how} {show_text(what)}"


def list_begun_since(newest: int) -> list[int]:
    """The processes whose numbers were given since `read_newest` was `newest` (0: every one); a few older ones may be among them when the
    numbers began anew meanwhile."""
    now = read_newest()
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if not newest or (newest < pid <= now if newest <= now else pid > newest or pid <= now)]


def find_users(pids: Collection[int], root: str, variable: str, host: Host, *, is_thorough: bool = True) -> list[User]:
    """Those of `pids` that use the tree at `root` (resolved) or carry `variable` (NAME=value; "": none is looked for); this process
    aside. Unless `is_thorough`, whose only lead would be a mapping is passed over: mappings cost three times all else together."""
    found = (_look_at(pid, root, os.fsencode(variable), host, is_thorough) for pid in pids if pid != os.getpid())
    return [user for user in found if user is not None]


def _look_at(pid: int, root: str, variable: bytes, host: Host, is_thorough: bool) -> User | None:
    carries = _carries(pid, variable)
    place = next((path for path in (_follow(pid, "cwd"), _follow(pid, "root")) if _is_below(path, root)), "")
    opened = list(_open_for_writing(pid, root))
    mapped = list(_mapped(pid, root)) if is_thorough or carries or place or opened else []
    if not (carries or place or opened or mapped):
        return None
    identity, fields = identify(pid, host), read_stat(pid)
    if identity is None or fields is None or is_zombie(pid):
        return None
    carries = carries and _carries(pid, variable)  # again: who is ended for it is the process of this identity, not one that had its number
    writes = tuple(dict.fromkeys([*opened, *mapped]))
    name = _read(f"/proc/{pid}/comm").decode("utf-8", "surrogateescape").rstrip("\n")
    return User(identity, name, place, writes, carries, fields[_TERMINAL] != "0")


def _carries(pid: int, variable: bytes) -> bool:
    return bool(variable) and variable in _read(f"/proc/{pid}/environ").split(b"\0")


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _follow(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/{name}")
    return ""


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read()
    return b""


def _open_for_writing(pid: int, root: str) -> Iterator[str]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for number in numbers:
        path = _follow(pid, f"fd/{number}")
        if _is_below(path, root) and _flags(pid, number) & os.O_ACCMODE != os.O_RDONLY:
            yield path


def _flags(pid: int, number: str) -> int:
    for line in _read(f"/proc/{pid}/fdinfo/{number}").splitlines():
        if line.startswith(b"flags:"):
            return int(line.split()[1], 8)
    return 0


def _mapped(pid: int, root: str) -> Iterator[str]:
    for line in _read(f"/proc/{pid}/maps").splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[1][3:4] == b"s" and _is_below(path := os.fsdecode(words[5]), root):
            yield path
