"""Files that only their owner reads: what is said where they cannot be made, and where they cannot be opened."""

import errno
import os
from pathlib import Path

import pytest

from eventlog.errors import MisuseError
from recovery.space.private import open_private


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "there"])
def test_a_refusal_names_the_directory_where_the_file_is_not_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    path = tmp_path / "redriver.lock"
    if is_there:
        path.touch()

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched, pytest.raises(MisuseError) as caught:
        patched.setattr(os, "open", refuse)
        open_private(str(path), os.O_RDWR | os.O_CREAT, "the lock of the redriver")
    assert str(caught.value).startswith(f"{path if is_there else tmp_path}: the lock of the redriver cannot be ")
