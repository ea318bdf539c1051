"""`recovery quarantine list | show | checkout | empty`: what restores displaced. The directories are the truth, the log says when and why.

Only `empty` deletes. In a session that goes on it is a driver: takeover, a `noted` event, then the file worker (S6). After a session's end
nothing may follow in its log, and no driver can have work there: the holder is claimed and the side directory alone is touched, by
this process.
"""

import json
import os
from datetime import UTC, datetime
from typing import Any

import msgspec

from eventlog import events
from eventlog.errors import MisuseError, NeedsPersonError
from eventlog.image import decode_xattrs
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.show import encode_bytes, show_path, show_text, show_word
from eventlog.values import StreamId
from recovery.command_log import Place, find_place
from recovery.context import Context
from recovery.driver.entry import drive
from recovery.driver.order import Act, Order, Ports
from recovery.files import empty_quarantine
from recovery.opening import is_finished, log_path
from recovery.perform import check_decidable
from recovery.root import check_root
from recovery.settings import Settings
from recovery.space.holders import Holders
from recovery.workspace.in_place import Before
from recovery.workspace.quarantine_tree import UNFINISHED_PREFIX, Displaced, Kept, copy_out, empty, find_displaced, find_emptied
from recovery.workspace.side import find_sides

_WAY_OUT = "name the state directory of a session"
_KINDS = {"f": "file", "d": "directory", "l": "link", "p": "fifo"}


class _Decision(msgspec.Struct, frozen=True):
    """A restore decision with a quarantine, as the log tells it. `at_ms` and `recorded` are None until it has ended."""

    label: str
    at_ms: int | None
    recorded: int | None


class _Found(msgspec.Struct, frozen=True):
    """What one look found: the side directories, what lies in them by decision, and what the log says of the decisions."""

    place: Place
    sides: tuple[str, ...]
    displaced: dict[int, Displaced]
    decisions: dict[int, _Decision]
    emptied: frozenset[int]

    def at(self, seq: int) -> Displaced:
        """What a decision displaced. Raises MisuseError when nothing of it is there."""
        if seq not in self.displaced:
            raise MisuseError(
                f"decision {seq} has nothing in quarantine; `recovery quarantine list {show_word(self.place.state)}` says which have"
            )
        return self.displaced[seq]


def _find(log: str) -> _Found:
    """Look at log and directories; nothing is changed. Raises MisuseError, LogMissingError, CorruptError, NeedsPersonError."""
    place = find_place(log, None, "recovery quarantine", _WAY_OUT)
    reader = Reader.open(log_path(place.state))
    try:
        log_id = reader.log_id
        decisions = _read_decisions(reader, StreamId(place.known.opened.name))
    finally:
        reader.close()
    sides = find_sides(place.workspace, place.known.opened.ledger_id)
    return _Found(place, sides, {one.seq: one for one in find_displaced(sides, log_id)}, decisions, find_emptied(sides, log_id))


def _read_decisions(reader: Reader, stream: StreamId) -> dict[int, _Decision]:
    found: dict[int, _Decision] = {}
    for stored in reader.events(stream):
        match stored.event:
            case events.RecoveryDecided(obligation=True, label=label):
                found[stored.seq] = _Decision(label, None, None)
            case events.Quarantined(decision_seq=seq, at_ms=at_ms, paths=paths) if seq in found:
                found[seq] = _Decision(found[seq].label, at_ms, len(paths))
            case _:
                pass
    return found


