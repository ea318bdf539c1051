"""What a session's log says of its mode and its checkpoints, folded. Pure (rules C7, C8)."""

from collections.abc import Iterator

import msgspec

from eventlog import events
from eventlog.errors import CorruptError
from recovery.script import decode_bytes


class Taken(msgspec.Struct, frozen=True):
    """One checkpoint that the log names: the event that does, the image it is a copy of (root hash, and the event that made it), what it
    cost. `previous` is the one before it, so that a long history adds one in no time."""

    seq: int
    root: str
    manifest: str
    took_ms: int
    previous: "Taken | None" = None

    def back(self) -> Iterator["Taken"]:
        """This one and those before it, the newest first."""
        found: Taken | None = self
        while found is not None:
            yield found
            found = found.previous


class ModeState(msgspec.Struct, frozen=True):
    """`mode` is the one in force: `auto` until it switches, `checkpoint` from there on. `newest` is the newest checkpoint named."""

    mode: events.Mode = "transactional"
    limits: events.Limits | None = None
    store: bytes = b""
    bound: int = 0
    newest: Taken | None = None

    def list_taken(self) -> list[Taken]:
        """All checkpoints that the log names, the newest first."""
        return [] if self.newest is None else list(self.newest.back())

    def find_taken(self, root: str) -> Taken | None:
        """The newest checkpoint of an image of this root."""
        return None if self.newest is None else next((one for one in self.newest.back() if one.root == root), None)


def begin_modes(opened: events.SessionOpened | events.SessionForked) -> ModeState:
    """What the first event says. Raises CorruptError for a mode without what it needs."""
    said = opened.checkpoints
    if said is None:
        if opened.mode != "transactional":
            raise CorruptError(f"seq 1: a session in mode {opened.mode} that names no checkpoint store")
        return ModeState(opened.mode, opened.limits)
    newest = Taken(1, opened.root, said.manifest, 0) if said.manifest else None
    return ModeState(opened.mode, opened.limits, decode_bytes(said.store, "store"), said.lost_work_bound, newest)


def fold_taken(state: ModeState, event: events.CheckpointTaken, seq: int, root: str, place: str) -> ModeState:
    """A checkpoint is one of the image at its event."""
    if state.mode != "checkpoint":
        raise CorruptError(f"{place}: a checkpoint is named in mode {state.mode}")
    if event.root != root:
        raise CorruptError(f"{place}: a checkpoint of another image than the one there")
    return msgspec.structs.replace(state, newest=Taken(seq, event.root, event.manifest, event.took_ms, state.newest))


def fold_switched(state: ModeState, event: events.ModeSwitched, place: str) -> ModeState:
    """The switch is permanent, and only `auto` has one."""
    if state.mode != "auto" or event.mode != "checkpoint" or not event.manifest:
        raise CorruptError(f"{place}: mode {state.mode} switched to {event.mode}")
    return msgspec.structs.replace(state, mode="checkpoint")
