"""Bytes that people may see: names and outputs escaped so that no terminal, line or table is bent by them."""

import base64

from eventlog.values import JsonBytes


def show_path(path: bytes) -> str:
    r"""`path` as printable text, reversibly: `\\` for a backslash, `\xNN` for each byte of anything else that does not print.

    Control bytes, bytes that are not UTF-8 and characters that only steer a terminal or the direction of text are escaped. The empty
    path, which is the root of a workspace, is shown as `.`.
    """
    if not path:
        return "."
    text = path.decode("utf-8", "surrogateescape")
    return text if _is_plain(text) else "".join(map(_show_character, text))


def _is_plain(text: str) -> bool:
    """Whether every character is shown as it is: nearly every path, and character by character each costs a driver a tenth of a ms."""
    return text.isprintable() and "\\" not in text


def _show_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def show_text(text: str) -> str:
    """`show_path` for text that may hold surrogate escapes (a path given by a person, a message that quotes one). Nothing is shown of an
    empty text: who names it in a sentence quotes it."""
    return text if _is_plain(text) else show_path(text.encode("utf-8", "surrogateescape"))


def show_word(text: str) -> str:
    """`text`, a path, as one word of a command line that a person copies: `show_text` of it, quoted where a shell would read it
    otherwise."""
    return as_word(show_text(text))


def as_word(shown: str, *, is_path: bool = True) -> str:
    r"""What `show_text` gave, as one word of a command line. What it escaped is written as bash's `$'..'`, which has the same escapes; a
    path that begins with `-` would be taken for an option, and gets `./` before it."""
    word = f"./{shown}" if is_path and shown.startswith("-") else shown
    if "\\" in word:
        return "$'" + word.replace("'", r"\'") + "'"
    import shlex  # only where something is said: a driver is started more often

    return shlex.quote(word)


def advise_verify(name: str) -> str:
    """What to run where a log, as shown, says what it must not."""
    return f"run `eventlog verify {as_word(name)}`"


def decode_bytes(value: JsonBytes) -> bytes:
    """The inverse of `encode_bytes`. Raises ValueError."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if set(value) != {"b64"}:
        raise ValueError("an object with other keys than b64")
    return base64.b64decode(value["b64"], validate=True)


def encode_bytes(data: bytes) -> JsonBytes:
    """Bytes as JSON: a string when they are UTF-8, else `{"b64": ...}`."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode("ascii")}
