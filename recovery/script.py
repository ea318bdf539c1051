"""What a scripted session does: its calls, from TOML tables and from the log. The same call syntax serves scenarios.

A call is one `[[call]]` table: `tool = "bash"` with `run` (and more: recovery/README, "Session file"), `tool = "write"` with `path` and
`content` (and `mode`), `tool = "edit"` with `path`, `old`, `new`. With `approve = true` it begins only when a person says so. Bytes that
are not UTF-8 are written `{ b64 = "..." }`. Policies come from the tool (DESIGN section 7): bash `never`, write `safe`, edit
`after-restore`; `replay` of the session overrides it for a tool, and `policy` in the call for that call.
"""

import base64
import binascii
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

import msgspec

from eventlog.errors import MisuseError
from eventlog.events import Limits, Mode
from eventlog.show import encode_bytes
from recovery.space.bubblewrap import SpaceKind, parse_space
from recovery.space.request import LeftBehind
from recovery.workspace.profile import Profile

Policy = Literal["safe", "after-restore", "never", "ask"]
Effects = Literal["inside", "outside"]
OnInterrupted = Literal["stop", "reissue", "continue"]
TOOL_RUN = 'exec "$TOOL_PYTHON" -P "$TOOL_RUNNER" '
"""How the command of a Python tool begins (tools.py): what it names is in the environment of the program that has the tool."""


class BashCall(msgspec.Struct, frozen=True):
    """One `bash -c RUN` in the workspace. `timeout_secs` bounds it (TERM, then KILL). It reads `stdin`, or at once the end of its input
    (None); its stderr is merged into its stdout, or kept apart (`separate`). `left_behind` says what becomes of the processes it leaves
    running (rule S11), None where neither call nor session says. `space` is where it runs. `effects` says whether it acts
    outside the workspace: then no policy may run it again."""

    run: bytes
    timeout_secs: float | None = None
    policy: Policy = "never"
    stdin: bytes | None = None
    separate: bool = False
    left_behind: LeftBehind | None = None
    space: SpaceKind = "local"
    approve: bool = False
    effects: Effects = "inside"


class WriteCall(msgspec.Struct, frozen=True):
    """Make or replace one file. `mode` None keeps an existing file's mode, 0644 for a new one."""

    path: bytes
    content: bytes
    mode: int | None = None
    policy: Policy = "safe"
    approve: bool = False


class EditCall(msgspec.Struct, frozen=True):
    """Replace the single occurrence of `old` in one file by `new`."""

    path: bytes
    old: bytes
    new: bytes
    policy: Policy = "after-restore"
    approve: bool = False


Call = BashCall | WriteCall | EditCall


class Session(msgspec.Struct, frozen=True):
    """A session file, resolved: absolute paths as text, calls in order."""

    name: str
    workspace: str
    state: str
    on_interrupted: OnInterrupted
    calls: tuple[Call, ...]
    profile: Profile = msgspec.field(default_factory=Profile)
    mode: Mode = "transactional"
    store: str | None = None
    """Of checkpoints; None: in the state directory."""
    lost_work_bound: int = 0
    limits: Limits | None = None


