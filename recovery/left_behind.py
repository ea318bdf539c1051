"""What a call left behind outside its kill mark, handled by policy before its outcome is scanned (rule S11).

The shim has ended what is under the mark, and what left a cgroup without leaving the shim's tree (marks/strays.py). What is left are
processes that something else started: work given to a daemon (at, a terminal multiplexer, an editor's server), and strangers.

May be killed: only what carries the call's own key (CALL_KEY, unique for ever) in the environment it was executed with, and has no
terminal. Everything else is named: a shell or an editor that a person has in the workspace is not ours to end, wherever its directory and
whatever it has open.
"""

from eventlog.errors import FenceIncompleteError
from eventlog.ports import Host
from eventlog.process_identity import ProcessIdentity
from recovery.context import Context
from recovery.space.identity import kill_and_wait
from recovery.space.records import Attempt
from recovery.space.request import LeftBehind
from recovery.space.users import User, find_users, list_begun_since

DEATH_SECS = 10.0
LONG_MS = 600_000
"""After a command that ran longer everything is looked at: numbers may have begun anew, and the look costs little beside it."""
ROUNDS = 20
"""How often what carries the key is looked for again: work that begets work and outruns this is named, not waited for."""


def handle_outsiders(context: Context, attempt: Attempt, variable: str, policy: LeftBehind) -> int:
    """End what of a call whose command has ended is outside its mark; how many. `variable` is the name of what holds its key.

    Under `keep` what is in a leaf of the space is kept with the rest. Raises FenceIncompleteError.
    """
    start, exited, key = attempt.start, attempt.exit, attempt.prepared.key
    if start is None or exited is None or not _is_of_here(start.identity, context.host):
        return 0  # the machine, or the container, ended it all
    newest = start.newest if exited.at_ms - start.at_ms < LONG_MS else 0
    ended = 0
    for _ in range(ROUNDS):
        pids = list_begun_since(newest)
        users = find_users(pids, context.root, f"{variable}={key}", context.host) if pids else []
        mine = [user for user in users if user.carries_key and not user.has_terminal]
        if policy == "keep":
            kept = context.space.list_processes()
            mine = [user for user in mine if context.space.has_leaves and user.identity.pid not in kept]
        if not mine:
            _name_strangers(context, users)
            return ended
        for user in mine:
            kill_and_wait(user.identity, context.host, context.clock, DEATH_SECS)
        ended += len(mine)
    raise FenceIncompleteError(f"what {key} handed on goes on starting processes, the last {mine[0].describe()}; end it and drive again")


def _is_of_here(identity: ProcessIdentity, host: Host) -> bool:
    return (identity.boot_id, identity.pid_namespace) == (host.boot_id(), host.pid_namespace())


def _name_strangers(context: Context, users: list[User]) -> None:
    own = context.space.own_processes() if users else frozenset()
    for user in users:
        if user.identity.pid not in own and (user.has_terminal or not user.carries_key):
            context.tell(f"{user.describe()}; it is not the call's to end, and what it writes during a call counts as the call's")
