"""Which processes of a space are seen to be alive: not a proof of anything, but whom to ask what they have mapped."""

import contextlib
import os
import re

from eventlog.ports import Host
from eventlog.process_identity import ProcessIdentity, is_alive
from recovery.space.marks.cgroup import LEAVES, list_leaf
from recovery.space.marks.descendants import list_descendants
from recovery.space.marks.values import MarkSetting

_HELPER_LEAF = re.compile(r"e(\d+)-(spawner|worker|shim\d+)\b.*")


def list_command_processes(mark: str, shim: ProcessIdentity, host: Host) -> list[int]:
    """Pids under the mark of an attempt whose shim has not ended, the shim's other descendants too; none where they cannot be seen."""
    value = mark.partition(":")[2]
    found = list_leaf(value) if value.startswith("/") else []
    if shim.pid_namespace == host.pid_namespace() and is_alive(shim, host):
        found += list_descendants(shim.pid)
    return found


def list_shim_marks(helper_mark: str, epoch: int) -> list[str]:
    """The marks of all shims of epochs below `epoch` that are leaves beside the mark of a spawner or file worker; none where that is no
    leaf."""
    kind, _, value = helper_mark.partition(":")
    if kind != "cgroup":
        return []
    top = os.path.dirname(value)
    with contextlib.suppress(FileNotFoundError):
        found = [(name, _HELPER_LEAF.fullmatch(name)) for name in sorted(os.listdir(top))]
        return [
            f"{kind}:{top}/{name}" for name, match in found if match and match[2].startswith("shim") and int(match[1]) < epoch
        ]
    return []


def list_left_processes(setting: MarkSetting, space_id: str) -> list[int]:
    """Pids of everything in the space's leaves but spawners, file workers and shims: also of what a command left behind where its shim's
    sweep did not reach. Only where marks are leaves of a cgroup is that counted."""
    found: list[int] = []
    if setting.base:
        with contextlib.suppress(FileNotFoundError), os.scandir(f"{setting.base}/{LEAVES}{space_id}") as leaves:
            for leaf in leaves:
                if leaf.is_dir() and not _HELPER_LEAF.fullmatch(leaf.name):
                    found += list_leaf(leaf.path)
    return found
