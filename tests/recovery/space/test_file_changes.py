"""Changes of files by key in a space by hand, beside what the suite of spaces asks: what dies, what was exchanged, who holds what."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventlog.errors import KeySpentError, LostProcessError, MisuseError, NeedsPersonError
from eventlog.ports import LinuxHost, RandomIds, SystemClock
from eventlog.process_identity import identify_self
from recovery.space.file_request import Delete, FileRequest, Write
from recovery.space.holders import Holders
from recovery.space.ledger import Ledger
from recovery.space.listing import AttemptWord
from recovery.space.marks import choose_marks
from recovery.space.port import CAPABILITIES
from recovery.space.records import Prepare, Start
from recovery.space.standalone import StandaloneSpace, make_space
from recovery.space.starting import append_start
from recovery.workspace import worker
from recovery.workspace.tools import ToolResult, write_file


class Bench:
    """Spaces by hand and their workspaces below one directory, under one registry."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.holders = Holders(str(base / "holders"), SystemClock())
        self.handles: list[StandaloneSpace] = []

    def open(self, name: str = "space", root: str = "work") -> StandaloneSpace:
        (self.base / root).mkdir(exist_ok=True)
        paths = make_space(str(self.base / name), RandomIds())
        handle = StandaloneSpace(paths, choose_marks("auto"), SystemClock(), LinuxHost(), None, self.holders)
        self.handles.append(handle)
        handle.use_workspace(str(self.base / root), RandomIds(), lambda _: False)
        if handle.facts().floor == 0:
            handle.advance(1)
        return handle


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path)
    yield made
    for handle in made.handles:
        handle.close()


def after_write(act: Callable[[], None]) -> Callable[..., ToolResult]:
    """The write tool, and what happens to the worker when it is done."""

    def write(*arguments: Any) -> ToolResult:
        done = write_file(*arguments)
        act()
        return done

    return write


def test_a_worker_that_dies_in_a_change_leaves_it_lost_and_never_done_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    space = bench.open()
    monkeypatch.setattr(worker, "write_file", after_write(lambda: os.kill(os.getpid(), signal.SIGKILL)))
    request = FileRequest("k", Write(b"f", b"x"))
    with pytest.raises(LostProcessError):
        space.change(1, request)
    monkeypatch.undo()
    (bench.base / "work/f").write_bytes(b"by hand")
    assert space.change(1, request) == "attached"
    with pytest.raises(LostProcessError):
        space.wait(1, "k")
    assert space.change(1, FileRequest("next", Write(b"g", b"y"))) == "started"
    assert space.advance(2).condemned == ("k",)
    with pytest.raises(KeySpentError):
        space.change(2, request)
    ended = space.look("k")
    assert ended is not None and (ended.word, ended.exit) == (AttemptWord.LOST, None)
    assert (bench.base / "work/f").read_bytes() == b"by hand"


@pytest.mark.parametrize("error", (MisuseError("the disk was taken out"), OSError(errno.EIO, "the disk was taken out")), ids=str)
def test_a_change_that_fails_in_the_worker_is_lost_and_not_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: MisuseError | OSError
) -> None:
    def fail() -> None:
        raise error

    space = bench.open()
    monkeypatch.setattr(worker, "write_file", after_write(fail))
    with pytest.raises(type(error), match="taken out"):
        space.change(1, FileRequest("k", Write(b"f", b"x")))
    with pytest.raises(LostProcessError):
        space.wait(1, "k")


def test_of_two_who_begin_a_prepared_key_one_does(bench: Bench) -> None:
    """The second mark used to be appended and made the ledger damaged for ever."""
    space = bench.open()
    first, second = (Ledger(str(bench.base / "space/ledger"), SystemClock()) for _ in range(2))
    with first.transaction() as transaction:
        transaction.append(Prepare("k", "file", 1, None, 1, "d", "m", None, 0, ""))
    mark = Start("k", identify_self(LinuxHost()), "")
    append_start(first, 1, mark)
    with pytest.raises(KeySpentError, match="has begun"):
        append_start(second, 1, mark)
    with pytest.raises(KeySpentError, match="never announced"):
        append_start(second, 1, Start("other", identify_self(LinuxHost()), ""))
    assert [one.key for one in space.list()] == ["k"]
    first.close()
    second.close()


def test_rule_R6_another_directory_in_the_root_s_place_is_refused_before_any_key(bench: Bench) -> None:
    space = bench.open()
    space.change(1, FileRequest("k", Write(b"f", b"x")))
    space.close()
    (bench.base / "work").rename(bench.base / "moved")
    other = bench.open()
    (bench.base / "work/own").touch()
    with pytest.raises(NeedsPersonError, match="root_replaced"):
        other.change(1, FileRequest("new", Delete(b"own")))
    assert [one.key for one in other.list()] == ["k"] and (bench.base / "work/own").exists()


def test_rule_S1_a_root_has_one_holder_and_a_space_one_root(bench: Bench) -> None:
    space = bench.open()
    (bench.base / "work/below").mkdir()
    for root in ("work", "work/below"):
        with pytest.raises(MisuseError, match=r"held by space:.*recovery release"):
            bench.open("other", root)
    with pytest.raises(MisuseError, match="one is all that it has"):
        bench.open("space", "elsewhere")
    with pytest.raises(MisuseError, match="contain each other"):
        bench.open("third", ".")
    space.change(1, FileRequest("k", Write(b"f", b"x")))
    assert space.give_up_workspace(2) and not space.give_up_workspace(3)
    assert bench.open("other").change(1, FileRequest("k", Write(b"g", b"y"))) == "started"
    with pytest.raises(MisuseError, match="not held"):
        space.change(3, FileRequest("new", Write(b"f", b"late")))
    assert (bench.base / "work/f").read_bytes() == b"x"


def test_a_space_without_a_workspace_names_file_changes_as_unavailable(bench: Bench) -> None:
    bare = StandaloneSpace(make_space(str(bench.base / "bare"), RandomIds()), choose_marks("auto"), SystemClock(), LinuxHost())
    bare.advance(1)
    assert frozenset(CAPABILITIES) - bare.capabilities == {"file changes"}
    with pytest.raises(MisuseError, match=r"no workspace of its own, so it changes no files: .*--workspace"):
        bare.change(1, FileRequest("k", Delete(b"f")))
    assert (bare.list(), bare.facts().workspace, bare.facts().holder) == ([], "", "")
    bare.close()


def test_a_holder_s_record_that_cannot_be_read_keeps_nobody_from_looking(bench: Bench) -> None:
    """It blocks every claim; who only asks is not concerned."""
    space = bench.open()
    (bench.base / "holders/broken.json").write_text("{")
    assert space.facts().holder == f"space:{space.facts().space_id}"
    with pytest.raises(MisuseError, match="not a holder record"):
        space.change(1, FileRequest("k", Delete(b"f")))
