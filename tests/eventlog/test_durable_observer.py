"""The one port of the durable module: an observer is told of every operation before and after it, and may fail it."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog import durable


class Watching:
    """An observer that keeps what it is told, and fails the operations of one kind."""

    def __init__(self, fails: str = "") -> None:
        self.told: list[tuple[str, str]] = []
        self.operations: list[durable.Operation] = []
        self._fails = fails

    def begin(self, operation: durable.Operation) -> None:
        self.told.append(("begin", operation.kind))
        self.operations.append(operation)
        if operation.kind == self._fails:
            raise OSError(errno.EIO, "the device failed")

    def end(self, operation: durable.Operation) -> None:
        self.told.append(("end", operation.kind))


@pytest.fixture
def watching() -> Iterator[Callable[[Watching], Watching]]:
    def install(observer: Watching) -> Watching:
        durable.observe(observer)
        return observer

    yield install
    durable.observe(None)


def open_new(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def do_everything(directory: Path) -> None:
    """Each function of the module once."""
    one, other = directory / "one", directory / "other"
    durable.publish(str(one), b"text", "published")
    durable.write_new(str(other), [b"a", b"b"], "new")
    descriptor = open_new(other)
    try:
        durable.write_all(descriptor, b"abc", "all")
        durable.write_pieces(descriptor, [b"a", b"b"], "pieces")
        durable.append_record(descriptor, b"line", "record")
        durable.overwrite_tail(descriptor, 2, b"tail", "tail")
        durable.sync_filesystem(descriptor, "fs")
    finally:
        os.close(descriptor)
    durable.link(str(other), str(directory / "second"), "second")
    durable.move(str(other), str(directory / "moved"), "moved")
    durable.unlink(str(directory / "second"), "second")
    (directory / "below").mkdir()
    durable.remove_directory(str(directory / "below"), "below")


def test_every_operation_is_told_before_and_after_it(tmp_path: Path, watching: Callable[[Watching], Watching]) -> None:
    observer = watching(Watching())
    do_everything(tmp_path)
    kinds = [kind for when, kind in observer.told if when == "begin"]
    assert [("begin", kind) for kind in kinds for _ in "12"] == [("begin", kind) for _, kind in observer.told]
    assert [when for when, _ in observer.told] == ["begin", "end"] * len(kinds)
    assert kinds == [
        "create", "write", "sync", "rename", "sync",  # publish
        "create", "write", "write", "sync",  # write_new
        "write", "write", "write", "sync", "write", "truncate", "sync", "syncfs", "link", "move", "unlink", "rmdir",
    ]  # fmt: skip


def test_what_is_told_is_what_is_done(tmp_path: Path, watching: Callable[[Watching], Watching]) -> None:
    """An observer that carries out what it is told on a copy has the same files."""
    observer = watching(Watching())
    do_everything(tmp_path)
    written = [(one.step, one.data, one.offset) for one in observer.operations if one.kind == "write"]
    assert written == [
        ("published", b"text", None),
        ("new", b"a", None),
        ("new", b"b", None),
        ("all", b"abc", None),
        ("pieces", b"ab", None),
        ("record", b"line", None),
        ("tail", b"tail", 2),
    ]
    moved = next(one for one in observer.operations if one.kind == "move")
    assert (os.fsdecode(moved.path), os.fsdecode(moved.target)) == (str(tmp_path / "other"), str(tmp_path / "moved"))


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename"])
def test_an_error_of_the_observer_is_the_operations_own(kind: str, tmp_path: Path, watching: Callable[[Watching], Watching]) -> None:
    watching(Watching(fails=kind))
    with pytest.raises(OSError, match="the device failed"):
        durable.publish(str(tmp_path / "one"), b"text", "published")
    assert not (tmp_path / "one").exists()


def test_nobody_is_told_when_nobody_observes(tmp_path: Path, watching: Callable[[Watching], Watching]) -> None:
    observer = watching(Watching())
    durable.observe(None)
    do_everything(tmp_path)
    assert observer.told == []
