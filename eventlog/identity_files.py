"""Identity files: before its first lock every process that will write leaves word of who it is and which epoch it means to have (rule L4).

They lie in the directory `identity` beside the log, one file `<nonce>.json` for each process: a JSON object with `nonce`, `pid`,
`start_ticks`, `boot_id`, `pid_namespace`, `epoch` (0: it is no driver) and `purpose`. Each is published whole and synced before the
process asks for any lock. So whoever holds a lock can be told from a stranger, the next epoch stays above every intended one (L1), and
a driver's file says that there should be a log (L9); that of a command says nothing of the kind, since it may have found none.

A process that ends by itself removes its own file, a driver not where the log may not have its epoch. That of a dead driver is removed by
the driver that has raised the floor above it, that of a dead command by the next process: they say nothing any more.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Literal, get_args

import msgspec

from eventlog import durable
from eventlog.errors import CorruptError
from eventlog.ports import Host, Ids
from eventlog.process_identity import ProcessIdentity, identify_self, is_alive
from eventlog.show import show_text
from eventlog.values import HIGHEST_EPOCH

IDENTITY_DIRECTORY = "identity"
Purpose = Literal["drive", "append", "fork", "import", "compact", "move"]
DRIVE: Purpose = "drive"


class Writing(msgspec.Struct, frozen=True):
    """A process that writes or means to. `epoch` is the one that it intends to have, 0 for one that is no driver."""

    nonce: str
    identity: ProcessIdentity
    epoch: int
    purpose: Purpose

    @property
    def is_driver(self) -> bool:
        return self.purpose == DRIVE


@contextlib.contextmanager
def leaving_identity(state_directory: str, purpose: Purpose, host: Host, ids: Ids, epoch: int = 0) -> Iterator[str]:
    """Leave this process's identity file, synced, before anything in here asks for a lock; gone again at the end. Its path.

    `state_directory` is the directory that holds the log, whatever else is in it. Raises CorruptError, OSError.
    """
    path = leave_identity(state_directory, Writing(ids.new_id().hex(), identify_self(host), epoch, purpose))
    try:
        # A damaged file stops a driver, whose epoch must be above it; a command has none.
        _forget_dead(state_directory, host, lambda one: not one.is_driver, is_strict=False)
        yield path
    finally:
        with contextlib.suppress(FileNotFoundError):
            durable.unlink(path, "identity")


def leave_identity(state_directory: str, writing: Writing) -> str:
    """Leave an identity file, synced; its path."""
    directory = os.path.join(state_directory, IDENTITY_DIRECTORY)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, f"{writing.nonce}.json")
    who = writing.identity
    body = {"nonce": writing.nonce, "pid": who.pid, "start_ticks": who.start_ticks, "boot_id": who.boot_id}
    body |= {"pid_namespace": who.pid_namespace, "epoch": writing.epoch, "purpose": writing.purpose}
    durable.publish(path, json.dumps(body).encode(), "identity")
    return path


def has_driver_file(state_directory: str) -> bool:
    """Whether a driver has left its file here (L9). One that is damaged counts: it may be a driver's."""
    try:
        return any(writing.is_driver for writing in read_identities(state_directory))
    except CorruptError:
        return True


def highest_intended(state_directory: str) -> int:
    """The highest epoch any identity file means to have; 0 without one. Raises CorruptError."""
    return max((writing.epoch for writing in read_identities(state_directory)), default=0)


def forget_dead(state_directory: str, below: int, host: Host) -> None:
    """Remove the files of dead processes whose epoch is below the floor: the log itself keeps later epochs above them."""
    _forget_dead(state_directory, host, lambda one: one.epoch < below)


def read_identities(state_directory: str) -> list[Writing]:
    """Every process that has left its file. Raises CorruptError."""
    return [writing for _, writing in _read_all(state_directory)]


def _forget_dead(state_directory: str, host: Host, is_past: Callable[[Writing], bool], *, is_strict: bool = True) -> None:
    for path, writing in _read_all(state_directory, is_strict):
        identity = writing.identity
        is_foreign = identity.boot_id == host.boot_id() and identity.pid_namespace != host.pid_namespace()
        if is_past(writing) and not is_foreign and not is_alive(identity, host):
            with contextlib.suppress(FileNotFoundError):
                durable.unlink(path, "identity")


def _read_all(state_directory: str, is_strict: bool = True) -> list[tuple[str, Writing]]:
    """Every file and what it says. A damaged one is CorruptError, or left out where `is_strict` is False."""
    directory = os.path.join(state_directory, IDENTITY_DIRECTORY)
    found = []
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        if name.endswith(".json"):
            path = os.path.join(directory, name)
            lenient: tuple[type[Exception], ...] = () if is_strict else (CorruptError,)
            with contextlib.suppress(FileNotFoundError, *lenient):
                found.append((path, _parse(path, _read_regular(path))))
    return found


def _read_regular(path: str) -> bytes:
    """A file's bytes; none of what is no regular file, which is damage and might never answer."""
    if not os.path.isfile(path) and os.path.exists(path):
        return b""
    with open(path, "rb") as file:
        return file.read()


def _parse(path: str, text: bytes) -> Writing:
    """One file's content. Damage is an error: read as nothing it could lower the next epoch (I5)."""
    try:
        body = json.loads(text)
        numbers = [body[name] for name in ("epoch", "pid", "start_ticks", "pid_namespace")]
        if not all(type(number) is int and 0 <= number <= HIGHEST_EPOCH for number in numbers) or not isinstance(body["boot_id"], str):
            raise ValueError("a field is not what it must be")
        if body["purpose"] not in get_args(Purpose) or not isinstance(body["nonce"], str):
            raise ValueError("a field is not what it must be")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptError(
            f"{show_text(path)}: not an identity file ({error}); "
            "if nobody writes the log beside it, remove it and set SESSION_EPOCH above every epoch ever used"
        ) from error
    identity = ProcessIdentity(body["pid"], body["start_ticks"], body["boot_id"], body["pid_namespace"])
    return Writing(body["nonce"], identity, body["epoch"], body["purpose"])
