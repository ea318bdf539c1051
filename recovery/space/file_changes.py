"""Changes of files by key in a space by hand, through the file worker of one handle (S6).

Order: the worker is there, registered, and its side directory ready, before a key is announced, so that what cannot be had leaves no key
open; announced; the worker's starting mark; the change, synced; its exit record. A worker that dies in between leaves its key lost: nobody
knows whether it was done, and nothing here undoes it (a session does, by its image).
"""

import os
from typing import Literal

from blake3 import blake3

from recovery.space.file_request import FileRequest, digest_files, to_message
from recovery.space.keys import Answer, Attach, Replay, judge_key, prepare
from recovery.space.ledger import Ledger
from recovery.space.local import LocalSpace
from recovery.space.port import How
from recovery.space.protocol import PrepareSide
from recovery.space.records import Attempt, Prepare
from recovery.space.workspaces import Workspace


class FileChanges:
    """What one handle asks of its file worker."""

    def __init__(self, workspace: Workspace, ledger: Ledger) -> None:
        self._workspace = workspace
        self._ledger = ledger

    def find(self, request: FileRequest) -> How | None:
        """What stands for the key already, as of the ledger's last look; None when something is still to be done or refused."""
        answer = judge_key(self._ledger.state, request.key, None, digest_files(request))
        return _tell(answer)

    def carry_out(self, local: LocalSpace, epoch: int, request: FileRequest) -> How:
        """Announce the change and have it made. Raises what `prepare` raises, LostProcessError, MisuseError, NeedsPersonError for a root
        that is another by now."""
        self._workspace.check_held()
        self._ready(local, epoch)
        answer = prepare(self._ledger, self._record(local, epoch, request.key, digest_files(request), "file"))
        told = _tell(answer)
        if told is not None:
            return told
        local.change_files(to_message(request, epoch))
        return "attached" if isinstance(answer, Attach) else "started"

    def _ready(self, local: LocalSpace, epoch: int) -> None:
        if local.side is not None:
            return
        local.start_worker(self._workspace.root, is_synced=True)
        number = 1
        while self._ledger.state.find(key := f"side/e{epoch}/{os.getpid()}-{number}") is not None:
            number += 1
        prepare(self._ledger, self._record(local, epoch, key, "", "work"))
        local.side = str(local.change_files(PrepareSide(epoch, key, self._workspace.identity)).detail["side"])

    def _record(self, local: LocalSpace, epoch: int, key: str, digest: str, kind: Literal["file", "work"]) -> Prepare:
        state = self._ledger.state
        mark = local.mark("f" + blake3(key.encode("utf-8", "surrogateescape")).hexdigest(12))
        return Prepare(key, kind, epoch, None, 1, digest, mark, None, state.log_seq, state.log_hash)


def _tell(answer: Answer) -> How | None:
    match answer:
        case Replay():
            return "replayed"
        case Attach(attempt=Attempt(start=start)) if start is not None:
            return "attached"
        case _:
            return None
