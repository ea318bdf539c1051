"""What a command is, as one value: the driver describes it, the ledger remembers its digest, the shim executes it. Pure.

The digest is what a key stands for (rule S3): the same key with another digest is another command and is never run, attached to or
replayed under that key.
"""

from typing import Literal

import msgspec
from blake3 import blake3

LeftBehind = Literal["kill", "keep", "fail"]
_DIGEST_DOMAIN = b"crashworthy command request 1\n"
_encoder = msgspec.json.Encoder()


class CommandRequest(msgspec.Struct, frozen=True):
    """One command, all in bytes as the kernel takes them.

    `arguments` is its argument list, the program first (looked up in its own PATH); `directory` where it starts. `stdin` is what it
    reads, None for an input that is at its end at once. `separate` keeps stderr apart from stdout. `timeout_secs` bounds it (TERM, then
    KILL). `left_behind` says what becomes of the processes it leaves running (rule S11). `is_confined` has it run in the namespaced space:
    it may write to the space's workspace alone.
    """

    key: str
    arguments: list[bytes]
    directory: bytes
    environment: list[tuple[bytes, bytes]]
    stdin: bytes | None = None
    separate: bool = False
    timeout_secs: float | None = None
    left_behind: LeftBehind = "kill"
    is_confined: bool = False


def digest_request(request: CommandRequest) -> str:
    """64 hex digits of BLAKE3 over everything that makes the command, but for its key and the values of its environment (the names
    count: a later driver's own values differ without the command being another one)."""
    names = sorted(name for name, _ in request.environment)
    content = (
        request.arguments,
        request.directory,
        request.stdin,
        names,
        request.separate,
        None if request.timeout_secs is None else float(request.timeout_secs),  # 1 and 1.0 are one limit
        request.left_behind,
        *(["confined"] if request.is_confined else []),  # what is not has the digest it always had
    )
    return blake3(_DIGEST_DOMAIN + _encoder.encode(content)).hexdigest()
