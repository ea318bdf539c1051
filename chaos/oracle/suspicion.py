"""Suspicion of the oracles themselves: one that cannot fail proves nothing by passing.

Each oracle that passed, or had nothing to judge, is asked again about the same evidence with one thing spoiled that it must notice. One
that does not is unknown, whatever it said: a broken oracle never lets a trial pass. A spoil that does not apply to a trial is left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from .evidence import Evidence, known
from .lost_work import bound_of
from .redriver_record import Counted, Redriven
from .request_items import Edit, Seen, Woken
from .values import Change, Entry, Event, EvidenceMissing, Finding, Verdict, failed, unknown

Oracle = Callable[[Evidence], Finding | None]
Spoil = Callable[[Evidence], Evidence | None]

NOWHERE = b"spoiled\0"  # no file system has such a path, and no image may
NOTHING = b"\xaa" * 32  # no content anybody made has this digest, nor the next
OTHER = b"\xbb" * 32
STRANGER = Entry("f", 0o644, NOTHING, 1)


def run_oracle(oracle: Oracle, evidence: Evidence) -> Finding | None:
    """What an oracle finds; None when it has nothing to judge in this trial."""
    try:
        return oracle(evidence)
    except EvidenceMissing as missing:
        return unknown(str(missing))
    except Exception as error:  # noqa: BLE001 - the one broad except: a crashed oracle judged nothing and must not silence the others
        return unknown(f"the oracle crashed: {type(error).__name__}: {error}")


def doubt(name: str, oracle: Oracle, evidence: Evidence, finding: Finding | None) -> Finding | None:
    """The finding, or unknown when the oracle does not notice something spoiled."""
    if finding is not None and finding.verdict is not Verdict.PASS:
        return finding
    for what, spoil in SPOILS.get(name, {}).items():
        seen = run_oracle(partial(look_again, oracle, spoil), evidence)
        if is_blind(finding, seen):
            return unknown(f"the oracle does not notice {what}" + (f" ({seen.detail})" if seen else ""))
    return finding


def look_again(oracle: Oracle, spoil: Spoil, evidence: Evidence) -> Finding | None:
    """What the oracle says of spoiled evidence; noticed, when it cannot be spoiled so."""
    spoiled = spoil(evidence)
    return failed("this spoil does not apply") if spoiled is None else oracle(spoiled)


def is_blind(finding: Finding | None, seen: Finding | None) -> bool:
    """Whether an oracle should have failed and did not. One that had nothing to judge may lack the evidence for this, too."""
    if seen is not None and seen.verdict is Verdict.FAIL:
        return False
    return finding is not None or seen is None or seen.verdict is Verdict.PASS


def asked(evidence: Evidence, **fields: object) -> Evidence:
    """The evidence with other request fields; whatever asks for it finds an empty quarantine where none was listed."""
    kept = {} if evidence.kept is None else evidence.kept
    return replace(evidence, request=replace(evidence.request, **fields), kept=kept)  # type: ignore[arg-type]


def with_events(evidence: Evidence, change: Callable[[tuple[Event, ...]], tuple[Event, ...]]) -> Evidence:
    """The evidence with other events in the judged stream, which is all the log then has."""
    stream, log = evidence.stream(), known(evidence.log)
    events = change(stream.events)
    return replace(evidence, log=replace(log, streams={stream.id: replace(stream, events=events)}))


def with_stranger(evidence: Evidence) -> Evidence:
    """One more file in the workspace."""
    return replace(evidence, tree={**known(evidence.tree), NOWHERE: STRANGER})


def with_broken_hash(evidence: Evidence) -> Evidence:
    """The first event under another hash."""
    return with_events(evidence, lambda events: (replace(events[0], hash=NOTHING),))


def with_second_settlement(evidence: Evidence) -> Evidence | None:
    """The newest settlement once more."""
    settled = evidence.stream().of_kind("call_settled")
    return with_events(evidence, lambda events: (*events, settled[-1])) if settled else None


def with_torn_witness(evidence: Evidence) -> Evidence | None:
    """A witness file that ends within a line."""
    noted = known(evidence.witness)
    return None if noted is None or not evidence.request.witnessed else replace(evidence, witness=noted + b"torn")


def with_stale_writer(evidence: Evidence) -> Evidence:
    """The newest driver was superseded before it began."""
    newest = evidence.stream().events[-1].epoch
    return asked(evidence, superseded=((newest, 0),))


def with_woken(evidence: Evidence) -> Evidence:
    """A process of the newest epoch was woken at the log's head and made a file in an empty workspace."""
    events = evidence.stream().events
    return asked(evidence, frozen=(Woken(events[-1].epoch, {}, {NOWHERE: STRANGER}, len(events), len(events)),))


