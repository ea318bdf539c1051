"""The README's own program runs as it stands, and its tables are those of a log."""

import os
import re
import subprocess
import sys
from pathlib import Path

from eventlog.reader import Reader
from eventlog.values import FORMAT
from tests.eventlog import support
from tests.eventlog.support import ROOT


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    support.make_log(tmp_path / "state")
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "eventlog" / "README.md").read_text("utf-8"), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 session_opened" in done.stdout and done.stdout.splitlines()[-1] == "11"


def test_the_files_are_as_the_readme_says(tmp_path: Path) -> None:
    """Its tables against those that a new log has: names, types, keys, what has row ids; and the header."""
    path = support.make_log(tmp_path)
    page = (ROOT / "eventlog" / "README.md").read_text("utf-8")
    reader = Reader.open(path)
    stated = {}
    for name, columns, rest in re.findall(r"^\| `(\w+)` \| `(\w+ [A-Z]+[^`]*)`([^|]*)\|$", page, re.MULTILINE):
        key = re.search(r"primary key \(([^)]*)\)", rest)
        stated[name] = (
            re.findall(r"(\w+) (TEXT|INTEGER|BLOB)\b", columns),
            [match.strip(" `") for match in key[1].split(",")] if key else re.findall(r"(\w+) \S+ PRIMARY KEY", columns),
            "WITHOUT ROWID" in rest,
        )
    found = {}
    for name, without in reader.rows("SELECT name, wr FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite%'"):
        rows = reader.rows("SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid", (name,))
        keys = [column for _, column in sorted((int(str(place)), column) for column, _, place in rows if place)]
        found[name] = ([(column, kind) for column, kind, _ in rows], keys, bool(without))
    assert stated == found
    header = {"application_id": "`application_id` is 0x{:X}", "user_version": "`user_version` {}", "page_size": "page size {}"}
    for pragma, words in header.items():
        ((value,),) = reader.rows(f"PRAGMA {pragma}")
        assert words.format(value) in page
    assert reader.rows("SELECT value FROM meta WHERE key = 'format'") == [(str(FORMAT),)] and f"`format` = `{FORMAT}`" in page
    assert (os.stat(path).st_mode & 0o777, "Mode 0600" in page) == (0o600, True)
    reader.close()
