"""What a space is to whoever has commands run in it: one contract, several implementations, one conformance suite.

The contract, whoever keeps it (PROTOCOL S and T). A space has one ledger, one floor and one generation. A command has a key, and a key
runs once: whoever asks for it again is attached to it, or gets its recorded exit and kept output; the same key with another request is
refused. Every request carries an epoch; one that is not the floor's is refused before anything happens, so that raising the floor is
the one way to take a space over. Raising it gives every attempt without an exit one fate, for ever: claimed ones go on under the new
epoch, the others are dead when `advance` returns, and an exit of theirs is cut. A command does not depend on the handle that
started it: closing the handle, or killing its process, ends nothing.

`recovery.space.conformance` is the suite that a space must pass.
"""

from collections.abc import Callable, Collection
from typing import Literal, Protocol

import msgspec

from eventlog.events import Exit
from recovery.space.file_request import FileRequest
from recovery.space.listing import AttemptWord, ListedAttempt
from recovery.space.protocol import StreamName
from recovery.space.request import CommandRequest

Capability = Literal[
    "claim", "durable", "stderr apart", "standard input", "time limit", "live output", "start marks", "no epoch gap", "proves death",
    "left behind", "file changes",
]  # fmt: skip

CAPABILITIES: dict[Capability, str] = {
    "claim": "an advance may leave named commands running under the new epoch",
    "durable": "what was recorded outlives every process of the space",
    "stderr apart": "standard output and standard error may be kept apart",
    "standard input": "a command may be given bytes to read",
    "time limit": "a command may be ended after a time, and its exit says so",
    "live output": "output reaches a sink while the command runs",
    "start marks": "what never started is told from what may have",
    "no epoch gap": "a start above the floor is refused, so that only an advance raises it",
    "proves death": "what an advance condemned is dead whole, also what left its process group and session",
    "left behind": "what a command leaves running is ended, kept or a failure, as its request says",
    "file changes": "files below its workspace are written, edited and deleted by key, and by nothing that outlives its epoch",
}
"""What a space may declare, and what it promises by that. The suite skips by name what a space does not promise."""

How = Literal["started", "attached", "replayed"]
Sink = Callable[[StreamName, bytes], None]


class SpaceFacts(msgspec.Struct, frozen=True):
    """Who a space is: id and generation of its ledger, its floor, the kind of kill mark in force; the root below which its file operations
    change paths ("": it has none), and who holds that in the registry of holders (`session:NAME`, `space:ID`; "": nobody)."""

    space_id: str
    generation: int
    floor: int
    mark: str
    workspace: str = ""
    holder: str = ""


class Advanced(msgspec.Struct, frozen=True):
    """What an advance did: the new floor, the keys that go on, the keys that were condemned and are dead."""

    floor: int
    claimed: tuple[str, ...]
    condemned: tuple[str, ...]


class Ended(msgspec.Struct, frozen=True):
    """How an attempt ended, and what is kept of its output. `word` tells a clean exit from one that a newer epoch cut, from what never
    started and from what nobody can tell; `exit` is None where no exit was recorded: none is invented (I8).

    `out` and `err` are the kept bytes (`err` empty where both streams are merged), `out_total` and `err_total` how many there were,
    `digest` the BLAKE3 of all of standard output, kept or not ("": unknown); `held_output`: something still had the output open;
    `missing` why nothing of the output is kept although there was some ("": it is kept); `survivors` processes that the command left behind
    were ended, `left` were left alive by policy.
    """

    key: str
    word: AttemptWord
    epoch: int
    exit: Exit | None
    out: bytes = b""
    err: bytes = b""
    out_total: int = 0
    err_total: int = 0
    digest: str = ""
    held_output: bool = False
    missing: str = ""
    survivors: int = 0
    left: int = 0


class Space(Protocol):
    """One handle on one space. Used by one thread; several handles may be open at once, also in several processes."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this space promises."""
        ...

    def facts(self) -> SpaceFacts:
        """Id, generation, floor, mark, as of now."""
        ...

    def advance(self, epoch: int, claim: Collection[str] = ()) -> Advanced:
        """Raise the floor to `epoch`; running commands named by `claim` go on, everything else that has no exit is condemned, and dead
        when this returns.

        Raises StaleEpochError below the floor, EpochTakenError at it, MisuseError for an epoch out of bounds or a key to claim that is not
        there, FenceIncompleteError when a death cannot be proved (the floor is raised, nothing else was touched). Where "claim" is not
        promised a running key to claim is a MisuseError; where "proves death" is not, only the commands' own processes are dead.
        """
        ...

    def start(self, epoch: int, request: CommandRequest) -> How:
        """Start a command, or find that its key stands: `attached` while it has no exit, `replayed` once it ended. Durable before the
        command can begin.

        Raises StaleEpochError below the floor, MisuseError above it, RequestMismatchError for another request, KeySpentError for a key
        that never runs (again) and has no exit to replay.
        """
        ...

    def change(self, epoch: int, request: FileRequest) -> How:
        """Change a file below the space's workspace, or find that its key stands; done when this returns `started`. What `wait` and `look`
        then give has exit code 0 or 1 (what was asked cannot be, and nothing was changed) and the words for it as output. Never outside
        the workspace, through whatever link (S6).

        Raises what `start` raises, LostProcessError when nobody knows whether it was done, MisuseError where "file changes" is not
        promised.
        """
        ...

    def wait(self, epoch: int, key: str, sink: Sink | None = None) -> Ended:
        """Wait until the attempt has ended; `sink` gets output as it comes, and does not hold the command up.

        Raises StaleEpochError as soon as the floor is above `epoch`, MisuseError for an unknown key, LostProcessError when nobody will ever
        know how it ended, BusyError when what owns it is stopped or does not answer (S5).
        """
        ...

    def look(self, key: str) -> Ended | None:
        """What is recorded of an attempt that ended; None while it has not. Raises MisuseError for an unknown key."""
        ...

    def list(self) -> list[ListedAttempt]:
        """Every key that the ledger holds, those that need nothing more first, each in the order of their preparation."""
        ...

    def end(self, epoch: int, key: str) -> Ended:
        """Kill a running command and everything it started; its exit says by which signal. What has ended already is left alone. Raises
        StaleEpochError, MisuseError for an unknown key or a change of files that has not ended: an advance is what ends that."""
        ...

    def close(self) -> None:
        """Give the handle back. Commands go on."""
        ...
