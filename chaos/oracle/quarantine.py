"""Oracle `quarantine`: what a restore displaced is where the log says, all of it, and nothing else is there.

The log's word is compared with the directory, and both with the count of moves that the file worker left in the ledger.

Victims lie at `<quarantine>/<log id>-<decision seq>/<round>/<path in the workspace>`.
"""

from .evidence import Evidence, known
from .paths import ancestors_of, bytes_of, is_valid_path
from .values import Event, Finding, failed, name_event, passed, unknown


class QuarantineProblem(Exception):
    """The quarantine is not what the log says; carries the path if there is one."""

    def __init__(self, detail: str, path: bytes | None = None) -> None:
        super().__init__(detail)
        self.path = path


def judge_quarantine(evidence: Evidence) -> Finding | None:
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
