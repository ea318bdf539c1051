"""Oracle `quarantine`: what a restore displaced is where the log says, all of it, and nothing else is there; and nothing is lost.

The log's word is compared with the directory, and both with the count of moves that the file worker left in the ledger. All of that is
the engine's own word, so the runner says what it saw itself before a driver came, and that must be somewhere still.

Victims lie at `<quarantine>/<log id>-<decision seq>/<round>/<path in the workspace>`.
"""

from collections.abc import Iterator

from .differences import describe, entry_of
from .evidence import Evidence, known
from .excludes import excluded_in, excludes_of
from .kept import is_whole, puts_at, victims_of
from .paths import ancestors_of, bytes_of, is_valid_path
from .request_items import Seen
from .values import Entry, Event, Finding, Verdict, failed, name_event, passed, unknown


class QuarantineProblem(Exception):
    """The quarantine is not what the log says; carries the path if there is one."""

    def __init__(self, detail: str, path: bytes | None = None) -> None:
        super().__init__(detail)
        self.path = path


def judge_quarantine(evidence: Evidence) -> Finding | None:
    """The records are those of the directory, and everything the runner saw is found again. Left out when nothing was restored and the
    runner saw nothing that is gone."""
    finding = judge_records(evidence)
    if finding is not None and finding.verdict is Verdict.PASS:
        finding = check_excluded(evidence) or finding
    if not evidence.request.displaced or (finding is not None and finding.verdict is not Verdict.PASS):
        return finding
    edited = {edit.path for edit in evidence.request.edits or ()}
    seen = [one for one in evidence.request.displaced if one.path not in edited]  # those are for the oracle of edits
    for one in seen:
        if not is_found(evidence, one):
            detail = "lost: what stood here is neither in quarantine, nor in the log, nor here"
            return failed(detail, path=one.path, expected=name_seen(one), found=describe(known(evidence.tree).get(one.path)))
    return passed(f"{finding.detail if finding else 'no restores'}; {len(seen)} entries seen before are found again")


def check_excluded(evidence: Evidence) -> Finding | None:
    """A failure when a restore moved what the session excludes. Raises EvidenceMissing for a pattern that is not understood."""
    if not excludes_of(evidence.stream()) or not evidence.stream().of_kind("quarantined"):
        return None
    victims = victims_of(evidence)
    rounds = max(map(len, victims.values()), default=0)
    listings = [{path: entries[min(number, len(entries) - 1)] for path, entries in victims.items()} for number in range(rounds)]
    moved = {path for listing in listings for path in excluded_in(evidence, listing)}
    return failed("a restore moved what the session excludes", path=min(moved)) if moved else None


def judge_records(evidence: Evidence) -> Finding | None:
    """Every path of every `quarantined` exists, its count is the restore's `displaced` and not below the moves of the ledger, and no file
    in the directory of a finished restore goes unrecorded. Left out when nothing was restored."""
    stream = evidence.stream()
    restores = stream.of_kind("restore_finished")
    recorded = stream.of_kind("quarantined")
    if not restores and not recorded:
        return None
    present = known(evidence.quarantined)
    if present is None:
        return unknown("restores happened and no quarantine directory was named")
    log_id, moved = known(evidence.log).log_id, known(evidence.moved) or {}
    for event in [*recorded, *restores]:
        try:
            check_event(event, [one for one in recorded if decision_of(one) == decision_of(event)], log_id, present)
            check_moves(event, moved.get(decision_of(event), 0))
        except QuarantineProblem as problem:
            return failed(str(problem), path=problem.path, event=name_event(event))
    return passed(f"{len(restores)} restores, {sum(len(event.payload['paths']) for event in recorded)} paths in quarantine")


def is_found(evidence: Evidence, seen: Seen) -> bool:
    """Whether what was seen is still here, in quarantine under its path, or in the log: a file's content as a whole blob, anything else
    in an image."""
    here = known(evidence.tree).get(seen.path)
    if here is not None and is_same(seen, here):
        return True
    if seen.content is not None and is_whole(known(evidence.log).blobs, seen.content):
        return True
    return any(is_same(seen, entry) for entry in entries_elsewhere(evidence, seen))


def entries_elsewhere(evidence: Evidence, seen: Seen) -> Iterator[Entry]:
    """What quarantine holds under the path; for what is no file, what images of the log had there too."""
    yield from victims_of(evidence).get(seen.path, ())
    if seen.content is None:
        yield from (entry_of(change) for _, change in puts_at(evidence.stream(), seen.path))


def is_same(seen: Seen, entry: Entry) -> bool:
    """Whether an entry is what was seen; modes and attributes are set in place and displace nothing."""
    return (seen.kind, seen.content, seen.target) == (entry.kind, entry.content, entry.target)


def name_seen(seen: Seen) -> str:
    """What was seen, for people."""
    return seen.kind if seen.content is None else f"{seen.kind} content={seen.content.hex()}"


def decision_of(event: Event) -> int:
    """The decision an event belongs to."""
    return int(event.payload["decision_seq"])


def check_event(event: Event, recorded: list[Event], log_id: str, present: frozenset[bytes]) -> None:
    """Check a `quarantined` or `restore_finished`; `recorded` are the `quarantined` of the same decision. Raises QuarantineProblem."""
    directory = f"{log_id}-{decision_of(event)}".encode()
    if event.kind == "quarantined":
        check_paths(event, directory, present)
        return
    listed = [bytes_of(path) for one in recorded for path in one.payload["paths"]]
    if len(listed) != event.payload["displaced"]:
        raise QuarantineProblem(f"{event.payload['displaced']} displaced, {len(listed)} recorded as quarantined")
    check_leaves(directory, frozenset(listed), present)


def check_moves(event: Event, moved: int) -> None:
    """A finished restore has at least one path in quarantine for each move that its workers made (a directory counts for its content)."""
    if event.kind == "restore_finished" and event.payload["displaced"] < moved:
        raise QuarantineProblem(f"{event.payload['displaced']} displaced, but the file worker moved {moved}")


def check_paths(event: Event, directory: bytes, present: frozenset[bytes]) -> None:
    """The directory is the decision's own and every path is below it, named once."""
    if bytes_of(event.payload["directory"]) != directory:
        raise QuarantineProblem(f"directory {event.payload['directory']!r} is not {directory.decode()!r}")
    paths = [bytes_of(path) for path in event.payload["paths"]]
    if len(set(paths)) != len(paths):
        raise QuarantineProblem("a path is recorded twice")
    for path in paths:
        if not path or not is_valid_path(path):
            raise QuarantineProblem("a recorded path has not the form of a path", path)
        if directory + b"/" + path not in present:
            raise QuarantineProblem("a recorded path is not in quarantine", path)


def check_leaves(directory: bytes, listed: frozenset[bytes], present: frozenset[bytes]) -> None:
    """Everything below a round that holds nothing itself is a listed path or lies below one (directories above victims are only
    their way there)."""
    prefix = directory + b"/"
    below = {path[len(prefix) :] for path in present if path.startswith(prefix)}
    holders = {above for path in below for above in ancestors_of(path)}
    for path in sorted(below - holders):
        if b"/" in path and path not in listed and listed.isdisjoint(ancestors_of(path)):
            raise QuarantineProblem("a path in quarantine is not recorded", path)
