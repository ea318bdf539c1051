"""The README's own program runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

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
