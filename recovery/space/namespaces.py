"""Linux namespaces by ctypes (Python 3.11 offers none of it): private pid and UTS namespaces, in a user namespace where that is needed.

A process that may not make one directly makes a user namespace of its own first and is itself in it: same user, same group, no rights
outside. Programs with the set-user-id bit of somebody else gain nothing in there.
"""

import ctypes
import errno
import os

_libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 0x4000, 0x80000
_DOMAIN_BYTES = 64  # __NEW_UTS_LEN


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def unshare_private(flags: int) -> None:
    """Make private namespaces (CLONE_NEWPID: of the children to come), in a user namespace where this process may not do so without.

    Raises OSError with the reason.
    """
    try:
        _unshare(flags)
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        _unshare(flags | CLONE_NEWUSER)
        _map_self(user, group)


def _map_self(user: int, group: int) -> None:
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def name_domain(name: str) -> None:
    """Give this process's UTS namespace a NIS domain name (at most 64 bytes). Nothing reads it, and what forks or unshares keeps it."""
    data = name.encode("ascii")[:_DOMAIN_BYTES]
    _check(_libc.setdomainname(ctypes.c_char_p(data), ctypes.c_size_t(len(data))), "setdomainname")


def show_own_processes() -> None:
    """Mount a /proc that shows this process's pid namespace, seen by this process and its children only. Raises OSError where that is
    not allowed."""
    _unshare(CLONE_NEWNS)
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None), "mount")
    _check(_libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC), None), "mount")


def probe_private(flags: int) -> str:
    """Why private namespaces cannot be had here, "" when they can: tried in a child. With CLONE_NEWPID a process is made in it too."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _probe_in_child(flags, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read().decode("utf-8", "replace")
    status = os.waitpid(pid, 0)[1]
    return answer if answer or status == 0 else f"the trial ended with status {status}"


def _probe_in_child(flags: int, writer: int) -> None:
    """Never returns."""
    code = 1
    try:
        unshare_private(flags)
        if flags & CLONE_NEWUTS:
            name_domain("crashworthy.probe")
        if flags & CLONE_NEWPID:
            inner = os.fork()
            if inner == 0:
                os._exit(0)
            os.waitpid(inner, 0)
        code = 0
    except OSError as error:
        os.write(writer, (error.strerror or errno.errorcode.get(error.errno or 0, "unknown error")).encode())
    finally:
        os._exit(code)