def _time(at_ms: int | None) -> str:
    return "not ended" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def list_quarantine(log: str, as_json: bool) -> int:
    """Print one row for each decision that displaced something, those emptied or lost since as well; the exit code."""
    found = _find(log)
    rows: list[dict[str, Any]] = []
    for seq in sorted(found.decisions.keys() | found.displaced.keys()):
        decision, there = found.decisions.get(seq, _Decision("", None, None)), found.displaced.get(seq)
        if there is None and not decision.recorded:
            continue
        rows.append(
            {
                "decision_seq": seq,
                "label": decision.label,
                "at_ms": decision.at_ms,
                "rounds": there.rounds if there else 0,
                "paths": len(there.nodes) if there else 0,
                "bytes": there.size if there else 0,
                "changed_in_place": len(there.in_place) if there else 0,
                "recorded_paths": decision.recorded,
                "is_open": _is_open(found, seq),
                "state": "kept" if there else "emptied" if seq in found.emptied else "lost",
            }
        )
    if as_json:
        directories = [encode_bytes(os.fsencode(side)) for side in found.sides]
        print(json.dumps({"session": found.place.known.opened.name, "side": directories, "decisions": rows}))
        return 0
    for row in rows:
        held = f" (it held {row['recorded_paths']} paths)"
        where = " and ".join(show_text(side) for side in found.sides) or "any side directory: put it back beside the workspace"
        gone = {"kept": "", "emptied": f", emptied{held}", "lost": f", lost{held}: not in {where}"}[row["state"]]
        print(f"{row['decision_seq']:>6} {_time(row['at_ms'])} {row['label']}: {row['rounds']} rounds, {row['paths']} paths, "
              f"{row['bytes']} bytes{gone}")  # fmt: skip
    if not rows:
        print("nothing was displaced by any restore of this session")
    return 0


def _is_open(found: _Found, seq: int) -> bool:
    obligation = found.place.known.obligation
    return obligation is not None and obligation.seq == seq


def _row(node: Kept) -> dict[str, Any]:
    number, _, path = node.path.partition(b"/")
    return {"round": int(number) if number.isdigit() else 0, "path": encode_bytes(path), "kind": _KINDS.get(node.kind, node.kind),
            "bytes": node.size}  # fmt: skip


def _print_nodes(displaced: Displaced) -> None:
    for node in displaced.nodes:
        print(f"{_KINDS.get(node.kind, node.kind):<9} {node.size:>12} {show_path(node.path)}")


def _before_row(number: int, before: Before) -> dict[str, Any]:
    pairs = [[{"name": encode_bytes(name), "value": encode_bytes(value)} for name, value in decode_xattrs(some)]
             for some in (before.xattrs, before.acl)]  # fmt: skip
    return {"round": number, "path": encode_bytes(before.path), "kind": _KINDS[before.kind], "mode": before.mode,
            "mtime_ns": before.mtime_ns, "owner": list(before.owner), "xattrs": pairs[0], "acl": pairs[1]}  # fmt: skip


def _print_before(number: int, before: Before) -> None:
    names = [show_path(name) for some in (before.xattrs, before.acl) for name, _ in decode_xattrs(some)]
    more = f", {', '.join(names)}" if names else ""
    print(f"in place  {_KINDS[before.kind]} {number}/{show_path(before.path)}: was mode {before.mode:04o}, time {before.mtime_ns} ns, "
          f"owner {before.owner[0]}:{before.owner[1]}{more}")  # fmt: skip


def show_quarantine(log: str, seq: int, as_json: bool) -> int:
    """Print what one decision displaced, a path a line (`<round>/<path>`, escaped), and what it changed in place; the exit code. Raises
    MisuseError."""
    found = _find(log)
    displaced = found.at(seq)
    if as_json:
        answer = {"session": found.place.known.opened.name, "decision_seq": seq, "bytes": displaced.size,
                  "paths": [_row(node) for node in displaced.nodes],
                  "in_place": [_before_row(number, before) for number, before in displaced.in_place]}  # fmt: skip
        print(json.dumps(answer))
        return 0
    _print_nodes(displaced)
    for number, before in displaced.in_place:
        _print_before(number, before)
    print(f"decision {seq}: {displaced.rounds} rounds, {len(displaced.nodes)} paths, {displaced.size} bytes")
    return 0


def check_out_quarantine(log: str, seq: int, directory: str, as_json: bool, ports: Ports) -> int:
    """Copy what one decision displaced into a new directory; the exit code. Raises MisuseError, FullError."""
    found = _find(log)
    displaced = found.at(seq)
    target = os.path.realpath(directory)
    places = [(found.place.workspace, "workspace"), (found.place.state, "state directory")]
    for outer, what in [*places, *((side, "side directory") for side in found.sides)]:
        if target == outer or target.startswith(outer.rstrip("/") + "/"):
            raise MisuseError(f"{show_text(directory)} lies inside the {what} {show_text(outer)}; name a directory outside it")
    copied = copy_out(found.sides, displaced.name, directory, UNFINISHED_PREFIX + ports.ids.new_id().hex()[:16])
    if as_json:
        left_out = [_row(node) for node in copied.left_out]
        print(json.dumps({"decision_seq": seq, "directory": encode_bytes(os.fsencode(directory)), "paths": copied.paths,
                          "bytes": copied.size, "left_out": left_out}))  # fmt: skip
        return 0
    for node in copied.left_out:
        print(f"not copied, {node.kind}: {show_path(node.path)}")
    print(f"copied {copied.paths} paths, {copied.size} bytes to {show_text(directory)}; the quarantine is as it was")
    return 0


