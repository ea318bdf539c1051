"""Session files: a scripted session read from TOML. Apart from `script`, because a driver reads its calls from the log.

Relative directories are relative to the file's own. Errors name the file, the place and what to write instead.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from eventlog.errors import MisuseError
from eventlog.events import Limits, Mode
from eventlog.values import SESSION_NAME
from recovery.limits import DEFAULT_LIMITS
from recovery.script import BashCall, Call, Policy, Session, parse_calls, parse_left_behind, parse_on_interrupted, parse_policy
from recovery.space.bubblewrap import parse_space
from recovery.space.request import LeftBehind
from recovery.workspace.profile import parse_profile

_SESSION_KEYS = {
    "name", "workspace", "state", "mode", "store", "lost_work_bound", "limits", "replay", "on_interrupted", "left_behind", "space",
    "exclude", "track", "call",
}  # fmt: skip


def load_session(file: Path) -> Session:
    """Read a session file; relative `workspace` and `state` are relative to the file's directory.

    Raises MisuseError with the file, the place and what to write instead.
    """
    table = load_toml(file)
    base = file.resolve().parent
    for key in sorted(set(table) - _SESSION_KEYS):
        raise MisuseError(
            f"{file}: unknown key {key!r}; a session has name, workspace, state, mode, store, lost_work_bound, on_interrupted, "
            "left_behind, space, exclude, track, [limits], [replay] and [[call]]"
        )
    for key in ("name", "workspace", "state"):
        if not isinstance(table.get(key), str) or not table[key]:
            raise MisuseError(f"{file}: {key} is missing or not a string")
        if "\0" in table[key]:
            raise MisuseError(f"{file}: {key} holds a NUL character; write a plain name")
    if not SESSION_NAME.match(table["name"]):
        raise MisuseError(f"{file}: name {table['name']!r} must be 1 to 64 letters, digits, '.', '_' or '-'")
    mode = parse_mode(table.get("mode", "transactional"), str(file))
    policies = parse_replay(table.get("replay", {}), str(file))
    return Session(
        name=table["name"],
        workspace=str(base / table["workspace"]),
        state=str(base / table["state"]),
        on_interrupted=parse_on_interrupted(table.get("on_interrupted", "stop"), str(file)),
        calls=_with_left_behind(
            parse_calls(table.get("call"), str(file), parse_space(table.get("space", "local"), str(file)), policies),
            parse_left_behind(table.get("left_behind"), str(file)),
        ),
        profile=parse_profile(table.get("exclude", []), table.get("track", []), str(file)),
        mode=mode,
        store=parse_store(table, mode, base, str(file)),
        lost_work_bound=parse_bound(table, mode, str(file)),
        limits=parse_limits(table.get("limits"), mode, str(file)),
    )


def parse_mode(value: Any, where: str) -> Mode:
    """One of transactional, checkpoint, auto."""
    for choice in get_args(Mode):
        if value == choice:
            return choice  # type: ignore[no-any-return]
    raise MisuseError(f"{where}: unknown mode {value!r}; use {', '.join(get_args(Mode))}")


def parse_replay(value: Any, where: str) -> dict[str, Policy]:
    """The policy of each tool that the session's `[replay]` names."""
    if not isinstance(value, Mapping) or set(value) - {"bash", "write", "edit"}:
        raise MisuseError(f'{where}: replay must be a table of bash, write and edit, such as replay = {{ bash = "safe" }}')
    return {tool: parse_policy({"policy": policy}, f"{where}: replay: {tool}", "never") for tool, policy in value.items()}


def parse_store(table: Mapping[str, Any], mode: Mode, base: Path, where: str) -> str | None:
    """The directory of checkpoints; None: it is in the state directory."""
    value = table.get("store")
    if value is None:
        return None
    _needs_checkpoints("store", mode, where)
    if not isinstance(value, str) or not value or "\0" in value:
        raise MisuseError(f"{where}: store must name a directory, found {value!r}")
    return str(base / value)


def parse_bound(table: Mapping[str, Any], mode: Mode, where: str) -> int:
    """How many finished calls may be lost with the workspace."""
    value = table.get("lost_work_bound")
    if value is None:
        return 0
    _needs_checkpoints("lost_work_bound", mode, where)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
        raise MisuseError(f"{where}: lost_work_bound must be a number of calls from 0 to 1000000, found {value!r}")
    return value


def _needs_checkpoints(key: str, mode: Mode, where: str) -> None:
    if mode == "transactional":
        raise MisuseError(f'{where}: {key} is for sessions with checkpoints; add mode = "checkpoint" or "auto", or leave it out')


def parse_limits(value: Any, mode: Mode, where: str) -> Limits | None:
    """What an image in the log may have at most (C8); of mode `auto` there are always some."""
    if value is None:
        return DEFAULT_LIMITS if mode == "auto" else None
    if mode == "checkpoint":
        raise MisuseError(f"{where}: limits are for images in the log; leave them out in mode checkpoint")
    known = ("bytes", "paths", "file_bytes")
    if not isinstance(value, Mapping) or not value or set(value) - set(known):
        raise MisuseError(f"{where}: limits must be a table of {', '.join(known)}, such as limits = {{ paths = 10000 }}")
    for key, number in value.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 1 << 63:
            raise MisuseError(f"{where}: limits: {key} must be a whole number above 0, found {number!r}")
    return Limits(*(value.get(key) for key in known))


def _with_left_behind(calls: tuple[Call, ...], said: LeftBehind | None) -> tuple[Call, ...]:
    """What the session says for every command that does not say it itself."""
    return tuple(
        msgspec.structs.replace(call, left_behind=said) if isinstance(call, BashCall) and call.left_behind is None else call
        for call in calls
    )  # fmt: skip


def load_toml(file: Path) -> dict[str, Any]:
    """Parse a TOML file, or raise MisuseError that names the file and the line."""
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise MisuseError(f"{file}: no such file") from error
    except IsADirectoryError as error:
        raise MisuseError(f"{file}: is a directory, not a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MisuseError(f"{file}: not valid TOML: {error}") from error
    except OSError as error:
        raise MisuseError(f"{file}: cannot be read: {error.strerror}") from error
