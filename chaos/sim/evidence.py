"""What the oracle of real trials is given to judge a simulated one: the same evidence, read from memory in place of files.

The rows of the store become the oracle's own events by its own readers, so that nothing of the engine is asked what they say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chaos.oracle import rows
from chaos.oracle.blobs import Blob, BlobShelf
from chaos.oracle.evidence import Evidence, known
from chaos.oracle.final import final_digest, final_parts
from chaos.oracle.history_digest import history_digest, normalised_events
from chaos.oracle.image import fold_events
from chaos.oracle.judging import ORACLES
from chaos.oracle.load import Log
from chaos.oracle.paths import escape_path
from chaos.oracle.payloads import decode_payload
from chaos.oracle.request import JudgeRequest
from chaos.oracle.suspicion import doubt, run_oracle
from chaos.oracle.values import Change, Defect, Entry, Event, EvidenceMissing, Exit, Finding, Listing, Stream
from chaos.results import OracleVerdict, Verdict
from chaos.sim.tree import Tree, digest
from chaos.sim.world import SESSION, SIDE, Durable
from eventlog.image import Change as StoredChange
from eventlog.memory_store import Row
from eventlog.values import StreamId
from recovery.script import BashCall

NOT_JUDGED = frozenset({"edits", "checkpoints", "lost-work", "stale"})
"""Oracles about what no simulated trial has: outside edits, checkpoints, stale images."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a trial must end in, where interrupted calls are issued again: the workspace, outputs and exits of a plain run, and the final
    state of the clean one ("" where it is not known)."""

    listing: Listing
    outputs: Mapping[int, bytes]
    exits: Mapping[int, Exit]
    final: str = ""


class Read:
    """What was read before and stands in the log of a later trial too. A row is never changed, and trials of one session share those of
    its clean run; many of their other events say the same, byte for byte."""

    MOST_PAYLOADS = 4096

    def __init__(self) -> None:
        self._events: dict[int, tuple[Row, Event]] = {}
        self._payloads: dict[tuple[str, int, bytes], Mapping[str, Any]] = {}

    def decode(self, kind: str, version: int, stored: bytes) -> Mapping[str, Any]:
        """`decode_payload`, once for equal bytes."""
        key = (kind, version, stored)
        known = self._payloads.get(key)
        if known is None:
            if len(self._payloads) >= self.MOST_PAYLOADS:
                self._payloads.clear()
            known = self._payloads[key] = decode_payload(kind, version, stored)
        return known

    def keep(self, durable: Durable) -> None:
        """Remember the rows of this log."""
        stream = _read_log(durable, self).streams[SESSION]
        self._events |= {id(row): (row, event) for row, event in zip(durable.store.rows(StreamId(SESSION)), stream.events, strict=False)}

    def find(self, row: Row, seq: int, previous: bytes) -> Event | None:
        """The event of this very row at this very place."""
        known = self._events.get(id(row))
        if known is None or known[0] is not row or (known[1].seq, known[1].prev_hash) != (seq, previous):
            return None
        return known[1]


def gather(durable: Durable, wanted: Wanted | None, read: Read | None = None) -> Evidence:
    """The evidence of one trial that has ended."""
    log = _read_log(durable, read or Read())
    return Evidence(
        request=_make_request(durable, wanted, find_witnessed(durable, log.streams[SESSION])),
        log=log,
        tree=list_tree(durable.tree),
        witness=bytes(durable.witness),
        acknowledged=tuple("".join(f"{line}\n" for line in lines).encode() for _, lines in sorted(durable.said.items())),
        quarantined=frozenset(_list_quarantine(durable)),
        kept=None,
        moved=durable.space.state.moved,
    )


def judge_all(evidence: Evidence, *, suspect: bool = False) -> list[OracleVerdict]:
    """What each oracle says that judges simulated trials; with `suspect` each is asked again about spoiled evidence, as it must notice."""
    verdicts: list[OracleVerdict] = []
    for name, oracle in ORACLES.items():
        if name in NOT_JUDGED:
            continue
        finding = run_oracle(oracle, evidence)
        finding = doubt(name, oracle, evidence, finding) if suspect else finding
        if finding is not None:
            verdicts.append(_tell(name, finding))
    return verdicts


def _tell(name: str, finding: Finding) -> OracleVerdict:
    path = "" if finding.path is None else escape_path(finding.path)
    verdict = Verdict(finding.verdict.value)
    return OracleVerdict(name, verdict, finding.detail, path, finding.expected or "", finding.found or "", finding.event or "")


def digest_final(evidence: Evidence) -> str:
    """The digest of the final state, "" where it cannot be read."""
    try:
        return final_digest(final_parts(evidence))
    except EvidenceMissing:
        return ""


def digest_history(evidence: Evidence) -> str:
    """The digest of the history."""
    log = known(evidence.log)
    return history_digest(normalised_events(log.log_id, log.streams[SESSION])) or ""


def list_tree(tree: Tree) -> Listing:
    """The workspace as the oracle compares it."""
    return {path: _entry(node.mode, node.content) for path, node in tree.nodes.items()}


def _entry(mode: int, content: bytes | None) -> Entry:
    return Entry("d", mode) if content is None else Entry("f", mode, digest(content), len(content))


def _list_quarantine(durable: Durable) -> list[bytes]:
    """Every path below the quarantine directory."""
    listed: list[bytes] = []
    for name, rounds in durable.quarantine.items():
        listed.append(name.encode())
        for number, taken in enumerate(rounds, 1):
            above = b"%s/%d" % (name.encode(), number)
            listed.append(above)
            for path in taken:
                parts = path.split(b"/")
                listed += [above + b"/" + b"/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return listed


def find_witnessed(durable: Durable, stream: Stream) -> frozenset[int]:
    """The commands that note what they do, by their place in the script; none where nothing was noted and no command finished: every one
    was cut before it began, and there is nothing to judge."""
    commands = {event.payload["call"] for event in stream.of_kind("attempt_started") if event.payload["tool"] == "bash"}
    ended = {event.payload["call"] for event in stream.of_kind("call_settled") if event.payload["ended"] == "finished"}
    if not durable.witness and not commands & ended:
        return frozenset()
    calls = durable.workload.calls
    return frozenset(index for index, call in enumerate(calls) if isinstance(call, BashCall) and b"$WITNESS" in call.run)


def _make_request(durable: Durable, wanted: Wanted | None, witnessed: frozenset[int]) -> JudgeRequest:
    return JudgeRequest(
        log="", scratch="", stream=SESSION, workspace=b"", witness=b"", witnessed=witnessed, acknowledged=(b"",),
        reference=None if wanted is None else wanted.listing, reference_outputs=None if wanted is None else wanted.outputs or None,
        reference_exits=None if wanted is None else wanted.exits or None, on_interrupted=durable.workload.on_interrupted,
        script_length=len(durable.workload.calls), expect_finished=True, outside_edits=False, superseded=(), quarantine=SIDE.encode(),
        history=False, converges_to=None if wanted is None else wanted.final or None, converges_to_parts=None, edits=None, displaced=(),
        frozen=(), suspect=False,
    )  # fmt: skip


def _read_log(durable: Durable, read: Read) -> Log:
    """The log, its stream up to the first row that is malformed."""
    stored = durable.store.rows(StreamId(SESSION))
    previous, events, defects = bytes(32), list[Event](), tuple[Defect, ...]()
    for seq, row in enumerate(stored, 1):
        try:
            events.append(read.find(row, seq, previous) or _read_event(row, seq, previous, read))
        except rows.Malformed as problem:
            defects = (Defect(SESSION, seq, str(problem)),)
            break
        previous = row.hash
    listed = tuple(events)
    floor = max((event.epoch for event in listed), default=0)
    stream = Stream(SESSION, floor, len(stored), stored[-1].hash if stored else previous, listed, fold_events(listed), not defects)
    return Log(durable.store.log_id, {SESSION: stream}, _read_blobs(durable), defects)


def _read_event(row: Row, seq: int, previous: bytes, read: Read) -> Event:
    name = rows.Text(SESSION.encode())
    fields = (name, seq, row.id, row.epoch, rows.Text(row.kind.encode()), row.version, rows.Text(row.payload), previous, row.hash)
    return rows.read_event(fields, tuple(map(_read_change, row.changes)), read.decode)


def _read_change(change: StoredChange) -> Change:
    entry = change.entry
    if entry is None:
        return Change(change.path, change.op, "", 0, None, 0, None, None, None, None, None, None, change.mtime_ns)
    return Change(
        change.path, change.op, entry.kind, entry.mode, entry.content, entry.size, entry.target, entry.link, entry.xattrs, None, None,
        entry.acl, change.mtime_ns,
    )  # fmt: skip


def _read_blobs(durable: Durable) -> BlobShelf:
    return BlobShelf({name: Blob(blob.codec, blob.size, blob.data) for name, blob in durable.store.blobs.items()})