class EmptyOrder(msgspec.Struct, frozen=True):
    """What was asked for; `seq` None means every decision."""

    log: str
    seq: int | None
    is_dry: bool = False
    as_json: bool = False


def empty_decisions(order: EmptyOrder, settings: Settings, ports: Ports) -> int:
    """Delete what one decision displaced, or every one; the exit code. Raises MisuseError, NeedsPersonError before anything is changed."""
    found = _find(order.log)
    wanted = (found.at(order.seq),) if order.seq is not None else tuple(found.displaced.values())
    obligation = found.place.known.obligation
    _check_ended({one.seq for one in wanted}, obligation.seq if obligation else None, found.place.state)
    if order.is_dry or not wanted:
        _print_emptied(order, wanted, is_done=False)
        return 2 if wanted else 0
    if found.place.known.is_finished:
        return _empty_finished(order, found, wanted, settings, ports)
    names = [one.name for one in wanted]

    def work(context: Context) -> int:
        obligation = context.journal.state.obligation
        _check_ended({one.seq for one in wanted}, obligation.seq if obligation else None, found.place.state)
        check_root(context.root, context.journal.state)
        check_decidable(context)
        for one in wanted:  # before the first path goes: a kill in between leaves the reason on record
            text = f"a person has the quarantine of decision {one.seq} emptied: {len(one.nodes)} paths, {one.size} bytes"
            context.journal.append([Record(events.Noted(context.clock.now_ms(), text))], (), "emptied")
        empty_quarantine(context, names)
        _print_emptied(order, wanted, is_done=True)
        return 0

    which = "" if order.seq is None else f" {order.seq}"
    command = f"recovery quarantine empty {show_word(found.place.state)}{which}"
    return drive(Order(found.place.state, None, None, "", Act(work, command)), settings, ports)


def _check_ended(wanted: set[int], open_seq: int | None, state: str) -> None:
    """Raise NeedsPersonError while the restore of a wanted decision has not ended: what it displaced is not yet on record."""
    if open_seq is not None and open_seq in wanted:
        raise NeedsPersonError(
            f"the restore decided at seq {open_seq} is open and nothing of it is deleted; `recovery drive {show_word(state)}` completes it"
        )


def _empty_finished(order: EmptyOrder, found: _Found, wanted: tuple[Displaced, ...], settings: Settings, ports: Ports) -> int:
    """Of a session that has ended: the workspace is held meanwhile, so that no session begins in it, and no event is written."""
    state, workspace, name = found.place.state, found.place.workspace, found.place.known.opened.name
    holders = Holders(settings.holders, ports.clock)
    is_held_anew = holders.claim(workspace, name, state, is_finished)
    try:
        for side in found.sides:
            for one in wanted:
                empty(side, one.name)
    finally:
        if is_held_anew:
            holders.release(workspace, name, state)
    _print_emptied(order, wanted, is_done=True)
    return 0


def _print_emptied(order: EmptyOrder, wanted: tuple[Displaced, ...], is_done: bool) -> None:
    size, paths = sum(one.size for one in wanted), sum(len(one.nodes) for one in wanted)
    if order.as_json:
        decisions = [{"decision_seq": one.seq, "bytes": one.size, "paths": [_row(node) for node in one.nodes]} for one in wanted]
        print(json.dumps({"dry_run": order.is_dry, "deleted": is_done, "bytes": size, "decisions": decisions}))
        return
    for one in wanted:
        print(f"decision {one.seq}:")
        _print_nodes(one)
    verb = "deleted" if is_done else "would delete" if wanted else "nothing in quarantine: deleted"
    print(f"{verb} {paths} paths, {size} bytes")
