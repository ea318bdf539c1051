"""Identity files: before its first lock every process that will write leaves word of who it is and which epoch it means to have (rule L4).

They keep the next epoch above every intended one (L1) and say that a log should exist (L9). A driver that ends cleanly removes its
own; the one that raised the floor above it removes that of a dead driver, which then says nothing any more.
"""

import contextlib
import json
import os
from typing import Any

from eventlog import durable
from eventlog.errors import CorruptError
from eventlog.events import DriverIdentity
from eventlog.ports import Host
from eventlog.show import show_text
from recovery.opening import IDENTITY_DIRECTORY
from recovery.settings import HIGHEST_EPOCH
from recovery.space.identity import ProcessIdentity, is_alive


def leave_identity(state: str, driver: DriverIdentity, epoch: int) -> str:
    """Leave this driver's identity file, synced; its path."""
    directory = os.path.join(state, IDENTITY_DIRECTORY)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    body = {"nonce": driver.nonce, "pid": driver.pid, "start_ticks": driver.start_ticks, "boot_id": driver.boot_id}
    path = os.path.join(directory, f"{driver.nonce}.json")
    durable.publish(
        path, json.dumps({**body, "pid_namespace": driver.pid_namespace, "epoch": epoch, "purpose": "drive"}).encode(), "identity"
    )
    return path


def highest_intended(state: str) -> int:
    """The highest epoch any identity file means to have; 0 without one."""
    return max((int(body["epoch"]) for _, body in _read_all(state)), default=0)


def forget_dead(state: str, below: int, host: Host) -> None:
    """Remove the files of dead drivers whose epoch is below the floor: the log itself keeps later epochs above them."""
    for path, body in _read_all(state):
        identity = ProcessIdentity(body["pid"], body["start_ticks"], body["boot_id"], body["pid_namespace"])
        is_foreign = identity.boot_id == host.boot_id() and identity.pid_namespace != host.pid_namespace()
        if body["epoch"] < below and not is_foreign and not is_alive(identity, host):
            with contextlib.suppress(FileNotFoundError):
                durable.unlink(path, "identity")


def _read_all(state: str) -> list[tuple[str, dict[str, Any]]]:
    directory = os.path.join(state, IDENTITY_DIRECTORY)
    found = []
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        if name.endswith(".json"):
            path = os.path.join(directory, name)
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                found.append((path, _parse(path, file.read())))
    return found


def _parse(path: str, text: bytes) -> dict[str, Any]:
    """The body of one file. Damage is an error: read as nothing it could lower the next epoch (I5)."""
    try:
        body = json.loads(text)
        numbers = [body[name] for name in ("epoch", "pid", "start_ticks", "pid_namespace")]
        if not all(type(number) is int and 0 <= number <= HIGHEST_EPOCH for number in numbers) or not isinstance(body["boot_id"], str):
            raise ValueError("a field is not what it must be")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptError(
            f"{show_text(path)}: not an identity file of a driver ({error}); "
            "if no driver runs here, remove it and set SESSION_EPOCH above every epoch ever used"
        ) from error
    return dict(body)
