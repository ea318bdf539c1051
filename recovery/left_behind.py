"""What a call left behind outside its kill mark, handled by policy before its outcome is scanned (rule S11), and what is not sure in an
image while kept processes write (rules C5, C8).

The shim has ended what is under the mark, and what left a cgroup without leaving the shim's tree (marks/strays.py). What is left are
processes that something else started: work given to a daemon (at, a terminal multiplexer, an editor's server), and strangers.

May be killed: only what carries the call's own key (CALL_KEY, unique for ever) in the environment it was executed with, and has no
terminal. Everything else is named: a shell or an editor that a person has in the workspace is not ours to end, wherever its directory and
whatever it has open.
"""

import os

from eventlog import events
from eventlog.errors import FenceIncompleteError, NeedsPersonError
from eventlog.image import Image
from eventlog.ports import Host
from eventlog.process_identity import ProcessIdentity
from eventlog.show import encode_bytes, show_path, show_text
from recovery.context import Context
from recovery.space.identity import kill_and_wait
from recovery.space.records import Attempt, Start
from recovery.space.request import LeftBehind
from recovery.space.users import User, find_users, list_begun_since
from recovery.workspace.values import OVER_LIMIT, Untracked

DEATH_SECS = 10.0
LONG_MS = 600_000
"""When a command began longer ago everything is looked at: numbers may have begun anew, and the look costs little beside the wait, be it
for the command or for the driver that adopts its exit."""
UNSTABLE = "unstable"
"""The kind under which an outcome lists, among what its image does not hold for sure, a file that a kept process may be writing."""
ROUNDS = 20
"""How often what carries the key is looked for again: work that begets work and outruns this is named, not waited for."""


def handle_outsiders(context: Context, attempt: Attempt, variable: str, policy: LeftBehind) -> list[str]:
    """End what of a call whose command has ended, or was killed, is outside its mark; who that was. `variable` names what holds its key.

    Under `keep` what is in a leaf of the space is kept with the rest. Raises FenceIncompleteError.
    """
    start, key = attempt.start, attempt.prepared.key
    if start is None or not _is_of_here(start.identity, context.host):
        return []  # the machine, or the container, ended it all
    newest = choose_newest(start, context.clock.now_ms())
    ended: list[str] = []
    for _ in range(ROUNDS):
        pids = list_begun_since(newest)
        users = find_users(pids, context.root, f"{variable}={key}", context.host, is_thorough=False)
        mine = [user for user in users if user.carries_key and not user.has_terminal]
        if policy == "keep":
            kept = context.space.list_processes()
            mine = [user for user in mine if context.space.has_leaves and user.identity.pid not in kept]
        if not mine:
            _name_strangers(context, users)
            return ended
        for user in mine:
            if not kill_and_wait(user.identity, context.host, context.clock, DEATH_SECS):
                raise FenceIncompleteError(f"{user.describe()}, was handed on by {key} and does not die; end it and drive again")
        ended += [f"{user.identity.pid} ({show_text(user.name)})" for user in mine]
    raise FenceIncompleteError(f"what {key} handed on goes on starting processes, the last {mine[0].describe()}; end it and drive again")


def choose_newest(start: Start, now_ms: int) -> int:
    """The number behind which what began since a starting mark is looked for; 0, everything, where numbers tell nothing now. Pure."""
    return start.newest if 0 <= now_ms - start.at_ms < LONG_MS else 0


def _is_of_here(identity: ProcessIdentity, host: Host) -> bool:
    return (identity.boot_id, identity.pid_namespace) == (host.boot_id(), host.pid_namespace())


def _name_strangers(context: Context, users: list[User]) -> None:
    own = context.space.own_processes() if users else frozenset()
    for user in users:
        if user.identity.pid not in own and (user.has_terminal or not user.carries_key):
            context.tell(f"{user.describe()}; it is not the call's to end, and what it writes during a call counts as the call's")


def find_unstable(context: Context, image: Image, variable: str) -> dict[bytes, User]:
    """The files of an image that processes kept by policy have open for writing or mapped shared, each with one of them: whatever a scan
    found there may be another thing by now (C5). Costs nothing while nothing is kept."""
    kept = [key for key, attempt in context.ledger.state.attempts.items() if attempt.has_kept]
    if not kept:
        return {}
    if context.space.has_leaves:
        users = find_users(context.space.list_processes(), context.root, "", context.host)
    else:
        found = [find_users(list_begun_since(0), context.root, f"{variable}={key}", context.host) for key in kept]
        users = [user for some in found for user in some if user.carries_key]
    prefix = len(context.root.rstrip("/")) + 1
    written = {os.fsencode(path[prefix:]): user for user in users for path in user.writes}
    return {path: written[path] for path in sorted(written) if path in image}


def refuse_unstable(unstable: dict[bytes, User], call: int) -> None:
    """Raise NeedsPersonError when there is any before a call: its image before could not be restored (C8)."""
    for path, user in unstable.items():
        raise NeedsPersonError(
            f"call {call} cannot begin: {len(unstable)} files of the image are unstable, as kept processes write them: {user.describe()}, "
            f"so that {show_path(path)} could not be restored if the call were cut; let it write outside the workspace or to an excluded "
            "path, or set left_behind = kill; `recovery drive STATE_DIR` ends it and goes on"
        )


def list_unstable(unstable: dict[bytes, User]) -> list[events.Untracked]:
    """As an outcome lists them: they make its image stale."""
    return [events.Untracked(encode_bytes(path), UNSTABLE) for path in unstable]


def describe_stale(untracked: tuple[Untracked, ...]) -> str:
    """Why an image is stale (C8). Pure; "" for one that is not."""
    unstable = [show_path(one.path) for one in untracked if one.kind == UNSTABLE]
    reasons = [f"a process that was kept was writing to {', '.join(unstable)}"] if unstable else []
    if any(one.kind == OVER_LIMIT for one in untracked):
        reasons.append("a call left the workspace above a limit of the session, so that what it wrote was not read")
    return ", and ".join(reasons)


def is_stale(untracked: tuple[Untracked, ...]) -> bool:
    """Whether the image that an event lists these beside is stale: never what a restore aims at (C8). Pure."""
    return any(one.kind in (UNSTABLE, OVER_LIMIT) for one in untracked)
