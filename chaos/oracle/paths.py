"""Paths are bytes. In JSON they stand escaped: each byte outside 0x20..0x7E, and `%` itself, is `%XX` (upper case). Any
percent decoder that gives bytes undoes it (`urllib.parse.unquote_to_bytes`)."""

import base64
import re

ESCAPED = re.compile(r"%([0-9A-F]{2})")


def escape_path(path: bytes) -> str:
    """The escaped form of `path`; printable ASCII."""
    return "".join(chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in path)


def unescape_path(text: str) -> bytes:
    """The path that `escape_path` made `text` of."""
    return ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).encode("latin-1")


def bytes_of(value: object) -> bytes:
    """The bytes of a JSON payload value: a string, or `{"b64": ...}` (eventlog/README, Kinds). Raises ValueError."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str):
        return base64.b64decode(value["b64"], validate=True)
    raise ValueError(f"neither a string nor a b64 object: {value!r:.80}")


def is_valid_path(path: bytes) -> bool:
    """Whether `path` has the form of eventlog/README: relative, no empty, `.` or `..` component; empty is the root."""
    return path == b"" or (b"\0" not in path and all(part not in (b"", b".", b"..") for part in path.split(b"/")))


def parent_of(path: bytes) -> bytes:
    """The path of the directory that holds `path` (not the root)."""
    return path.rpartition(b"/")[0]


def name_of(path: bytes) -> bytes:
    """The last component."""
    return path.rpartition(b"/")[2]


def ancestors_of(path: bytes) -> list[bytes]:
    """Every directory above `path`, nearest first, the root last; nothing for the root."""
    above: list[bytes] = []
    while path:
        path = parent_of(path)
        above.append(path)
    return above
