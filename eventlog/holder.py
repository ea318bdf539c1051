"""Who holds a lock: what can be told of a process that does not let go (rule L4). Describes; judges and ends nobody."""


import msgspec

from eventlog.ports import Host
from eventlog.process_identity import ProcessIdentity, read_start_ticks
from eventlog.show import show_text

SHOWN_COMMAND = 200


class Holder(msgspec.Struct, frozen=True):
    """The process that held a lock when it was asked for.

    `pid` is 0 when it is in another pid namespace or on another machine; `start_ticks` is None when it cannot be told which process
    that is; `command` is its command line as it can be shown, "" where it cannot be read.
    """

    pid: int
    start_ticks: int | None
    command: str

    def identify(self, host: Host) -> ProcessIdentity | None:
        """Its identity, None when it is not known: a lock's pid is one of this boot and, unless 0, of this pid namespace."""
        if not self.pid or self.start_ticks is None:
            return None
        return ProcessIdentity(self.pid, self.start_ticks, host.boot_id(), host.pid_namespace())


def look_up_holder(pid: int) -> Holder:
    """What /proc tells of the process with this pid; 0 is nobody who can be seen from here."""
    ticks = read_start_ticks(pid) if pid else None
    return Holder(pid, ticks, _read_command(pid) if ticks is not None else "")


def describe(holder: Holder | None) -> str:
    """`held by pid N (command)`, on one line and escaped."""
    if holder is None:
        return "held by an unknown process"
    if not holder.pid:
        return "held by pid 0 (a process that is not visible from here)"
    return f"held by pid {holder.pid}" + (f" ({holder.command})" if holder.command else "")


def _read_command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read().replace(b"\0", b" ").decode("utf-8", "surrogateescape").strip()
    except OSError:
        return ""  # it ended meanwhile, or may not be looked at: the pid says enough
    return show_text(command)[:SHOWN_COMMAND]
