"""`recovery image`: take an image of a workspace and record it, in a log of its own making or as an outside change of a session."""

import json
import os
import re
from collections.abc import Callable
from typing import Any

import msgspec

from eventlog import events
from eventlog.errors import MisuseError, ScanError
from eventlog.records import Record
from eventlog.show import encode_bytes, show_text, show_word
from recovery.capture import Capture, capture_outside, commit_look
from recovery.command_log import find_place
from recovery.context import Context
from recovery.driver.entry import drive
from recovery.driver.order import Act, Order, Ports
from recovery.modes import commit_image
from recovery.opening import check_places, is_finished, log_path, open_session, read_log
from recovery.perform import recover
from recovery.script import Session
from recovery.settings import Settings
from recovery.space.holders import Holders
from recovery.state import SessionState
from recovery.workspace.profile import parse_profile
from recovery.workspace.values import Untracked
from recovery.workspace.watch import Hints, Watch

LOOKS = 20
"""Looks by hints cost what changed, so that many are cheap; a tree that never rests must not hold the command."""


class ImageOrder(msgspec.Struct, frozen=True):
    """What was asked for: `log` a state directory or the log in it."""

    log: str
    workspace: str
    is_new: bool = False
    accept_outside: str = ""
    as_json: bool = False
    excludes: tuple[str, ...] = ()
    track: tuple[str, ...] = ()
    rehash: bool = False
    hints: str = "full"


def take_image(order: ImageOrder, settings: Settings, ports: Ports) -> int:
    """Record the image and print it; the exit code. Raises MisuseError before anything is written."""
    if order.hints not in ("full", "watch"):
        raise MisuseError(f"--hints {show_text(order.hints)!r} is neither full nor watch; leave it out for full")
    if order.hints == "watch" and order.is_new:
        raise MisuseError("--hints watch has no meaning with --new; begin the log first, then take an image of it with --hints watch")
    if (order.excludes or order.track) and not order.is_new:
        raise MisuseError("--exclude and --track are fixed when a log begins; give them with --new, or leave them out")
    if order.is_new:
        return _begin(order, settings, ports)
    place = find_place(order.log, order.workspace, "recovery image", "`recovery image LOG --workspace DIR --new` begins one")
    command = f"recovery image {show_word(place.state)} --workspace {show_word(place.workspace)}"
    begun = ports.clock.monotonic()

    def work(context: Context) -> int:
        before = context.journal.state.head_seq
        recover(context)
        found = commit_look(lambda: _record(context, context.watch))
        changed = _count_changed(context, before)
        _print(order, context.journal.state, changed, ports.clock.monotonic() - begun, found.scan.untracked)
        return 0

    act = Act(work, command, is_fresh=order.rehash, accepts_outside=True)
    return drive(Order(place.state, None, None, order.accept_outside, act), msgspec.structs.replace(settings, hints=order.hints), ports)


def _record(context: Context, watch: Watch | None) -> Capture:
    """What changed since recovery looked, what no image holds too; the look."""
    found = capture_outside(context) if watch is None else look_at_rest(context.root, lambda: capture_outside(context), watch.drain)
    if found.differs or found.scan.untracked != context.journal.state.untracked:
        observed = events.WorkspaceObserved(context.clock.now_ms(), found.root, found.untracked)
        commit_image(context, found, [Record(observed, found.changes)], "observed")
    return found


def look_at_rest(root: str, look: Callable[[], Capture], drain: Callable[[], Hints]) -> Capture:
    """The newer of two looks at `root` between which nothing changed. Raises ScanError after LOOKS without such a pair.

    A scan reads one directory after the other: of a tree in motion it is an image that was never there at one time. The watcher says what
    moved since the look before; the root it names each time, for the scan's own unnamed file there (file_clock.py).
    """
    found, doubt = look(), ""
    for _ in range(LOOKS):
        hints = drain()
        again = look()
        if not hints.doubt and not hints.whole and hints.changed <= {b""} and again.root == found.root:
            return again
        found, doubt = again, hints.doubt
    why = f" ({doubt})" if doubt else ""
    raise ScanError(
        f"{show_text(root)} did not rest during {LOOKS} looks{why}; end what changes it, or leave `--hints watch` out, "
        "and drive again"
    )


def _begin(order: ImageOrder, settings: Settings, ports: Ports) -> int:
    if order.accept_outside:
        raise MisuseError("--accept-outside has no meaning with --new: nothing is recorded yet; leave one of them out")
    profile = parse_profile(list(order.excludes), list(order.track), "recovery image")
    state, workspace = os.path.realpath(order.log), os.path.realpath(order.workspace)
    if os.path.exists(log_path(state)) or os.path.isfile(state):
        raise MisuseError(f"{show_text(order.log)}: there is something already; leave --new out to record there, or name a new directory")
    if not os.path.isdir(workspace):
        raise MisuseError(f"the workspace {show_text(order.workspace)} is not a directory; name the one whose image is wanted")
    check_places(state, workspace)
    begun = ports.clock.monotonic()
    name = re.sub(r"[^A-Za-z0-9._-]", "-", os.path.basename(workspace))[:64].lstrip(".-_") or "images"
    session = Session(settings.name or name, workspace, state, "stop", (), profile)
    holders = Holders(settings.holders, ports.clock)
    is_held_anew = holders.claim(workspace, session.name, state, is_finished)
    try:
        open_session(session, settings.epoch, settings.allow_network, ports.clock, ports.ids)
    except BaseException:
        if is_held_anew and not os.path.exists(log_path(state)):
            holders.release(workspace, session.name, state)
        raise
    holders.note_begun(workspace, session.name, state)
    found = read_log(state)
    _print(order, found, len(found.image), ports.clock.monotonic() - begun, found.untracked)
    return 0


def _count_changed(context: Context, before: int) -> int:
    """How many paths the events after `before` changed: as `eventlog show` counts them, so that times count, in an event that has more."""
    events_after = (stored for stored in context.journal.reader.events(context.journal.stream) if stored.seq > before)
    return len({change.path for stored in events_after for change in stored.changes})


def _print(order: ImageOrder, state: SessionState, changed: int, seconds: float, untracked: tuple[Untracked, ...]) -> None:
    """`untracked` is what was seen just now."""
    files = {entry.link or path: entry.size for path, entry in state.image.items() if entry.kind == "f"}
    answer: dict[str, Any] = {
        "session": state.opened.name,
        "seq": state.head_seq,
        "image_seq": state.image_seq,
        "root": state.root,
        "paths": len(state.image),
        "bytes": sum(files.values()),
        "changed": changed,
        "untracked": [{"path": encode_bytes(one.path), "kind": one.kind} for one in untracked],
        "seconds": round(seconds, 6),
    }
    if order.as_json:
        print(json.dumps(answer))
        return
    print(
        f"seq {answer['seq']} root {state.root}: {answer['paths']} paths, {answer['bytes']} bytes, {changed} changed, "
        f"{len(untracked)} untracked, {seconds:.3f} s"
    )
    for one in untracked:
        print(f"untracked {one.kind}: {show_text(os.fsdecode(one.path))}")