def with_woken_writer(evidence: Evidence) -> Evidence:
    """A process of the newest epoch was woken before all events."""
    events = evidence.stream().events
    return asked(evidence, frozen=(Woken(events[-1].epoch, {}, {}, 0, len(events)),))


def with_carried_changes(evidence: Evidence) -> Evidence | None:
    """A driver's start that carries the first event's image changes."""
    started = evidence.stream().of_kind("driver_started")
    changes = evidence.stream().events[0].changes
    return with_events(evidence, lambda events: (*events, replace(started[0], changes=changes))) if started and changes else None


def with_observation(evidence: Evidence, edits: tuple[Edit, ...]) -> Evidence:
    """An outside change, of a file that nobody wrote, beside these edits."""
    put = Change(NOWHERE, "put", "f", 0o644, NOTHING, 1, None, None, None, None, None, None, 0)
    observed = replace(evidence.stream().events[-1], kind="workspace_observed", payload={}, changes=(put,))
    return asked(with_events(evidence, lambda events: (*events, observed)), edits=edits)


def with_unmade_change(evidence: Evidence) -> Evidence:
    """An outside change though nobody edited."""
    return with_observation(evidence, ())


def with_other_content(evidence: Evidence) -> Evidence:
    """An outside change at an edited path, of another content."""
    return with_observation(evidence, (Edit(NOWHERE, OTHER),))


def with_loss(evidence: Evidence) -> Evidence:
    """The runner saw a file that is nowhere now."""
    return asked(evidence, displaced=(Seen(NOWHERE, "f", NOTHING, None),))


def with_false_acknowledgement(evidence: Evidence) -> Evidence | None:
    """One more driver that acknowledged something that is no call."""
    outputs = known(evidence.acknowledged)
    return None if outputs is None else replace(evidence, acknowledged=(*outputs, b"ACK nothing\n"))


def with_other_reference(evidence: Evidence) -> Evidence | None:
    """One more file in the workspace, which the plain run did not make."""
    applies = evidence.request.reference is not None and evidence.request.on_interrupted == "reissue"
    return with_stranger(evidence) if applies else None


def with_other_outputs(evidence: Evidence) -> Evidence | None:
    """Commands of the plain run that printed a word more."""
    outputs = evidence.request.reference_outputs
    return None if outputs is None else asked(evidence, reference_outputs={index: data + b"spoiled" for index, data in outputs.items()})


def with_other_final(evidence: Evidence) -> Evidence:
    """Another run that ended otherwise."""
    return asked(evidence, converges_to=NOTHING.hex(), converges_to_parts=None)


def with_lost_edit(evidence: Evidence) -> Evidence:
    """An edit of a file of the head image (of another path when it has none), whose content is nowhere."""
    files = [path for path, change in evidence.stream().fold.image.items() if change.kind == "f"]
    return asked(evidence, edits=(Edit(min(files, default=NOWHERE), NOTHING),))


def with_lost_removal(evidence: Evidence) -> Evidence | None:
    """A path of the head image that was removed after the newest event."""
    stream = evidence.stream()
    path = max(stream.fold.image)
    return asked(evidence, edits=(Edit(path, None, len(stream.events)),)) if path else None


