"""The registry of holders (S1): which session has which workspace root. One locked directory per person, one record per resolved root.

Equal, ancestor and descendant roots are refused, by whatever way they are reached (places.py): two sessions on one tree would each take the
other's changes for outside changes. A record holds until its session finishes or is released (`recovery release`).
"""

import contextlib
import json
import os
from collections.abc import Callable, Collection

from blake3 import blake3

from eventlog import durable
from eventlog.errors import MisuseError
from eventlog.ports import Clock
from eventlog.show import show_text, show_word
from recovery.space.lock import FileLock
from recovery.space.places import look_at, overlap

SPACE_HOLDER = "space:"
"""What the name of a holder begins with that is a space by hand; no name of a session has a colon."""


class Holders:
    """The registry in `directory`, made when it is missing."""

    def __init__(self, directory: str, clock: Clock) -> None:
        durable.make_directories(directory, "registry")
        self._directory = directory
        self._lock = FileLock(os.path.join(directory, "lock"), clock, "registry of holders")

    def close(self) -> None:
        """Give the registry's lock file back."""
        self._lock.close()

    def claim(self, root: str, session: str, state: str, is_finished: Callable[[str], bool]) -> bool:
        """Hold `root` for a session; True when it did not hold it before. `is_finished(state directory)` tells of another holder that its
        session has ended.

        Raises MisuseError naming the holder, or a record that cannot be read.
        """
        root = os.path.realpath(root)
        with self._lock.held():
            others = [(path, record) for path, record in self._records() if (record["session"], record["state"]) != (session, state)]
            place = look_at(root) if others else None  # with nobody else there is nothing to compare
            for path, record in others:
                if place is None or not overlap(place, look_at(record["root"])):
                    continue
                if not is_finished(record["state"]):
                    raise MisuseError(_refusal(root, record, path))
                durable.unlink(path, "holder")
            path = self._path(root)
            if os.path.exists(path):
                return False
            durable.publish(path, _body(root, session, state, "no"), "holder")
            return True

    def note_begun(self, root: str, session: str, state: str) -> None:
        """Keep in mind that the session's log stands: from now on a missing one is lost, not new, whatever became of its directory."""
        with self._lock.held():
            for path, record in self._records():
                if (record["root"], record["session"], record["state"], record["begun"]) == (root, session, state, "no"):
                    durable.publish(path, _body(root, session, state, "yes"), "holder.begun")

    def has_begun(self, root: str, session: str, state: str) -> bool:
        """Whether `note_begun` was said of this session and its root was not released since."""
        with self._lock.held():
            mine = (root, session, state, "yes")
            return any((record["root"], record["session"], record["state"], record["begun"]) == mine for _, record in self._records())

    def holder_of(self, states: Collection[str]) -> tuple[str, str] | None:
        """Who holds a root for one of these state directories, and that root; None when nobody does. For people: asked without the lock,
        and a record that cannot be read is passed over, because nothing is decided by it."""
        for name in sorted(os.listdir(self._directory)):
            with contextlib.suppress(FileNotFoundError, MisuseError):
                record = _read(os.path.join(self._directory, name)) if name.endswith(".json") else {}
                if record and record["state"] in states:
                    return record["session"], record["root"]
        return None

    def held_by(self, session: str, state: str) -> list[str]:
        """The roots that a session holds."""
        with self._lock.held():
            return [record["root"] for _, record in self._records() if (record["session"], record["state"]) == (session, state)]

    def release(self, root: str, session: str, state: str, check: Callable[[], None] = lambda: None) -> bool:
        """Give the root back; False, and nothing happens, when the session does not hold it. `check` is asked with the registry locked, so
        that nobody can claim meanwhile; what it raises keeps the record."""
        with self._lock.held():
            held = [
                path
                for path, record in self._records()
                if (record["root"], record["session"], record["state"]) == (root, session, state)
            ]
            check()
            for path in held:
                durable.unlink(path, "holder")
        return bool(held)

    def _path(self, root: str) -> str:
        return os.path.join(self._directory, blake3(os.fsencode(root)).hexdigest(16) + ".json")

    def _records(self) -> list[tuple[str, dict[str, str]]]:
        found = []
        for name in sorted(os.listdir(self._directory)):
            if not name.endswith(".json"):
                continue
            path = os.path.join(self._directory, name)
            with contextlib.suppress(FileNotFoundError):
                found.append((path, _read(path)))
        return found


def _body(root: str, session: str, state: str, begun: str) -> bytes:
    return json.dumps({"root": root, "session": session, "state": state, "begun": begun}).encode()


def _read(path: str) -> dict[str, str]:
    """One record. Fail-closed: what cannot be read might hold the root that is asked for."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            record = json.loads(file.read())
    except FileNotFoundError:
        raise
    except (ValueError, RecursionError, OSError) as error:
        raise _not_a_record(path) from error
    if not isinstance(record, dict) or not all(isinstance(record.get(name), str) for name in ("root", "session", "state", "begun")):
        raise _not_a_record(path)
    return record


def _not_a_record(path: str) -> MisuseError:
    return MisuseError(f"{show_text(path)}: not a holder record; look at it, and remove it when no session uses that workspace")


def _refusal(root: str, record: dict[str, str], path: str) -> str:
    through = "" if record["root"] == root else f" through {show_text(record['root'])}"
    is_space = record["session"].startswith(SPACE_HOLDER)
    held = f"{show_text(root)} is held by {'' if is_space else 'session:'}{show_text(record['session'])}{through}"
    state, word = show_text(record["state"]), show_word(record["state"])
    if not os.path.isdir(record["state"]):
        return f"{held}, whose state directory {state} is gone; put it back, or remove {show_text(path)} once none of its processes runs"
    if is_space:
        return f"{held}, a space by hand in {state}; free the workspace of it with `recovery release {word}`"
    return (
        f"{held}; finish it with `recovery drive {word}` (with `--finish` if it has no script, as after `recovery image --new`), "
        f"or free the workspace of it with `recovery release {word}`"
    )
