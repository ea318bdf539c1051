"""A state of a disk is tried only where losing everything leaves what was synced: the engine's files and the workspace each by itself."""

import dataclasses

import pytest

from chaos.powerloss import play
from chaos.powerloss.device import KEPT, ROOT, Choice, Cut, Entry, Names, Operation, State, Sync, Write, build
from chaos.powerloss.files import File
from chaos.powerloss.history import History, Moment
from chaos.powerloss.play import find_unlike
from chaos.powerloss.record import Recorded
from chaos.saved import SavedState

OPERATIONS: list[Operation] = [
    Names((Entry(ROOT, "log", 1),)), Write(1, 0, b"synced"), Sync(1, 2), Sync(ROOT, 2),
    Write(1, 6, b" and not"), Names((Entry(ROOT, "new", 2),)),
]  # fmt: skip
HISTORY = History(OPERATIONS, [""] * len(OPERATIONS), is_directory={1: False, 2: False})
RECORDED = Recorded(HISTORY, 1, SavedState(None), 0, {}, b"", b"", {})
OLD = {"work": File("d", 0o755, inode=1), "work/a": File("f", 0o644, b"old", 2), "work/b": File("f", 0o644, b"b", 3)}
NEW = {"work": OLD["work"], "work/c": OLD["work/b"], "work/a": File("f", 0o644, b"new", 2), "work/d": File("f", 0o644, b"d", 4)}
MOMENT = Moment("driver@1:cut.end:1", len(OPERATIONS), 0, 0, OLD, NEW, frozenset())


def test_what_is_lost_of_everything_is_what_was_synced() -> None:
    assert find_unlike(RECORDED, MOMENT) == ""
    assert find_unlike(RECORDED, dataclasses.replace(MOMENT, issued=4, new=OLD)) == ""  # nothing to lose


def test_where_nothing_of_the_engines_files_is_lost_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_all(cut: Cut, choice: Choice) -> State:
        return build(cut, (KEPT,) * len(choice))

    monkeypatch.setattr(play, "build", keep_all)
    assert "the engine's files are not what was synced" in find_unlike(RECORDED, MOMENT)


def test_where_nothing_of_the_workspace_is_lost_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "build_tree", lambda _old, new, _fates: dict(new))
    assert "the workspace is not what was synced" in find_unlike(RECORDED, MOMENT)
