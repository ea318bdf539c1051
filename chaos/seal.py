"""Lines of a run directory that know what came before them: who takes one away, adds one or changes one is found out.

Each line of a sealed file is a JSON object whose last field is `seal`: BLAKE3 of the seal before and of the line without it, 32 hex digits.
The first seal of a file goes on from `config.json` and the file's name. So a line is whole and in its place, or the chain is broken
there. Nothing here is secret: this holds against mistakes and touch-ups, not against somebody who makes a whole directory anew.
"""

from pathlib import Path

from blake3 import blake3

from eventlog.errors import MisuseError

SEALED = ("steps.jsonl", "recordings.jsonl", "results.jsonl")
_MARK = b',"seal":"'
_DIGITS = 32
_END = b'"}'


def begin_chain(directory: Path, name: str) -> str:
    """What the first line of the file `name` of a run directory goes on from."""
    return _digest(name.encode() + b"\n" + (directory / "config.json").read_bytes())


def seal_line(line: bytes, before: str) -> tuple[bytes, str]:
    """A JSON object of one field or more as a line of a sealed file, and its seal."""
    seal = _digest(before.encode() + line)
    return line[:-1] + _MARK + seal.encode() + _END + b"\n", seal


def check_chain(directory: Path, name: str) -> str:
    """The last seal of a file of whole lines, that of its beginning when there are none. MisuseError names the first line that is not the
    one that was written."""
    file, seal = directory / name, begin_chain(directory, name)
    for number, line in enumerate(file.read_bytes().split(b"\n")[:-1] if file.exists() else [], 1):
        body, mark, end = line.rpartition(_MARK)
        whole, seal = seal_line(body + b"}", seal)
        if not mark or end != whole[-len(end) - 1 : -1] or len(end) != _DIGITS + len(_END):
            raise MisuseError(
                f"{file}: line {number} is not the one that the campaign wrote there (it was changed, or one before it was taken away, "
                "or config.json is another), so that nothing can go on from it; run the campaign again"
            )
    return seal


def _digest(text: bytes) -> str:
    return blake3(text).hexdigest()[:_DIGITS]
