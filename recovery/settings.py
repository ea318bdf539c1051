"""The driver contract's environment, read once at the top. Environment beats session file."""

import os
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from eventlog.errors import MisuseError
from eventlog.show import show_text
from eventlog.values import HIGHEST_GIVEN_EPOCH
from recovery.redrive.policy import MOST_ATTEMPTS, Limits

DEFAULT_HEARTBEAT_SECS = 30.0  # a quarter of the default stall of 120 s
DEFAULT_LOCK_SECS = 5.0  # far above any commit, far below a stall (rule L4)
DEFAULT_SILENT_SECS = 60.0  # rule S5
CONTRACT_PREFIXES = ("SESSION_", "CRASHWORTHY_")
NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


class Settings(msgspec.Struct, frozen=True):
    """What the environment says; "" and None where it says nothing."""

    state: str
    name: str
    workspace: str
    epoch: int | None
    heartbeat_secs: float
    lock_secs: float
    kill_mark: str
    space: str
    hints: str
    holders: str
    allow_network: bool
    container_ends_all: bool
    left_behind: str
    silent_secs: float
    space_writable: tuple[str, ...]
    checkpoints: str
    command_environment: Mapping[str, str]


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Parse the contract's variables (recovery/README, "Driver contract"). Raises MisuseError naming the variable."""
    return Settings(
        state=environ.get("SESSION_STATE_DIR", "") or _job_state(environ),
        name=environ.get("SESSION_NAME", ""),
        workspace=environ.get("SESSION_WORKSPACE", ""),
        epoch=_epoch(environ.get("SESSION_EPOCH", "")),
        heartbeat_secs=_seconds("SESSION_HEARTBEAT_SECS", environ, DEFAULT_HEARTBEAT_SECS),
        lock_secs=_seconds("SESSION_LOCK_SECS", environ, DEFAULT_LOCK_SECS),
        kill_mark=environ.get("SESSION_KILL_MARK", "") or "auto",
        space=environ.get("SESSION_SPACE", ""),
        hints=_choice("SESSION_HINTS", environ, ("full", "watch")),
        holders=environ.get("SESSION_HOLDERS_DIR", "") or _default_holders(environ),
        allow_network=environ.get("SESSION_ALLOW_NETWORK_FILESYSTEM", "") == "1",
        container_ends_all=environ.get("SESSION_CONTAINER_ENDS_ALL", "") == "1",
        left_behind=_choice("SESSION_LEFT_BEHIND", environ, ("kill", "keep", "fail")) if environ.get("SESSION_LEFT_BEHIND") else "",
        silent_secs=_seconds("SESSION_SILENT_SECS", environ, DEFAULT_SILENT_SECS),
        space_writable=tuple(filter(None, environ.get("SESSION_SPACE_WRITABLE", "").split(os.pathsep))),
        checkpoints=environ.get("SESSION_CHECKPOINTS", ""),
        command_environment={name: value for name, value in environ.items() if not name.startswith(CONTRACT_PREFIXES)},
    )


def read_limits(environ: Mapping[str, str], options: Mapping[str, str] = NO_OPTIONS) -> Limits:
    """What the environment says of redriving (recovery/README, "Redriver"). `options` names the option of each variable whose value one
    gave. Raises MisuseError naming it, else the variable."""
    known = Limits()
    is_off = environ.get("SESSION_STALL_SECS", "").strip() == "0"
    is_never_ready = environ.get("SESSION_READY_SECS", "").strip() == "0"
    return Limits(
        attempts=_count("SESSION_REDRIVE_ATTEMPTS", environ, known.attempts, options),
        backoff_secs=_seconds("SESSION_BACKOFF_SECS", environ, known.backoff_secs, options),
        most_secs=_seconds("SESSION_BACKOFF_MOST_SECS", environ, known.most_secs, options),
        stall_secs=0.0 if is_off else _seconds("SESSION_STALL_SECS", environ, known.stall_secs, options),
        grace_secs=_seconds("SESSION_GRACE_SECS", environ, known.grace_secs, options),
        ready_secs=0.0 if is_never_ready else _seconds("SESSION_READY_SECS", environ, known.ready_secs, options),
    )


def _count(name: str, environ: Mapping[str, str], default: int, options: Mapping[str, str]) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= MOST_ATTEMPTS:
        without = "leave it out" if name in options else "unset it"
        raise MisuseError(f"{_given(name, text, options)} is not a number from 1 to {MOST_ATTEMPTS}; {without} for {default}")
    return int(text)


def _given(name: str, text: str, options: Mapping[str, str]) -> str:
    return f"{options[name]} {show_text(text)}" if name in options else f"{name}={show_text(text)!r}"


def _job_state(environ: Mapping[str, str]) -> str:
    job = environ.get("SESSION_JOB_DATA", "")
    return os.path.join(job, "session") if job else ""


def _default_holders(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_STATE_HOME", "") or os.path.join(environ.get("HOME", "") or "/", ".local", "state")
    return os.path.join(base, "crashworthy", "holders")


def _epoch(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 20 or not 0 < int(text) <= HIGHEST_GIVEN_EPOCH:
        raise MisuseError(
            f"SESSION_EPOCH={show_text(text)!r} is not a number from 1 to {HIGHEST_GIVEN_EPOCH}; unset it to take the next one"
        )
    return int(text)


def _choice(name: str, environ: Mapping[str, str], choices: tuple[str, ...]) -> str:
    """One of `choices`; the first where nothing is said."""
    text = environ.get(name, "") or choices[0]
    if text not in choices:
        raise MisuseError(f"{name}={show_text(text)!r} is none of {', '.join(choices)}; unset it for {choices[0]}")
    return text


def _seconds(name: str, environ: Mapping[str, str], default: float, options: Mapping[str, str] = NO_OPTIONS) -> float:
    text = environ.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise MisuseError(f"{_given(name, text, options)} is not a number of seconds above 0")
    return value
