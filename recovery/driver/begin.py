"""What a driver does before it has an epoch: find the session, claim its workspace, begin or read its log."""

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from eventlog.errors import CrashworthyError, MisuseError, required
from eventlog.preflight import check_writable_place
from eventlog.reader import Reader
from eventlog.show import show_text
from eventlog.values import StreamId
from recovery.checkpoints.vault import Vault
from recovery.driver.order import Order, Ports, finished_error
from recovery.fold_cache import FoldCache, Known
from recovery.journal import is_head, only_stream, read_state
from recovery.opening import (
    check_log_exists,
    check_places,
    ensure_ledger,
    find_vault,
    fold_cache_of,
    is_finished,
    log_missing,
    log_path,
    open_session,
    remove_second_names,
    space_paths,
)
from recovery.script import BashCall, Call, call_from_json, call_to_json, decode_bytes
from recovery.settings import Settings
from recovery.space.bubblewrap import Bubblewrap, SpaceKind, choose_bubblewrap, parse_space
from recovery.space.holders import Holders
from recovery.space.marks import MarkSetting, choose_marks
from recovery.space.places import contains, look_at


class Begun(msgspec.Struct, frozen=True):
    """A session that has begun and whose workspace this process has claimed. `root` is resolved; `known` is its log as it was read."""

    order: Order
    settings: Settings
    ports: Ports
    setting: MarkSetting
    bubblewrap: Bubblewrap | None
    root: str
    known: Known
    holders: Holders
    vault: Vault | None = None
    fold_cache: FoldCache | None = None

    @property
    def name(self) -> str:
        return self.known[0].opened.name

    def hold(self) -> None:
        """Claim the workspace again. Raises HeldError."""
        self.holders.claim(self.root, self.name, os.path.realpath(self.order.state), is_finished)

    def release(self) -> None:
        """Give the workspace free."""
        self.holders.release(self.root, self.name, os.path.realpath(self.order.state))


def begin(order: Order, settings: Settings, ports: Ports) -> Begun:
    """Claim the workspace and begin or read the session. Raises MisuseError, NeedsPersonError and what opening a log raises; then the
    workspace is as free as it was."""
    setting = choose_marks(settings.kill_mark)
    _check_left_behind([call_to_json(call) for call in order.session.calls] if order.session else [], settings, setting)
    cache = fold_cache_of(order.state)
    read = None if order.session is not None else _find_log(order, cache)
    name, workspace, script = _find_session(order, read)
    check_places(order.state, workspace)
    root = os.path.realpath(workspace)
    bubblewrap = _find_bubblewrap(order, settings, root, script)  # before anything is made
    state_directory = os.path.realpath(order.state)
    holders = Holders(settings.holders, ports.clock)
    is_new = holders.claim(root, name, state_directory, is_finished)
    known: Known | None = None
    if order.session is not None:
        if not os.path.exists(log_path(order.state)) and holders.has_begun(root, name, state_directory):
            raise log_missing(order.state)
        try:
            known = open_session(order.session, settings.epoch, settings.allow_network, ports.clock, ports.ids, ports.host.boot_id(), cache)
        except (CrashworthyError, OSError):
            # A session that could not begin must not keep the workspace from any other; one that another process began meanwhile must.
            if is_new and not os.path.exists(log_path(order.state)):
                holders.release(root, name, state_directory)
            raise
        holders.claim(root, name, state_directory, is_finished)  # again: another process may have given up and let go in between
    check_log_exists(order.state)
    holders.note_begun(root, name, state_directory)
    check_writable_place(order.state, allow_network=settings.allow_network)
    remove_second_names(order.state)
    known = known or _read(order.state, StreamId(name), cache, read)
    _check_left_behind(known[0].opened.script, settings, setting)
    if known[0].is_finished and order.act is not None:
        raise finished_error(order.state, name)
    vault = None
    if not known[0].is_finished:
        vault = find_vault(known[0], settings.checkpoints, ports.clock)
        ensure_ledger(known[0], space_paths(order.state))
    return Begun(order, settings, ports, setting, bubblewrap, root, known, holders, vault, cache)


def _check_left_behind(script: list[dict[str, Any]], settings: Settings, setting: MarkSetting) -> None:
    """Raise MisuseError where processes are to be kept of which nothing could be proved once their shim has ended."""
    said = {settings.left_behind} if settings.left_behind else {call.get("left_behind") for call in script}
    if setting.kind == "environment" and "keep" in said:
        raise MisuseError(
            "left_behind = keep needs a stronger kill mark than environment, under which nothing is provable of what outlives its shim; "
            "use kill or fail"
        )


def _find_log(order: Order, cache: FoldCache) -> Known:
    """The log of the session that the state directory holds."""
    check_log_exists(order.state)
    return _read(order.state, None, cache)


def _find_session(order: Order, read: Known | None) -> tuple[str, str, Sequence[Call]]:
    """Name, workspace, and the calls of which some may still have to run: from the session file, else from the log as it was read."""
    if order.session is not None:
        return order.session.name, order.session.workspace, order.session.calls
    state = required(read, "neither a session file nor a log that was read says what is driven")[0]
    tables = [] if state.is_finished else state.opened.script
    script = [call_from_json(call, f"script call {number}") for number, call in enumerate(tables, 1)]
    return state.opened.name, os.fsdecode(decode_bytes(state.opened.workspace, "workspace")), script


def _find_bubblewrap(order: Order, settings: Settings, root: str, script: Sequence[Call]) -> Bubblewrap | None:
    """What confines the commands of this drive, None where there is nothing to confine. Raises MisuseError."""
    override = space_override(settings)
    calls = [call for call in script if isinstance(call, BashCall) and (override or call.space) == "namespaced"]
    is_asked = bool(calls) or (order.takes_calls and override == "namespaced")
    if (order.act is not None and not order.act.runs_commands) or not is_asked:
        return None
    keeps = settings.left_behind == "keep" or any((settings.left_behind or call.left_behind) == "keep" for call in calls)
    _check_writable(order.state, settings.space_writable)
    path = settings.command_environment.get("PATH")
    return choose_bubblewrap(["namespaced"], root, path, "keep" if keeps else "kill", settings.space_writable)


def _check_writable(state: str, writable: Sequence[str]) -> None:
    """Raise MisuseError where a confined command could write log or ledger."""
    own = look_at(state)
    for path in writable:
        if contains(look_at(path), own) or contains(own, look_at(path)):
            raise MisuseError(
                f"SESSION_SPACE_WRITABLE: {show_text(path)} and the state directory {show_text(state)} contain each other; name another"
            )


def space_override(settings: Settings) -> SpaceKind | None:
    """The kind of space that the environment asks for in place of the calls' own. Raises MisuseError."""
    return parse_space(settings.space, "SESSION_SPACE") if settings.space else None


def _read(state: str, stream: StreamId | None, cache: FoldCache, before: Known | None = None) -> Known:
    """The log now; `before` is what this process has read of it, and stands while the log's head is still the same event."""
    reader = Reader.open(log_path(state))
    try:
        if before is not None and stream is not None and is_head(reader, stream, before[0]):
            return before
        return read_state(reader, stream or only_stream(reader), cache=cache)
    finally:
        reader.close()
