"""Workloads drawn by chance: a tree and a list of calls. Pure.

What must hold: what a workload ends in is the same with every run, so that an interrupted one can be held against a plain one: no command
reads a clock, a random number or a process id. `theirs/` is left to edits from outside. The last call is there so that a takeover always
has one before it.
"""

from random import Random

from chaos.scenario import Scenario, SeedEntry
from recovery.script import BashCall, Call, EditCall, WriteCall

PREFIX = "random-"
DIRECTORIES = (b"", b"a/", b"a/b/", b"c/")
NAMES = (b"one.txt", b"two.txt", b"sp ace", b"\xff\xfe", b"-dash", b"new\nline")
EDITED = SeedEntry(b"edited.txt", "file", b"old, and more\n")
THEIRS = tuple(
    entry
    for number in (1, 2)
    for entry in (
        SeedEntry(f"theirs/file-{number}.txt".encode(), "file", b"theirs\n"),
        SeedEntry(f"theirs/folder-{number}/in.txt".encode(), "file", b"in a folder\n"),
        SeedEntry(f"theirs/link-{number}".encode(), "symlink", target=b"file-1.txt"),
    )
)
COMMANDS = (
    "echo {n} >> log.txt",
    "mkdir -p made/{n} && echo {n} > made/{n}/file",
    "rm -rf a",
    "mv c moved-{n} 2>/dev/null || echo nothing to move",
    "ln -s log.txt link-{n}",
    "ln -f log.txt hard-{n} 2>/dev/null; echo linked",
    "chmod 0{mode} . log.txt 2>/dev/null; true",
    "for i in 1 2 3 4 5 6 7 8 9; do echo $i > many-{n}-$i; done",
    "head -c {size} /dev/zero > zeros",
    "mkfifo pipe-{n}",
    "find . -path ./theirs -prune -o -type f -name '*.txt' -exec sh -c 'echo {n} >> \"$1\"' x {{}} \\;",
    "echo to stderr >&2; exit {code}",
    "rm -f log.txt; mkdir log.txt 2>/dev/null; rmdir log.txt; echo again > log.txt",
    "truncate -s {size} holes",
)


def draw_workload(drawing: Random, name: str, about: str) -> Scenario:
    """A scenario of four to six calls, of which the first, second and last are commands."""
    count = drawing.randint(4, 6)
    calls: list[Call] = [draw_command(drawing, 0), draw_command(drawing, 1)]
    calls += [draw_call(drawing, number) for number in range(2, count - 1)]
    calls.append(BashCall(note("echo end >> log.txt")))
    return Scenario(
        name=name,
        about=about,
        on_interrupted="reissue",
        seed=(*draw_tree(drawing), EDITED, *THEIRS),
        calls=tuple(calls),
        witnessed=tuple(number for number, call in enumerate(calls) if isinstance(call, BashCall)),
        ready="",
        gate="",
        compare_output=False,
        plan=(),
    )


def draw_tree(drawing: Random) -> tuple[SeedEntry, ...]:
    """Up to eight entries, in directories of up to two levels, names that are no text among them."""
    paths = sorted({drawing.choice(DIRECTORIES) + drawing.choice(NAMES) for _ in range(drawing.randint(0, 8))})
    entries: list[SeedEntry] = []
    for path in paths:
        files = [entry.path for entry in entries if entry.kind == "file"]
        kind = drawing.choice(("file", "file", "file", "symlink", "fifo", "directory", *(("hardlink",) if files else ())))
        mode = drawing.choice((0o644, 0o600, 0o755, 0o444)) if kind == "file" else 0o755 if kind == "directory" else 0o644
        target = drawing.choice(files) if kind == "hardlink" else b"one.txt" if kind == "symlink" else b""
        content = drawing.randbytes(drawing.choice((0, 1, 100, 70_000))) if kind == "file" else b""
        entries.append(SeedEntry(path, kind, content, mode, target))
    return tuple(entries)


def draw_call(drawing: Random, number: int) -> Call:
    """A command, or one of the file tools."""
    chosen = drawing.randrange(4)
    path = b"tools/" + drawing.choice(NAMES)
    if chosen == 0:
        return WriteCall(path, drawing.randbytes(drawing.choice((0, 10, 5_000))), drawing.choice((None, 0o600)))
    if chosen == 1:
        return EditCall(b"edited.txt", b"old", str(number).encode())
    return draw_command(drawing, number)


def draw_command(drawing: Random, number: int) -> BashCall:
    """A command with its notes for the witness."""
    text = drawing.choice(COMMANDS).format(
        n=number, mode=drawing.choice(("755", "700", "711")), size=drawing.choice((0, 1, 4096, 100_000)), code=drawing.randrange(4)
    )
    return BashCall(note(text))


def note(text: str) -> bytes:
    """A command between two notes in the witness; it ends as the command does."""
    begin = "printf '%s start\\n' \"$CALL_KEY\" >> \"$WITNESS\""
    end = "printf '%s end\\n' \"$CALL_KEY\" >> \"$WITNESS\""
    return f"{begin}\n( {text} )\ncode=$?\n{end}\nexit $code\n".encode()
