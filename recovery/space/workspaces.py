"""The workspace of a space by hand: the one root below which its file operations may change paths (S1, R6).

It stands in `<space>/workspace`, one JSON object, made once and synced: the root's path, and the identity that its attribute bears or gets.
The registry of holders has the root under the name `space:<ledger id>`: claimed before that file is made, so that a crash between the two
leaves a claim that is simply made again. A session's space has no such file: its workspace stands in its log, and its driver is the one
that has files changed.
"""

import json
import os
from collections.abc import Callable

import msgspec

from eventlog import durable, events
from eventlog.errors import CorruptError, MisuseError
from eventlog.ports import Ids
from eventlog.show import show_text
from recovery.space.holders import SPACE_HOLDER, Holders
from recovery.space.places import contains, look_at
from recovery.workspace.side import read_root_identity

NAME = "workspace"
_STATES = (("ledger", "ledger.end"), ("log.sqlite", "space"))  # of a space, of a session


class _Record(msgspec.Struct, frozen=True):
    """What stands in the file."""

    root: str
    identity: events.RootIdentity


class Workspace(msgspec.Struct, frozen=True):
    """A root, its recorded identity, and who holds it for whom."""

    root: str
    identity: events.RootIdentity
    holder: str
    directory: str
    holders: Holders

    def check_held(self) -> None:
        """Raise MisuseError when the registry does not have the root for this space: it was given up, and may be another's."""
        if self.root not in self.holders.held_by(self.holder, self.directory):
            raise MisuseError(
                f"{show_text(self.root)} is not held by the space in {show_text(self.directory)} any more; open the space with it again"
            )

    def give_up(self) -> bool:
        """Let the root go; False when it was not held. Nothing of the space may live."""
        return self.holders.release(self.root, self.holder, self.directory)


def find_workspace(directory: str, space_id: str, holders: Holders) -> Workspace | None:
    """The workspace that the space in `directory` has, None when it has none. Raises CorruptError."""
    path = os.path.join(directory, NAME)
    try:
        with open(path, "rb") as file:
            record = msgspec.convert(json.loads(file.read()), _Record)  # json: a path need not be UTF-8
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
        raise CorruptError(f"{show_text(path)}: does not name a workspace ({error}); put the space's own file back") from error
    return Workspace(record.root, record.identity, SPACE_HOLDER + space_id, directory, holders)


def _check_no_state(root: str) -> None:
    """Raise MisuseError where `root` is, has directly below it, or lies in the directory of a space or the state of a session."""
    above = [root]
    while above[-1] != os.path.dirname(above[-1]):
        above.append(os.path.dirname(above[-1]))
    for place in (os.path.join(root, "space"), *above):
        if any(all(os.path.lexists(os.path.join(place, name)) for name in names) for names in _STATES):
            raise MisuseError(
                f"the workspace {show_text(root)}: {show_text(place)} is the directory of a space or the state of a session, "
                "whose files no command may change; name another"
            )


def bind_workspace(
    directory: str, space_id: str, root: str, holders: Holders, ids: Ids, is_finished: Callable[[str], bool]
) -> Workspace:  # fmt: skip
    """Give the space in `directory` its workspace, or find that it has this one; the root is held for it from now on. `is_finished` tells
    of another holder's state directory that its session has ended.

    Raises MisuseError for another root than it has, one that is held or no directory, and where root and space contain each other.
    """
    real = os.path.realpath(root)
    known = find_workspace(directory, space_id, holders)
    if known is not None and known.root != real:
        raise MisuseError(f"the space in {show_text(directory)} has the workspace {show_text(known.root)}, and one is all that it has")
    if not os.path.isdir(real):
        raise MisuseError(f"the workspace {show_text(real)} is not a directory; make it, or name another")
    place, own = look_at(real), look_at(directory)
    if contains(place, own) or contains(own, place):
        raise MisuseError(f"the workspace {show_text(real)} and the space in {show_text(directory)} contain each other; move one out")
    _check_no_state(real)
    holders.claim(real, SPACE_HOLDER + space_id, directory, is_finished)
    if known is not None:
        return known
    found = read_root_identity(real)
    identity = events.RootIdentity(found.id or ids.new_id().hex(), found.inode, found.birth_ns, found.filesystem)
    record = json.dumps({"root": real, "identity": msgspec.to_builtins(identity)}).encode()
    durable.publish(os.path.join(directory, NAME), record, "space.workspace")
    return Workspace(real, identity, SPACE_HOLDER + space_id, directory, holders)
