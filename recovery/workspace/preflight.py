"""What can be known before the first move of a restore, so that it stops with everything in its place: fixed nodes and owners.

Fixed: a node with the flag immutable or append-only (`chattr +i`, `+a`). It can be neither moved nor changed, nor can names in such a
directory; also the scan tells of flags, but which of them hinder is asked here, of the nodes that the plan acts on and of no others.
"""

import os
from collections.abc import Iterator

from eventlog import durable
from eventlog.beneath import Beneath
from eventlog.errors import RestoreIncompleteError
from eventlog.image import parent_of
from eventlog.kernel import is_fixed
from eventlog.show import show_path
from recovery.workspace.actions import Displace, FinishDirectory, LinkFile, RestorePlan, SetAttributes
from recovery.workspace.staging import open_staging

_NAMES_TOLD = 5
_TRIAL = b"trial"


def refuse_fixed(plan: RestorePlan, root: str) -> None:
    """`RestoreIncompleteError` naming the immutable and append-only nodes that `plan` would have to move or change."""
    with Beneath(root) as tree:
        fixed = [path for path in _list_acted_on(plan) if _is_fixed(tree, path)]
    if fixed:
        names = ", ".join(show_path(path) for path in fixed[:_NAMES_TOLD])
        more = f" and {len(fixed) - _NAMES_TOLD} more" if len(fixed) > _NAMES_TOLD else ""
        raise RestoreIncompleteError(
            f"immutable or append-only, so that the restore cannot change it: {names}{more}; nothing was moved. "
            "Take the flag away (chattr -i -a) and try again"
        )


def _list_acted_on(plan: RestorePlan) -> Iterator[bytes]:
    """Every node that an action moves or changes, and every directory whose names one changes; each once."""
    seen: set[bytes] = set()
    for action in plan.actions:
        paths = [] if isinstance(action, SetAttributes | FinishDirectory) else [parent_of(action.path)]
        if isinstance(action, Displace | SetAttributes | FinishDirectory):
            paths.append(action.path)
        if isinstance(action, LinkFile):
            paths.append(action.source)
        for path in paths:
            if path not in seen:
                seen.add(path)
                yield path


def _is_fixed(tree: Beneath, path: bytes) -> bool:
    try:
        if not path:
            return is_fixed(b".", tree.directory(b""))
        directory, name = tree.parent(path)
        return is_fixed(name, directory)
    except OSError:
        return False  # not there yet, or not to be reached: the action itself will say so by name


def refuse_owners(plan: RestorePlan, side: str, step: str) -> None:
    """`RestoreIncompleteError` when this process may not give a node to one of the owners of `plan`: tried on a file of its own."""
    owners: dict[tuple[int, int], bytes] = {}
    for action in plan.actions:
        if not isinstance(action, Displace | LinkFile) and (owner := getattr(action, "owner", None)) is not None:
            owners.setdefault(owner, action.path)
    if not owners:
        return
    staging = open_staging(side)
    try:
        descriptor = os.open(_TRIAL, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=staging)
        try:
            for owner, path in owners.items():
                _try_owner(descriptor, owner, path)
        finally:
            os.close(descriptor)
            durable.unlink(_TRIAL, step, directory=staging)
    finally:
        os.close(staging)


def _try_owner(descriptor: int, owner: tuple[int, int], path: bytes) -> None:
    try:
        os.fchown(descriptor, *owner)
    except PermissionError as error:
        raise RestoreIncompleteError(
            f"{show_path(path)} belongs to user {owner[0]}, group {owner[1]} in the image, and this user may not give files to them; "
            "nothing was moved. Run the restore as root"
        ) from error
