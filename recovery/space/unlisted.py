"""Ending everything that carries a space's marks where no ledger lists it (rules S8 to S10): found by the marks themselves.

Spawners, file workers and shims are known by the descriptor of their epoch (epoch_mark.py), commands by the cgroups of the space. What a
kind of mark leaves unprovable without the ledger's records is no guess: DeathUnprovedError, or a person's word, which is returned.

Order: helpers and shims die before the cgroups are swept, so that nothing is forked into them; both until two sweeps in a row are empty.
"""

import os
from collections.abc import Iterator, Sequence

import msgspec

from eventlog.errors import DeathUnprovedError, FenceIncompleteError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, identify
from recovery.space.condemned import SETTLE, Trust
from recovery.space.containers import is_ended, tell_ways_out
from recovery.space.epoch_mark import read_epoch
from recovery.space.identity import kill_and_wait
from recovery.space.marks.cgroup import LEAVES, find_cgroup_base, is_populated, kill_cgroup, mount_of, tell_undying
from recovery.space.marks.descendants import list_processes
from recovery.space.marks.freezer import kill_frozen
from recovery.space.marks.subreaper import kill_by_subreaper
from recovery.space.marks.values import DEATH_SECS, NOTHING_TOUCHED

QUIET_SWEEPS = 2


class Drove(msgspec.Struct, frozen=True):
    """A driver that the log knows, and the kind of kill mark that was in force under it."""

    identity: ProcessIdentity
    kill_mark: str


def end_unlisted(
    space_id: str, drove: Sequence[Drove], directory: str, is_command_open: bool, host: Host, clock: Clock, trust: Trust
) -> list[str]:
    """End what is of a space, and prove it; what a person's word stands for where nothing proves it is returned, in words.

    `drove` are all drivers of the session, `directory` the space's own, `is_command_open` whether the log has a command's call without its
    end. Raises FenceIncompleteError, DeathUnprovedError; no workspace path may be touched then (I7).
    """
    quiet = 0
    while quiet < QUIET_SWEEPS:
        found = _end_marked(space_id, host, clock) + _end_leaves(space_id, clock)
        quiet = 0 if found else quiet + 1
    here = [one for one in drove if one.identity.boot_id == host.boot_id()]  # another boot: the machine itself ended them
    assumed = []
    for kind in sorted({one.kill_mark for one in here if one.identity.pid_namespace == host.pid_namespace()}):
        doubt = _find_doubt(kind, is_command_open)
        if doubt:
            assumed.append(_trust(DeathUnprovedError(f"the ledger is lost, and {doubt}", False), trust.all_dead))
    for one in here:
        if one.identity.pid_namespace != host.pid_namespace() and not is_ended(directory, one.identity, clock):
            error = DeathUnprovedError(
                f"the ledger is lost, and what driver {one.identity.pid} started in another pid namespace cannot be proved dead", True
            )
            assumed.append(_trust(error, trust.all_dead or trust.ends_all))
    return assumed


def _trust(error: DeathUnprovedError, is_trusted: bool) -> str:
    if not is_trusted:
        raise tell_ways_out(error, SETTLE) from error
    return str(error)


def _find_doubt(kind: str, is_command_open: bool) -> str:
    """Why nothing proves what ran under a kind of mark dead, without the ledger's records; "" when the sweeps did."""
    match kind:
        case "cgroup" if mount_of("cgroup2"):
            return ""
        case "pid-namespace" if find_cgroup_base():
            return ""  # the same processes are in a leaf
        case "cgroup1" if mount_of("cgroup", "freezer"):
            return ""
        case "environment" if not is_command_open:
            return ""  # a call ends only when nothing of it is left, and nothing is kept under this mark
        case _:
            return f"what ran under the kill mark {kind} cannot be proved dead without it"


def _end_marked(space_id: str, host: Host, clock: Clock) -> int:
    """End spawners, shims and file workers of every epoch; how many were met."""
    met = 0
    for pid in list_processes():
        identity = identify(pid, host) if read_epoch(pid, space_id) is not None else None
        if identity is None or pid == os.getpid():
            continue
        met += 1
        kill_by_subreaper(identity, frozenset(), host, clock)  # with all below it: a command that no leaf holds has no other trace
        if not kill_and_wait(identity, host, clock, DEATH_SECS):
            raise FenceIncompleteError(f"process {pid} of the space does not die (waited {DEATH_SECS:g} s); {NOTHING_TOUCHED}")
    return met


def _end_leaves(space_id: str, clock: Clock) -> int:
    """Empty every cgroup of the space, wherever in its hierarchy; how many held something."""
    met = 0
    for top in _find_leaves(mount_of("cgroup2"), space_id):
        met += is_populated(top)
        if not kill_cgroup(top, clock):
            raise tell_undying(top)
    for top in _find_leaves(mount_of("cgroup", "freezer"), space_id):
        if not kill_frozen(top, clock):
            raise tell_undying(top)
    return met


def _find_leaves(mount: str, space_id: str) -> Iterator[str]:
    if not mount:
        return
    for directory, names, _ in os.walk(mount):
        if f"{LEAVES}{space_id}" in names:
            yield os.path.join(directory, f"{LEAVES}{space_id}")
        names[:] = [name for name in names if not name.startswith(LEAVES)]
