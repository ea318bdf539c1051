"""What one driver holds while it drives: ports, places, log, ledger and space, handed down explicitly (no globals)."""

from collections.abc import Callable, Mapping

import msgspec

from eventlog.ports import Clock, Host, Ids
from recovery.checkpoints.vault import Vault
from recovery.contents import Contents
from recovery.journal import Journal
from recovery.space.bubblewrap import SpaceKind
from recovery.space.condemned import Sweep
from recovery.space.ledger import Ledger
from recovery.space.local import LocalSpace, SpacePaths
from recovery.workspace.profile import Profile
from recovery.workspace.scan import Scanner
from recovery.workspace.watch import Watch


class Context(msgspec.Struct):
    """Everything below the driver's entry works on this. `space_override` is the kind of space that the environment asks
    for in place of the calls' own. `say` prints one protocol line on stdout, `tell` one line for people on stderr."""

    clock: Clock
    host: Host
    ids: Ids
    root: str
    environment: Mapping[str, str]
    paths: SpacePaths
    journal: Journal
    ledger: Ledger
    space: LocalSpace
    say: Callable[[str], None]
    tell: Callable[[str], None]
    sweep: Sweep
    accept_outside: str = ""
    scanner: Scanner | None = None
    watch: Watch | None = None
    left_behind: str = ""  # SESSION_LEFT_BEHIND, which beats the session file; "" where it is not set
    space_override: SpaceKind | None = None
    vault: Vault | None = None  # of a session with checkpoints
    accept_lost: int = 0  # how many finished calls a person gives up in this drive, beyond the session's bound

    @property
    def contents(self) -> Contents:
        """Where the contents of images are."""
        return Contents(self.journal.reader, self.vault)

    @property
    def profile(self) -> Profile:
        """What the session leaves out and tracks."""
        return self.journal.state.profile

    @property
    def epoch(self) -> int:
        return self.journal.epoch

    def key(self, middle: str, attempt: int, last: str = "") -> str:
        """A ledger key: log id / session / call (or d + decision seq) / attempt [/ command]."""
        return "/".join(part for part in (self.journal.log_id, self.journal.stream, middle, str(attempt), last) if part)
