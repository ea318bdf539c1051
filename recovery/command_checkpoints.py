"""`recovery checkpoints list | verify | gc`: what the log names, whether it is whole, and what nobody needs any more.

None of them is a driver: the log is read only, the store is changed by `gc` alone, under its own lock. What `gc` keeps is rule and not
choice: what the log's newest events stand on, read after the lock was taken, so that a checkpoint that was named meanwhile is known.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from eventlog.errors import MisuseError, NeedsPersonError
from eventlog.ports import SystemClock
from eventlog.show import show_text
from recovery.checkpoints.errors import CheckpointDamagedError
from recovery.checkpoints.vault import Vault
from recovery.command_log import Place, find_place
from recovery.mode_state import Taken
from recovery.opening import find_vault, read_log
from recovery.settings import Settings
from recovery.state import SessionState

_WAY_OUT = "name the state directory of a session"


def _find(log: str, settings: Settings) -> tuple[Place, Vault]:
    """Raises MisuseError for a session without checkpoints, NeedsPersonError when its store is not there."""
    place = find_place(log, None, "recovery checkpoints", _WAY_OUT)
    try:
        vault = find_vault(place.known, settings.checkpoints, SystemClock())
    except NeedsPersonError as error:
        if not place.known.is_finished:
            raise
        raise NeedsPersonError(_describe_gone(place)) from error
    if vault is None:
        name = place.known.opened.name
        raise MisuseError(f"session {name} has no checkpoints: it is in mode transactional, and the log holds its images")
    return place, vault


def _describe_gone(place: Place) -> str:
    """Of a session that has finished nothing goes on, so that nothing is to be driven; only its images are to be had or not."""
    return (
        f"session {place.known.opened.name} has finished, and its checkpoint store is not where it was; put it back there, or name where "
        "it is now by SESSION_CHECKPOINTS, and run this again. Without it the workspace is as the session left it; its images are gone"
    )


def _row(taken: Taken, vault: Vault) -> dict[str, Any]:
    there = vault.store.has_manifest(vault.owner, taken.manifest)
    return {"seq": taken.seq, "manifest": taken.manifest, "root": taken.root, "took_ms": taken.took_ms, "there": there}


def list_checkpoints(log: str, as_json: bool, settings: Settings) -> int:
    """Print one row for each checkpoint that the log names, the newest first; the exit code."""
    place, vault = _find(log, settings)
    rows = [_row(taken, vault) for taken in place.known.modes.list_taken()]
    if as_json:
        modes = place.known.modes
        print(
            json.dumps(
                {
                    "session": place.known.opened.name, "mode": modes.mode, "store": vault.store.name, "bound": modes.bound,
                    "unsaved_calls": [call.number for call in place.known.unsaved_calls] if modes.newest else [], "checkpoints": rows,
                }
            )
        )  # fmt: skip
        return 0
    for row in rows:
        print(f"seq {row['seq']:>5}  {row['manifest']}  image {row['root'][:12]}  {row['took_ms']} ms{'' if row['there'] else '  gone'}")
    print(f"{len(rows)} checkpoints named, in {vault.store.name}")
    return 0


def verify_checkpoints(log: str, as_json: bool, settings: Settings) -> int:
    """Prove every named checkpoint that is there with all its contents; 1 when one is damaged, or the newest is not there."""
    place, vault = _find(log, settings)
    damaged: list[dict[str, Any]] = []
    count = gone = 0
    for number, taken in enumerate(place.known.modes.list_taken()):
        if number and not vault.store.has_manifest(vault.owner, taken.manifest):
            gone += 1  # collected; the newest is never
            continue
        count += 1
        try:
            found = vault.store.load(vault.owner, taken.manifest)
            vault.prove(taken.manifest, taken.root, found.image)
        except CheckpointDamagedError as error:
            path = None if error.path is None else show_text(os.fsdecode(error.path))
            damaged.append({"seq": taken.seq, "manifest": taken.manifest, "path": path, "what": error.what})
    if as_json:
        print(json.dumps({"checked": count, "gone": gone, "damaged": damaged}))
    else:
        for row in damaged:
            where = "the manifest" if row["path"] is None else row["path"]
            print(f"seq {row['seq']}: checkpoint {row['manifest']}: {where}: {row['what']}")
        print(f"{count} checkpoints proved, {len(damaged)} damaged, {gone} collected before")
    return 1 if damaged else 0


def collect_checkpoints(log: str, keep: int, is_dry: bool, as_json: bool, settings: Settings) -> int:
    """Remove what nobody needs, or say what would go; the exit code."""
    place, vault = _find(log, settings)
    done = vault.store.collect(vault.owner, _Late(lambda: list_kept(read_log(place.state), keep)), dry_run=is_dry)
    if as_json:
        print(json.dumps({"dry_run": is_dry, "manifests": list(done.manifests), "contents": done.contents, "bytes": done.bytes}))
    else:
        would = "would go" if is_dry else "removed"
        print(f"{len(done.manifests)} checkpoints and {done.contents} contents {would}, {done.bytes} bytes")
    return 2 if is_dry and (done.manifests or done.contents or done.bytes) else 0


def list_kept(state: SessionState, keep: int) -> list[str]:
    """The manifests that stay: the newest `keep` that the log names, that of the head image, and that of an open restore's target. Pure."""
    taken = state.modes.list_taken()
    kept = {one.manifest for one in taken[:keep]}
    roots = {state.root} | ({state.obligation.target_root} if state.obligation is not None else set())
    return sorted(kept | {one.manifest for one in taken if one.root in roots})


class _Late:
    """An iterable that is asked for when it is first gone through: under the lock of the collection."""

    def __init__(self, make: Callable[[], list[str]]) -> None:
        self._make = make

    def __iter__(self) -> Any:
        return iter(self._make())
