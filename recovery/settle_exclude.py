"""A person leaves a path out of the images from here on, because it cannot be read (rule C5).

The decision and the image without the path are one commit. No scan is made for it: one that fails is why it is wanted.
"""

from eventlog import events
from eventlog.errors import MisuseError, NeedsPersonError
from eventlog.image import ImageTree, diff, root_hash
from eventlog.records import Record
from eventlog.show import encode_bytes, show_path
from recovery.capture import MOVE_AWAY, Capture, list_untracked
from recovery.context import Context
from recovery.facts import LogFact
from recovery.gather import log_fact
from recovery.labels import Label
from recovery.modes import commit_image
from recovery.root import check_root
from recovery.state import EXCLUDED
from recovery.workspace.left_out import without
from recovery.workspace.values import Scan


def exclude(context: Context, path: bytes) -> int:
    """No image holds `path` and what is below it from here on, and nothing touches it: the way out where it cannot be read (C5). No scan is
    made. How many paths left the image. Raises MisuseError, NeedsPersonError."""
    state = context.journal.state
    if state.obligation is not None:
        raise NeedsPersonError(
            f"--exclude: the restore decided at seq {state.obligation.seq} is open, and its image may hold the path; "
            "`recovery settle STATE_DIR --undo` tries it again, `--accept-workspace HASH` ends it with what is there"
        )
    if state.mode == "checkpoint":
        raise NeedsPersonError(
            f"--exclude {show_path(path)}: where the workspace is lost, calls since an older checkpoint are done again to the images that "
            "the log has of them, and those hold the path; without it none of them could be reached; " + MOVE_AWAY
        )
    check_root(context.root, state)
    if log_fact(state, context.journal.hashes, context.ledger.state, context.host) is not LogFact.ABREAST:
        raise NeedsPersonError("--exclude: the log lost its tail; `recovery apply STATE_DIR` recovers what there is first")
    if state.profile.matches(path, is_directory=True):
        raise MisuseError(f"--exclude {show_path(path)}: it is excluded already")
    image = ImageTree.of(without(state.image, [path]))
    changes = diff(state.image, image)
    gone = len(state.image) - len(image)
    now = context.clock.now_ms()
    call = state.open_call
    number, attempt = (call.number, call.last.number) if call else (None, None)
    facts = {EXCLUDED: encode_bytes(path), "paths": gone}
    label = Label.EXCLUDE_BY_PERSON.value
    decided = events.RecoveryDecided(now, label, number, attempt, False, None, None, state.mode, facts)
    observed = events.WorkspaceObserved(now, root_hash(image, state.profile.excludes).hex(), list_untracked(state.untracked))
    found = Capture(Scan(image, state.untracked), observed.root, changes, ())
    commit_image(context, found, [Record(decided), Record(observed, changes)], "settled")
    return gone
