"""The commands of simulated calls: a small part of bash, read as programs of the space in memory.

A line, or what stands between semicolons, is one act, and between two acts another process may run or the command may be killed:

    echo WORDS [>> FILE | > FILE]     printf 'TEXT' [ARGUMENT] [>> FILE | > FILE]     cat FILE     rm FILE     mkdir DIRECTORY     exit N

`> FILE` is two acts: the file is emptied, then written. `$CALL_KEY` stands for the attempt's key; `$WITNESS`, as a FILE, is the witness
outside the workspace. Real bash does with these lines what is done here, but for what it says of a line that fails; a test compares them.
"""

import shlex
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Protocol

from chaos.sim.tree import DIRECTORY_MODE, FILE_MODE, Node, Tree
from eventlog.errors import MisuseError
from eventlog.events import Exit
from recovery.space.memory import Act, Await, Finish, Say
from recovery.space.request import CommandRequest

_NOT_SIMULATED = (b"|", b"&", b"<", b"`", b"$(", b"*", b"?")
VERBS = ("echo", "printf", "cat", "rm", "mkdir", "exit")
WITNESS = "$WITNESS"
GO_ON = Await(lambda: True)
"""What a program yields where another process may run."""


class Surroundings(Protocol):
    """What a command reaches: the workspace, its time, and the witness outside."""

    tree: Tree
    witness: bytearray

    def now_ns(self) -> int:
        """The time of a change."""


Line = tuple[tuple[str, ...], str, str]
"""Words, `>>` or `>` or "", and the file behind it."""


@lru_cache(maxsize=4096)
def parse(run: bytes) -> tuple[Line, ...]:
    """The acts of a command. Raises MisuseError for what is no part of the simulated shell."""
    if any(sign in run for sign in _NOT_SIMULATED):
        raise _refuse(run)
    lexer = shlex.shlex(run.decode("utf-8").replace("\n", " ; "), posix=True, punctuation_chars=";>")
    lexer.whitespace_split = True
    lines: list[Line] = []
    words: list[str] = []
    for token in [*lexer, ";"]:
        if token.strip(";") or not token:
            words.append(token)
        elif words:
            lines.append(_read_line(words, run))
            words = []
    return tuple(lines)


def _read_line(words: list[str], run: bytes) -> Line:
    redirect = target = ""
    if len(words) > 2 and words[-2] in (">", ">>"):
        *words, redirect, target = words
    if words[0] not in VERBS or any(word in (">", ">>") for word in words):
        raise _refuse(run)
    return tuple(words), redirect, target


def _refuse(run: bytes) -> MisuseError:
    return MisuseError(
        f"{run.decode('utf-8', 'replace')!r}: the simulation knows {', '.join(VERBS)}, with >> FILE or > FILE behind it; "
        "run other commands with --backend local"
    )


def make_program(world: Surroundings) -> Callable[[CommandRequest], Iterator[Act]]:
    """The program that executes `bash -c RUN` in these surroundings."""

    def execute(request: CommandRequest) -> Iterator[Act]:
        key = next(value for name, value in request.environment if name == b"CALL_KEY").decode()
        return run_lines(world, request.arguments[2], key)

    return execute


def run_lines(world: Surroundings, run: bytes, key: str) -> Iterator[Act]:
    """The acts of a command, each done when it is asked for."""
    status = 0
    for words, redirect, target in parse(run):
        if words[0] == "exit":
            status = int(words[1]) if len(words) > 1 else status
            break
        if words[0] not in ("echo", "printf"):
            status, said = _act(world, words)
            yield Say("out", said) if said else GO_ON
            continue
        data = _say(words, key)
        if not redirect:
            status = 0
            yield Say("out", data)
        elif target == WITNESS:
            world.witness += data
            yield GO_ON
        else:
            if redirect == ">":
                status = _change(world, target, b"", appends=False)
                yield GO_ON
            status = _change(world, target, data, appends=True)
            yield GO_ON
    yield Finish(Exit("exited", code=status))


def _say(words: tuple[str, ...], key: str) -> bytes:
    texts = [word.replace("$CALL_KEY", key) for word in words[1:]]
    if words[0] == "echo":
        return " ".join(texts).encode() + b"\n"
    text = texts[0].replace("\\n", "\n")
    return (text.replace("%s", texts[1]) if len(texts) > 1 else text).encode()


def _change(world: Surroundings, target: str, data: bytes, *, appends: bool) -> int:
    path = target.encode()
    known = world.tree.nodes.get(path)
    before = known.content if known is not None and appends and known.content is not None else b""
    try:
        world.tree.put(path, Node(known.mode if known is not None else FILE_MODE, before + data, world.now_ns()))
    except OSError:
        return 1
    return 0


def _act(world: Surroundings, words: tuple[str, ...]) -> tuple[int, bytes]:
    path = words[1].encode()
    found = world.tree.nodes.get(path)
    try:
        match words[0]:
            case "cat":
                return (1, b"") if found is None or found.content is None else (0, found.content)
            case "rm":
                if found is None or found.content is None:
                    return 1, b""
                world.tree.take(path)
            case _:
                if found is not None:
                    return 1, b""
                world.tree.put(path, Node(DIRECTORY_MODE, None, world.now_ns()))
    except OSError:
        return 1, b""
    return 0, b""
