"""Gathering: everything an oracle may look at is read here, once, before any of them judges. Oracles themselves open nothing.

What cannot be read becomes `Unreadable`; only an oracle that needs it turns unknown.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from .blobs import BlobShelf
from .ledger import ledger_of, read_moved
from .load import Log, load_log
from .redriver_record import Redriven, read_redriven, record_of
from .request import JudgeRequest, RequestError
from .store import StoreObjects, store_of
from .tree import list_tree, paths_below
from .values import EvidenceMissing, Listing, Stream, Unreadable

T = TypeVar("T")
SIDE_NAME = b".crashworthy-side"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one trial. `quarantined` holds the paths below the quarantine directory, None when none was named; `kept` what lies
    there, None also when no oracle needs it; `moved` how many victims the file worker says it moved, by seq of the decision, None where
    there is no ledger; `redriven` what a redriver counted, None where none was at work."""

    request: JudgeRequest
    log: Log | Unreadable
    tree: Listing | Unreadable
    witness: bytes | None | Unreadable
    acknowledged: tuple[bytes, ...] | None | Unreadable
    quarantined: frozenset[bytes] | None | Unreadable
    kept: Listing | None | Unreadable
    moved: Mapping[int, int] | None | Unreadable
    redriven: Redriven | None | Unreadable = None

    def stream(self) -> Stream:
        """The stream that is judged. Raises EvidenceMissing when it is missing, empty, or lost malformed rows."""
        log = known(self.log)
        stream = log.streams.get(self.request.stream)
        if stream is None:
            raise EvidenceMissing(f"the log has no stream {self.request.stream!r} (see chain)")
        if not stream.complete:
            raise EvidenceMissing("the stream has malformed or missing events (see chain)")
        if not stream.events:
            raise EvidenceMissing("the stream has no events (see chain)")
        return stream


def known(value: T | Unreadable) -> T:
    """The value, or EvidenceMissing with the reason why there is none."""
    if isinstance(value, Unreadable):
        raise EvidenceMissing(value.reason)
    return value


def attempt(what: str, read: Callable[[], T]) -> T | Unreadable:
    """What `read` gives, or Unreadable when the file system refuses."""
    try:
        return read()
    except OSError as error:
        return Unreadable(f"{what} cannot be read: {error}")


def read_file(path: bytes) -> bytes:
    """All bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def read_witness(path: bytes | None) -> bytes | None:
    """The witness file; a file no command ever made is an empty one."""
    if path is None:
        return None
    return read_file(path) if os.path.lexists(path) else b""


def read_kept(request: JudgeRequest, log: Log | Unreadable) -> Listing | None:
    """What lies in quarantine, contents and all, when the request asks where something has gone, or the session excludes paths."""
    stream = None if isinstance(log, Unreadable) else log.streams.get(request.stream)
    excludes = stream is not None and stream.events and stream.events[0].payload.get("excludes")
    asks = bool(request.edits or request.displaced or excludes)
    return list_tree(request.quarantine) if asks and request.quarantine is not None else None


def without_side(tree: Listing, request: JudgeRequest) -> Listing:
    """The workspace without the side directory, where the quarantine lies in it: the one name that no image may have (rule R2)."""
    inside = os.path.relpath(os.path.dirname(request.quarantine), request.workspace) if request.quarantine else b""
    if inside != SIDE_NAME:
        return tree
    return {path: entry for path, entry in tree.items() if path != SIDE_NAME and not path.startswith(SIDE_NAME + b"/")}


def with_store(log: Log, name: str) -> Log:
    """The log, its blobs with those behind them that the session named `name` keeps in a checkpoint store."""
    store = store_of(log.streams[name]) if name in log.streams else None
    if store is None:
        return log
    rows = StoreObjects(log.blobs.rows, os.path.join(store, b"contents"))
    return replace(log, blobs=BlobShelf(rows, log.blobs.given_up))


def gather(request: JudgeRequest) -> Evidence:
    """Read everything a request names. Raises RequestError when the scratch directory is not an empty directory."""
    acknowledged, quarantine = request.acknowledged, request.quarantine
    if not os.path.isdir(request.scratch) or os.listdir(request.scratch):
        raise RequestError(f"scratch {request.scratch!r} is not an existing empty directory")
    log = attempt("the log", lambda: with_store(load_log(request.log, request.scratch), request.stream))
    return Evidence(
        request=request,
        log=log,
        tree=attempt("the workspace", lambda: without_side(list_tree(request.workspace), request)),
        witness=attempt("the witness file", lambda: read_witness(request.witness)),
        acknowledged=attempt("drivers' output", lambda: None if acknowledged is None else tuple(map(read_file, acknowledged))),
        quarantined=attempt("the quarantine", lambda: None if quarantine is None else frozenset(paths_below(quarantine))),
        kept=attempt("the quarantine", lambda: read_kept(request, log)),
        moved=attempt("the ledger", lambda: read_moved(ledger_of(request.log))),
        redriven=attempt("the redriver's record", lambda: read_redriven(record_of(request.log))),
    )
