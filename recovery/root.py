"""The workspace root against the recorded identity (rules R6, D3): there, lost, perhaps not mounted, or another's. Changes nothing."""

import os

from eventlog.errors import NeedsPersonError, ScanError
from eventlog.show import show_text
from recovery.facts import RootFact
from recovery.labels import Label
from recovery.state import SessionState
from recovery.workspace.side import RootIdentity, is_same_root, read_root_identity, recorded_root, tell_unmounted


def recorded_identity(state: SessionState) -> RootIdentity:
    """The identity of the directory that is the session's workspace now."""
    return recorded_root(state.root_identity)


def observe_root(root: str, state: SessionState) -> RootFact:
    """What is at `root` now. Raises ScanError when it cannot be looked at."""
    recorded = recorded_identity(state)
    try:
        found = read_root_identity(root)
        names = os.listdir(root)
    except FileNotFoundError:
        return RootFact.UNMOUNTED if tell_unmounted(root, recorded) else RootFact.MISSING
    except NotADirectoryError:
        return RootFact.OTHER
    except OSError as error:
        raise ScanError(f"cannot read the workspace {show_text(root)}: {error.strerror}; make it readable and drive again") from error
    if is_same_root(recorded, found):
        return RootFact.PRESENT
    if names:
        return RootFact.OTHER
    return RootFact.UNMOUNTED if tell_unmounted(root, recorded) else RootFact.EMPTY_OTHER


def check_root(root: str, state: SessionState) -> None:
    """Raise ScanError when the root is lost (the next drive rebuilds it), NeedsPersonError when a person has to say what is there (D3)."""
    match observe_root(root, state):
        case RootFact.PRESENT:
            return
        case RootFact.MISSING | RootFact.EMPTY_OTHER as fact:
            raise ScanError(describe_root(fact, root, state))
        case RootFact.UNMOUNTED | RootFact.OTHER as fact:
            raise NeedsPersonError(describe_root(fact, root, state))


def describe_root(fact: RootFact, root: str, state: SessionState) -> str:
    """The sentence for a root that is not the session's own: label, what is there, and the ways out."""
    shown = show_text(root)
    match fact:
        case RootFact.MISSING:
            return f"{Label.ROOT_LOST.value}: the workspace {shown} is missing; drive again, and it is rebuilt from the log"
        case RootFact.EMPTY_OTHER:
            found = "an empty directory, not the session's own"
            return f"{Label.ROOT_LOST.value}: {shown} is {found}; drive again, and it is rebuilt from the log"
        case RootFact.UNMOUNTED:
            why = tell_unmounted(root, recorded_identity(state))
            return (
                f"{Label.ROOT_UNMOUNTED.value}: nothing is at {shown}; {why}then drive again, or "
                "`recovery settle STATE_DIR --rebuild` makes the workspace anew from the log"
            )
        case RootFact.OTHER if not os.path.isdir(root):
            return f"{Label.ROOT_REPLACED.value}: {shown} is not a directory; move it away and drive again, and the workspace is rebuilt"
        case RootFact.OTHER:
            return (
                f"{Label.ROOT_REPLACED.value}: {shown} is not the session's own directory; put that one back and drive again, or "
                "`recovery settle STATE_DIR --rebuild` makes what is there equal to the log (what it displaces is kept in quarantine), "
                "`recovery settle STATE_DIR --accept-root` takes it as the workspace"
            )
        case RootFact.PRESENT:
            return f"{shown} is the session's own directory"
