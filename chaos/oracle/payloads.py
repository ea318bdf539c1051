"""The shape a payload of each event kind must have (eventlog/README, Kinds). Fields not named there are let through."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from .paths import bytes_of

Check = Callable[[Any], bool]
_DIGEST = re.compile("[0-9a-f]{64}")


def is_anything(value: Any) -> bool:
    """The field only has to be there."""
    return True


def is_text(value: Any) -> bool:
    """A string."""
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    """An integer from 0; True and False are no integers here."""
    return type(value) is int and value >= 0


def is_ordinal(value: Any) -> bool:
    """An integer from 1."""
    return type(value) is int and value >= 1


def is_flag(value: Any) -> bool:
    """True or False."""
    return isinstance(value, bool)


def is_list(value: Any) -> bool:
    """A list of anything."""
    return isinstance(value, list)


def is_object(value: Any) -> bool:
    """A JSON object."""
    return isinstance(value, dict)


def is_digest(value: Any) -> bool:
    """64 lower-case hex digits."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def is_bytes(value: Any) -> bool:
    """A string, or bytes as `{"b64": ...}`."""
    try:
        bytes_of(value)
    except ValueError:
        return False
    return True


def is_untracked(value: Any) -> bool:
    """A list of `{"path", "kind"}`."""
    return is_list(value) and all(is_object(item) and is_bytes(item.get("path")) and is_text(item.get("kind")) for item in value)


def is_output(value: Any) -> bool:
    """`output` of call_settled, when it is not null."""
    return (
        is_object(value)
        and is_count(value.get("total"))
        and is_count(value.get("kept"))
        and is_flag(value.get("cut"))
        and is_digest(value.get("blob"))
        and (value.get("digest", "") == "" or is_digest(value["digest"]))
        and (value.get("stderr") is None or is_stderr(value["stderr"]))
        and is_flag(value.get("held", False))
        and is_text(value.get("missing", ""))
    )


def is_stderr(value: Any) -> bool:
    """What `output` says of standard error, where it was kept apart."""
    return (
        is_object(value)
        and is_count(value.get("total"))
        and is_count(value.get("kept"))
        and is_flag(value.get("cut"))
        and is_digest(value.get("digest"))
    )


OUTPUT_1 = ("total", "kept", "cut", "blob")
"""What `output` has in version 1 of call_settled; what more is called so there is nothing."""


EXITS: Mapping[str, Mapping[str, Check]] = {
    "exited": {"code": is_count},
    "signaled": {"signal": is_ordinal},
    "timed_out": {"code": is_count, "signal": is_ordinal},
    "start_failed": {"error": is_bytes},
}


def is_exit(value: Any) -> bool:
    """`exit` of call_settled, when it is not null: exactly one of the fields that its kind may have."""
    if not is_object(value) or not is_text(value.get("kind")) or value["kind"] not in EXITS:
        return False
    given = [field for field in value if field != "kind" and value[field] is not None]
    checks = EXITS[value["kind"]]
    return len(given) == 1 and given[0] in checks and checks[given[0]](value[given[0]])


def or_null(check: Check) -> Check:
    """The check, with null allowed."""
    return lambda value: value is None or check(value)


def one_of(*words: str) -> Check:
    """One of these strings."""
    return lambda value: isinstance(value, str) and value in words


def list_of(check: Check) -> Check:
    """A list whose items all satisfy the check."""
    return lambda value: isinstance(value, list) and all(map(check, value))


def is_limits(value: Any) -> bool:
    """`limits` of a first event, when it is not null."""
    return is_object(value) and all(or_null(is_count)(value.get(field, "")) for field in ("bytes", "paths", "file_bytes"))


def is_checkpoints(value: Any) -> bool:
    """`checkpoints` of a first event, when it is not null."""
    return (
        is_object(value)
        and is_bytes(value.get("store"))
        and is_count(value.get("lost_work_bound"))
        and (value.get("manifest") == "" or is_digest(value.get("manifest")))
    )


MODES = one_of("transactional", "checkpoint", "auto")