def with_lost_call(evidence: Evidence) -> Evidence | None:
    """One more driver that acknowledged a call of which the log has nothing."""
    outputs = known(evidence.acknowledged)
    spoiled = None if outputs is None else replace(evidence, acknowledged=(*outputs, b"ACK 999999 999999 " + b"0" * 64 + b"\n"))
    is_bounded = bound_of(evidence.stream()) > 0 or evidence.request.put_back is not None
    return None if spoiled is None or is_bounded else spoiled


def with_unknown_checkpoint(evidence: Evidence) -> Evidence:
    """A checkpoint that the log names and no store has."""

    def change(events: tuple[Event, ...]) -> tuple[Event, ...]:
        named = {"store": "/nowhere", "lost_work_bound": 0, "manifest": ""}
        first = replace(events[0], payload={**events[0].payload, "checkpoints": named})
        taken = {"manifest": NOTHING.hex(), "root": NOTHING.hex(), "took_ms": 0}
        return first, *events[1:], replace(events[-1], kind="checkpoint_taken", payload=taken, changes=())

    return with_events(evidence, change)


def with_stale_target(evidence: Evidence) -> Evidence:
    """A restore to the first image, which is stale."""

    def change(events: tuple[Event, ...]) -> tuple[Event, ...]:
        first = replace(events[0], payload={**events[0].payload, "untracked": [{"path": "spoiled", "kind": "unstable"}]})
        aimed = {"label": "root_lost", "obligation": True, "target_seq": 1, "target_root": "00" * 32}
        return first, *events[1:], replace(events[-1], kind="recovery_decided", payload=aimed, changes=())

    return with_events(evidence, change)


def with_uncounted_driver(evidence: Evidence) -> Evidence:
    """A driver that nobody counted was begun."""
    found = known(evidence.redriven) or Redriven((), frozenset())
    return replace(evidence, redriven=Redriven(found.counted, found.begun | {10**6}))


def with_start_counted_twice(evidence: Evidence) -> Evidence:
    """One process is on the count as two starts."""
    found = known(evidence.redriven) or Redriven((), frozenset())
    last = found.counted[-1] if found.counted else Counted(1, 2, ("spoiled",))
    again = Counted(last.number + 1, last.epoch + 1, last.driver)
    return replace(evidence, redriven=Redriven((*found.counted[:-1], last, again), found.begun))


SPOILS: Mapping[str, Mapping[str, Spoil]] = {
    "workspace-equals-log": {"one more file in the workspace": with_stranger},
    "chain": {"an event under another hash": with_broken_hash},
    "order": {"a call that is settled twice": with_second_settlement},
    "witness": {"a torn line": with_torn_witness},
    "fencing": {
        "events of a driver that was superseded": with_stale_writer,
        "events of a process that was woken": with_woken_writer,
        "a workspace that a woken process changed": with_woken,
    },
    "laundering": {
        "image changes in a driver's start": with_carried_changes,
        "an outside change that nobody made": with_unmade_change,
        "an outside change of another content than the edit's": with_other_content,
    },
    "quarantine": {"a file that is lost": with_loss},
    "acknowledged": {"an acknowledgement of nothing": with_false_acknowledgement},
    "reference": {"one more file in the workspace": with_other_reference},
    "output": {"another output": with_other_outputs},
    "convergence": {"another final state": with_other_final},
    "lost-work": {"a call that is lost": with_lost_call},
    "checkpoints": {"a checkpoint that is not there": with_unknown_checkpoint},
    "stale": {"a restore to a stale image": with_stale_target},
    "redriver": {"a driver begun uncounted": with_uncounted_driver, "a start counted twice": with_start_counted_twice},
    "edits": {"an edit that is lost": with_lost_edit, "a removal that is lost": with_lost_removal},
}
