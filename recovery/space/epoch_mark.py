"""What tells a space's own processes from strangers before anything of them stands in the ledger: a descriptor with a telling name.

The spawner opens it before its first lock; every shim and file worker inherits it by its fork, and no command does, by its exec. It is a
file in memory that nobody reads: its name, `crashworthy.SPACE.eEPOCH`, is what /proc shows of it. So a process that is stopped inside the
ledger's lock before it has registered, with its driver and spawner gone, is still known by space and epoch (rule L4), whatever
kill mark is in force.
"""

import os
import re


def carry_epoch(space_id: str, epoch: int) -> None:
    """Have this process, and what it forks without exec, be known as one of this space and epoch from now on."""
    os.memfd_create(_name(space_id, str(epoch)))  # kept open for ever, and closed by exec


def read_epoch(pid: int, space_id: str) -> int | None:
    """The epoch under which a process belongs to a space; None when it carries none, or cannot be looked at."""
    wanted = re.compile(r"/memfd:" + re.escape(_name(space_id, "")) + r"([0-9]+) \(deleted\)\Z")
    directory = f"/proc/{pid}/fd"
    try:
        found = [wanted.match(os.readlink(f"{directory}/{name}")) for name in os.listdir(directory)]
    except OSError:
        return None  # it ended meanwhile, or is another person's: nobody that may be ended
    return max((int(match[1]) for match in found if match is not None), default=None)


def _name(space_id: str, epoch: str) -> str:
    return f"crashworthy.{space_id}.e{epoch}"