def decode_bytes(value: Any, where: str) -> bytes:
    """Bytes from a TOML or JSON value: a string (UTF-8) or `{b64 = "..."}`."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, Mapping) and set(value) == {"b64"} and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as error:
            raise MisuseError(f'{where}: "{value["b64"]}" is not base64; write {{ b64 = "..." }} or a plain string') from error
    raise MisuseError(f'{where}: expected a string or {{ b64 = "..." }}, found {type(value).__name__}')


def parse_calls(
    tables: Any, where: str, space: SpaceKind = "local", policies: Mapping[str, Policy] = MappingProxyType({})
) -> tuple[Call, ...]:
    """Calls from the `[[call]]` tables of a file named `where` in messages; commands that do not say run in `space`, and calls that do not
    say have the policy that `policies` has for their tool."""
    if not isinstance(tables, list) or not tables:
        raise MisuseError(f'{where}: no [[call]] found; add at least one, such as tool = "bash", run = "echo hello > a.txt"')
    return tuple(_parse_call(_with_policy(table, policies), f"{where}: call {number}", space) for number, table in enumerate(tables, 1))


def _with_policy(table: Any, policies: Mapping[str, Policy]) -> Any:
    if not isinstance(table, Mapping) or table.get("tool") not in policies:
        return table
    return {"policy": policies[table["tool"]], **table}


def _parse_call(table: Any, where: str, space: SpaceKind = "local") -> Call:
    if not isinstance(table, Mapping):
        raise MisuseError(f"{where}: expected a table, found {type(table).__name__}")
    match table.get("tool"):
        case "bash":
            _allow(table, where, {"run", "timeout_secs", "stdin", "stderr", "left_behind", "space", "effects"}, {"run"})
            run = _no_nul(decode_bytes(table["run"], f"{where}: run"), where)
            stdin = decode_bytes(table["stdin"], f"{where}: stdin") if "stdin" in table else None
            left = parse_left_behind(table.get("left_behind"), where)
            kind = parse_space(table.get("space", space), where)
            policy, effects = parse_policy(table, where, "never"), _effects(table, where)
            check_effects(policy, effects, where)
            separate, approve = _is_separate(table, where), _approve(table, where)
            return BashCall(run, _timeout(table, where), policy, stdin, separate, left, kind, approve, effects)
        case "write":
            _allow(table, where, {"path", "content", "mode"}, {"path", "content"})
            content = decode_bytes(table["content"], f"{where}: content")
            return WriteCall(_path(table, where), content, _mode(table, where), parse_policy(table, where, "safe"), _approve(table, where))
        case "edit":
            _allow(table, where, {"path", "old", "new"}, {"path", "old", "new"})
            old, new = decode_bytes(table["old"], f"{where}: old"), decode_bytes(table["new"], f"{where}: new")
            if not old:
                raise MisuseError(f"{where}: old is empty; name the text to replace")
            return EditCall(_path(table, where), old, new, parse_policy(table, where, "after-restore"), _approve(table, where))
        case other:
            raise MisuseError(f"{where}: unknown tool {other!r}; use bash, write or edit")


def _allow(table: Mapping[str, Any], where: str, known: set[str], needed: set[str]) -> None:
    for key in sorted(needed - set(table)):
        raise MisuseError(f"{where}: {key} is missing")
    for key in sorted(set(table) - known - {"tool", "policy", "approve"}):
        raise MisuseError(f"{where}: unknown key {key!r}; known are {', '.join(sorted(known | {'policy', 'approve'}))}")


def _approve(table: Mapping[str, Any], where: str) -> bool:
    value = table.get("approve", False)
    if not isinstance(value, bool):
        raise MisuseError(f"{where}: approve must be true or false, found {value!r}")
    return value


def _no_nul(data: bytes, where: str) -> bytes:
    if b"\0" in data:
        raise MisuseError(f"{where}: a command may not contain a NUL byte")
    return data


def _is_separate(table: Mapping[str, Any], where: str) -> bool:
    value = table.get("stderr", "merged")
    if value not in ("merged", "separate"):
        raise MisuseError(f"{where}: stderr must be merged or separate, found {value!r}")
    return bool(value == "separate")


def _timeout(table: Mapping[str, Any], where: str) -> float | None:
    value = table.get("timeout_secs")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise MisuseError(f"{where}: timeout_secs must be a positive number of seconds, found {value!r}")
    return float(value)


def _mode(table: Mapping[str, Any], where: str) -> int | None:
    value = table.get("mode")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 0o7777:
        raise MisuseError(f"{where}: mode must be between 0o0 and 0o7777, found {value!r}")
    return value


def parse_policy(table: Mapping[str, Any], where: str, default: Policy) -> Policy:
    value = table.get("policy", default)
    for policy in get_args(Policy):
        if value == policy:
            return policy  # type: ignore[no-any-return]
    raise MisuseError(f"{where}: unknown policy {value!r}; use {', '.join(get_args(Policy))}")


def _effects(table: Mapping[str, Any], where: str) -> Effects:
    value = table.get("effects", "inside")
    for effects in get_args(Effects):
        if value == effects:
            return effects  # type: ignore[no-any-return]
    raise MisuseError(f"{where}: unknown effects {value!r}; use {', '.join(get_args(Effects))}")


def check_effects(policy: Policy, effects: Effects, where: str) -> None:
    """Raise MisuseError where a call that acts outside the workspace would be run again: no restore takes that back (rule D)."""
    if effects == "outside" and policy in ("safe", "after-restore"):
        raise MisuseError(
            f'{where}: a call with effects = "outside" cannot have policy {policy!r}, as no restore takes back what it did outside; use '
            "never, or ask, and have it hand CALL_IDEMPOTENCY_KEY to whoever it asks for something"
        )


def _path(table: Mapping[str, Any], where: str) -> bytes:
    path = decode_bytes(table["path"], f"{where}: path")
    components = path.split(b"/")
    if b"\0" in path or any(component in (b"", b".", b"..") for component in components):
        shown = path.decode("utf-8", "surrogateescape")
        raise MisuseError(f"{where}: path {shown!r} must be relative, inside the workspace, without empty, '.' or '..' parts")
    return path


def parse_left_behind(value: Any, where: str) -> LeftBehind | None:
    """One of kill, keep, fail; None when nothing is said."""
    if value is None:
        return None
    for choice in get_args(LeftBehind):
        if value == choice:
            return choice  # type: ignore[no-any-return]
    raise MisuseError(f"{where}: unknown left_behind {value!r}; use {', '.join(get_args(LeftBehind))}")


def parse_on_interrupted(value: Any, where: str) -> OnInterrupted:
    """One of stop, reissue, continue."""
    for choice in get_args(OnInterrupted):
        if value == choice:
            return choice  # type: ignore[no-any-return]
    raise MisuseError(f"{where}: unknown on_interrupted {value!r}; use {', '.join(get_args(OnInterrupted))}")


def call_to_json(call: Call) -> dict[str, Any]:
    """A call as the JSON object that stands in the log."""
    return _own_to_json(call) | ({"approve": True} if call.approve else {})


def _own_to_json(call: Call) -> dict[str, Any]:
    match call:
        case BashCall():
            made = {"tool": "bash", "run": encode_bytes(call.run), "timeout_secs": call.timeout_secs, "policy": call.policy}
            # Left out where nothing was asked for: a call means, and is called, what it always did.
            stdin = {} if call.stdin is None else {"stdin": encode_bytes(call.stdin)}
            separate = {"stderr": "separate"} if call.separate else {}
            left = {} if call.left_behind is None else {"left_behind": call.left_behind}
            outside = {} if call.effects == "inside" else {"effects": call.effects}
            return made | stdin | separate | left | outside | ({} if call.space == "local" else {"space": call.space})
        case WriteCall():
            content = encode_bytes(call.content)
            return {"tool": "write", "path": encode_bytes(call.path), "content": content, "mode": call.mode, "policy": call.policy}
        case EditCall():
            old, new = encode_bytes(call.old), encode_bytes(call.new)
            return {"tool": "edit", "path": encode_bytes(call.path), "old": old, "new": new, "policy": call.policy}


def call_from_json(table: Mapping[str, Any], where: str) -> Call:
    """The inverse of `call_to_json`."""
    return _parse_call({key: value for key, value in table.items() if value is not None}, where)