SHAPES: Mapping[str, Mapping[str, Check]] = {
    "session_opened": {
        "name": is_bytes,
        "workspace": is_bytes,
        "mode": MODES,
        "on_interrupted": one_of("stop", "reissue", "continue"),
        "script": is_list,
        "root": is_digest,
        "root_identity": is_object,
        "ledger_id": is_anything,
        "generation": is_anything,
        "untracked": is_untracked,
        "excludes": list_of(is_bytes),
        "track": list_of(one_of("owners", "acls")),
        "limits": or_null(is_limits),
        "checkpoints": or_null(is_checkpoints),
    },
    "driver_started": {"identity": is_object, "ledger_id": is_anything, "generation": is_anything, "kill_mark": is_anything},
    "workspace_observed": {"root": is_digest, "untracked": is_untracked},
    "attempt_started": {
        "call": is_ordinal,
        "attempt": is_ordinal,
        "script_index": or_null(is_count),
        "tool": is_text,
        "input": is_anything,
        "policy": is_text,
        "key": is_text,
        "request_digest": is_anything,
        "redacted": is_flag,
        "request_id": is_text,
    },
    "session_forked": {
        "name": is_bytes,
        "reason": one_of("forked", "imported", "moved", "salvaged"),
        "parent_log": is_text,
        "parent": is_text,
        "parent_seq": is_ordinal,
        "parent_hash": is_digest,
        "mode": MODES,
        "on_interrupted": one_of("stop", "reissue", "continue"),
        "script": is_list,
        "calls": is_list,
        "root": is_digest,
        "untracked": is_untracked,
        "excludes": list_of(is_bytes),
        "track": list_of(one_of("owners", "acls")),
        "limits": or_null(is_limits),
        "checkpoints": or_null(is_checkpoints),
        "inputs": is_list,
    },
    "session_placed": {"workspace": is_bytes, "root_identity": is_object, "ledger_id": is_text, "generation": is_count, "store": is_bytes},
    "input_admitted": {"request_id": is_text, "input": is_object},
    "call_undone": {"call": is_ordinal, "reason": is_anything, "decision_seq": is_ordinal},
    "call_replayed": {"call": is_ordinal, "attempt": is_ordinal, "root": is_digest},
    "checkpoint_taken": {"manifest": is_digest, "root": is_digest, "took_ms": is_count},
    "mode_switched": {"mode": one_of("checkpoint"), "reason": is_anything, "manifest": is_digest},
    "pause_requested": {"reason": is_anything},
    "approval_asked": {
        "call": is_ordinal, "script_index": or_null(is_count), "tool": is_text, "input": is_object,
        "request_id": is_text, "request_digest": is_anything,
    },
    "approval_answered": {
        "asked_seq": is_ordinal,
        "answer": one_of("approved", "edited", "rejected"),
        "input": or_null(is_object),
        "reason": is_anything,
    },
    "session_paused": {"root": is_digest, "reason": is_anything},
    "session_resumed": {},
    "session_moved": {"digest": is_digest},
    "session_failed": {"root": is_digest, "reason": is_anything},
    "root_recorded": {"how": one_of("rebuilt", "accepted"), "identity": is_object},
    "call_settled": {
        "call": is_ordinal,
        "attempt": or_null(is_count),
        "ended": one_of("finished", "interrupted"),
        "label": is_anything,
        "reason": is_anything,
        "exit": or_null(is_exit),
        "output": or_null(is_output),
        "root": is_digest,
        "untracked": is_untracked,
    },
    "recovery_decided": {
        "label": is_text,
        "call": or_null(is_count),
        "attempt": or_null(is_count),
        "obligation": is_flag,
        "target_seq": or_null(is_ordinal),
        "target_root": or_null(is_digest),
        "mode": is_anything,
        "facts": is_anything,
    },
    "quarantined": {"decision_seq": is_ordinal, "directory": is_bytes, "paths": list_of(is_bytes)},
    "restore_finished": {
        "decision_seq": is_ordinal,
        "root": is_digest,
        "restored": is_count,
        "displaced": is_count,
        "rounds": is_anything,
        "reverted": is_count,
        "reimaged": is_count,
        "accepted": is_flag,
    },
    "synced": {"root": is_digest, "boot_id": is_anything},
    "session_finished": {"root": is_digest},
    "noted": {"text": is_bytes},
}


NEWEST_VERSIONS: Mapping[str, int] = {
    "attempt_started": 3,
    "approval_asked": 2,
    "session_opened": 4,
    "session_forked": 4,
    "checkpoint_taken": 2,
    "mode_switched": 2,
    "workspace_observed": 2,
    "call_settled": 2,
    "restore_finished": 3,
}
"""Kinds of which there is more than the first version."""
ADDED: Mapping[tuple[str, str], int] = {
    ("attempt_started", "redacted"): 2,
    ("attempt_started", "request_id"): 3,
    ("approval_asked", "request_id"): 2,
    ("approval_asked", "request_digest"): 2,
    ("session_opened", "excludes"): 2,
    ("session_opened", "track"): 2,
    ("session_forked", "excludes"): 2,
    ("session_forked", "track"): 2,
    ("restore_finished", "reverted"): 3,
    ("restore_finished", "reimaged"): 3,
    ("restore_finished", "accepted"): 3,
    ("session_opened", "limits"): 4,
    ("session_opened", "checkpoints"): 4,
    ("session_forked", "limits"): 4,
    ("session_forked", "checkpoints"): 4,
    ("checkpoint_taken", "took_ms"): 2,
    ("mode_switched", "manifest"): 2,
    ("session_forked", "inputs"): 4,
}
"""Fields that came with a later version of their kind."""


_FIELDS = {
    kind: tuple((field, check, ADDED.get((kind, field), 1)) for field, check in {"at_ms": is_count, **shape}.items())
    for kind, shape in SHAPES.items()
}
"""The fields of each kind, what is asked of each, and the version of the kind with which it came."""


def newest_version(kind: str) -> int:
    """The newest version of a kind."""
    return NEWEST_VERSIONS.get(kind, 1)


def decode_payload(kind: str, version: int, stored: bytes) -> Mapping[str, Any]:
    """The payload of an event of `kind` as an object of the right shape. Raises ValueError that names the first wrong field."""
    try:
        payload = json.loads(stored.decode())
    except RecursionError:
        raise ValueError("payload is nested too deeply") from None
    if not isinstance(payload, dict):
        raise ValueError("payload is no JSON object")
    if kind not in SHAPES:
        raise ValueError(f"kind {kind!r} is unknown")
    if (kind, version) == ("call_settled", 1) and is_object(payload.get("output")):
        payload["output"] = {field: payload["output"][field] for field in OUTPUT_1 if field in payload["output"]}
    for field, check, added in _FIELDS[kind]:
        if added > version:
            payload.pop(field, None)  # what an older version calls so is nothing
            continue
        if field not in payload:
            raise ValueError(f"payload of {kind} lacks {field!r}")
        if not check(payload[field]):
            raise ValueError(f"payload of {kind} has a wrong {field!r}: {payload[field]!r:.80}")
    if kind == "recovery_decided" and payload["obligation"] and None in (payload["target_seq"], payload["target_root"]):
        raise ValueError("recovery_decided opens an obligation without a target")
    return payload
