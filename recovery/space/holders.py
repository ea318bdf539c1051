"""The registry of holders (S1): which session has which workspace root. One locked directory per person, one record per resolved root.

Equal, ancestor and descendant roots are refused: two sessions on one tree would each take the other's changes for outside changes.
"""

import contextlib
import json
import os
from collections.abc import Callable

from blake3 import blake3

from eventlog import durable
from eventlog.errors import MisuseError
from eventlog.ports import Clock
from eventlog.show import show_text
from recovery.space.lock import FileLock


class Holders:
    """The registry in `directory`, made when it is missing."""

    def __init__(self, directory: str, clock: Clock) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._directory = directory
        self._lock = FileLock(os.path.join(directory, "lock"), clock, "registry of holders")

    def close(self) -> None:
        """Give the registry's lock file back."""
        self._lock.close()

    def claim(self, root: str, session: str, state: str, is_finished: Callable[[str], bool]) -> bool:
        """Hold the resolved `root` for a session; True when it did not hold it before. `is_finished(state directory)` tells of another
        holder that its session has ended.

        Raises MisuseError naming the holder.
        """
        with self._lock.held():
            for path, record in self._records():
                if (record["session"], record["state"]) == (session, state) or not _overlap(root, record["root"]):
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

    def release(self, root: str, session: str, state: str) -> None:
        """Give the root back; nothing happens when somebody else holds it."""
        with self._lock.held():
            for path, record in self._records():
                if (record["root"], record["session"], record["state"]) == (root, session, state):
                    durable.unlink(path, "holder")

    def _path(self, root: str) -> str:
        return os.path.join(self._directory, blake3(os.fsencode(root)).hexdigest(16) + ".json")

    def _records(self) -> list[tuple[str, dict[str, str]]]:
        found = []
        for name in sorted(os.listdir(self._directory)):
            if not name.endswith(".json"):
                continue
            path = os.path.join(self._directory, name)
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="surrogateescape") as file:
                found.append((path, _parse(path, file.read())))
        return found


def _body(root: str, session: str, state: str, begun: str) -> bytes:
    return json.dumps({"root": root, "session": session, "state": state, "begun": begun}).encode()


def _parse(path: str, text: str) -> dict[str, str]:
    try:
        record = json.loads(text)
    except ValueError as error:
        raise MisuseError(
            f"{show_text(path)}: not a holder record; look at it, and remove it when no session uses that workspace"
        ) from error
    if not isinstance(record, dict) or not all(isinstance(record.get(name), str) for name in ("root", "session", "state", "begun")):
        raise MisuseError(f"{show_text(path)}: not a holder record; look at it, and remove it when no session uses that workspace")
    return record


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other.rstrip("/") + "/") or other.startswith(one.rstrip("/") + "/")


def _refusal(root: str, record: dict[str, str], path: str) -> str:
    through = "" if record["root"] == root else f" through {show_text(record['root'])}"
    held = f"{show_text(root)} is held by session:{show_text(record['session'])}{through}"
    state = show_text(record["state"])
    if not os.path.isdir(record["state"]):
        return f"{held}, whose state directory {state} is gone; put it back, or remove {show_text(path)} once none of its processes runs"
    return f"{held}; finish it first with `recovery drive {state}` (with `--finish` if it has no script, as after `recovery image --new`)"
