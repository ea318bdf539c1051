"""What marks are made of: the kinds, the setting of a drive, what joining gave, what is to be killed."""

from typing import Literal, Protocol, get_args

import msgspec

from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity

MarkKind = Literal["pid-namespace", "cgroup", "cgroup1", "uts", "environment"]
"""Strongest first."""

KINDS: tuple[MarkKind, ...] = get_args(MarkKind)
ENVIRONMENT_VARIABLE = "CRASHWORTHY_MARK"
DEATH_SECS = 10.0
NOTHING_TOUCHED = "no workspace path was touched; end what is named and drive again"
COMMAND = "/command"
"""What ends the mark that only the command of a shim carries, so that the shim can end survivors without ending itself."""


class MarkSetting(msgspec.Struct, frozen=True):
    """The kind of mark in force, and the directory in which cgroup leaves are made ("" where the kind has none)."""

    kind: MarkKind
    base: str


class Joined(msgspec.Struct, frozen=True):
    """What a shim holds once it has joined a mark: of a pid namespace the pid of its first process, and the pipe that keeps it."""

    first: int | None = None
    control: int | None = None


class Target(msgspec.Struct, frozen=True):
    """What is to be killed under a condemned mark.

    `owner` is the recorded shim, spawner or worker, None when none was recorded: then nothing of it ever ran a command. `first` is the
    recorded first process of the attempt's pid namespace. `has_command` tells that the owner may have executed one whose end is not
    on record. `spare` are pids of claimed shims, which are children of a condemned spawner. `is_owner_spared`: the owner has recorded its
    exit and may own another attempt by now; only what it left behind is to be killed.
    """

    owner: ProcessIdentity | None
    first: ProcessIdentity | None = None
    has_command: bool = False
    spare: frozenset[int] = frozenset()
    is_owner_spared: bool = False


class Kind(Protocol):
    """One kind of mark. `value` is the mark without its kind; `leaf/command` is what `join_command` adds to it."""

    def join(self, value: str) -> Joined:
        """Put this process, an attempt's owner, under the mark. Raises OSError."""

    def join_command(self, value: str) -> None:
        """Put this process, the forked command of the owner, under the command's own part. Raises OSError."""

    def list_members(self, value: str, joined: Joined) -> list[int]:
        """What lives under the command's part; asked by the owner, once its command is reaped."""

    def end_members(self, value: str, joined: Joined, host: Host, clock: Clock) -> None:
        """Kill all that, and prove it dead. Raises FenceIncompleteError."""

    def keep_members(self, value: str, joined: Joined) -> None:
        """Let it outlive the owner. Raises MisuseError where nothing could be proved of it then."""

    def kill(self, value: str, target: Target, host: Host, clock: Clock) -> None:
        """Kill everything under the mark, owner included, and prove it dead. Raises FenceIncompleteError."""

    def release(self, value: str) -> None:
        """Give back what a dead attempt's mark holds."""
