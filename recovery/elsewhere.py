"""What of an image is only in the session's checkpoint store, for what is taken elsewhere: a fork, a bundle, a scratch run."""

import os
from collections.abc import Iterator

from eventlog import events
from eventlog.bundle_export import Fetch, find_in_store
from eventlog.errors import MisuseError, NeedsPersonError
from eventlog.history import read_image
from eventlog.image import root_hash
from eventlog.ports import Clock
from eventlog.reader import Reader
from eventlog.show import show_text
from eventlog.values import ContentId, Seq, StreamId
from recovery.contents import Contents
from recovery.opening import find_vault
from recovery.person_restore import check_not_stale
from recovery.state import fold_stream


def find_elsewhere(reader: Reader, stream: StreamId, at: Seq, said: str, clock: Clock) -> Fetch | None:
    """What yields the contents of the image at `at` that the log lacks, all of them proved once already; None when it lacks none. `said` is
    where the session's store is now, if it was moved.

    Raises MisuseError where no checkpoint was taken of that image, NeedsPersonError when the store is not there, CheckpointDamagedError.
    """
    if not find_in_store(reader, stream, at):
        return None
    # Not what was moved away with its bundle: the same bundle may be asked for again (L8).
    stored = (one for one in reader.events(stream) if not isinstance(one.event, events.SessionMoved))
    state = fold_stream(stored, f"{reader.name}: session {show_text(stream)}")
    try:
        vault = find_vault(state, said, clock)
    except NeedsPersonError as error:
        raise NeedsPersonError(
            f"session {show_text(stream)}: the log lacks files of its image at seq {at}, and its checkpoint store is not in "
            f"{show_text(said or os.fsdecode(state.modes.store))}; put it back, or name where it is now by SESSION_CHECKPOINTS, and run "
            "this again"
        ) from error
    if vault is None:
        raise MisuseError(f"session {show_text(stream)} names no checkpoint store, and the log lacks files of its image at seq {at}")
    image = read_image(reader, stream, at)
    check_not_stale(state, at)
    Contents(reader, vault).check(state, root_hash(image, state.profile.excludes).hex(), image, at)
    store = vault.store

    def fetch(content: ContentId) -> Iterator[bytes]:
        return store.content(content)

    return fetch
