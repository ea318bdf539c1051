"""The pytest plugin, in suites of its own: crash tests that pass, that fail, and that prove nothing and therefore fail; in parallel too."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.planted.plant import INSTALLED
from chaos.testing import plugin
from tests.chaos.target.support import DEADLINE_SECS, EXAMPLES

DOCUMENT = EXAMPLES.parents[1] / "crash-tests.md"

pytest_plugins = ["pytester"]

HEAD = """
import os, pytest
from pathlib import Path
from chaos.testing.crash import crash_at, crash_everywhere
from chaos.target.announce import step
"""
TOOLS = """
import os
from pathlib import Path
from chaos.target.announce import step

def sound():
    if not Path("done").exists():
        step("begin")
        Path("new").write_text("whole")
        step("half")
        Path("new").rename("done")

def torn():
    with open("done", "a") as file:
        file.write("one ")
        file.flush()
        step("half")
        file.write("two")

def silent():
    Path("done").write_text("whole")

def ends_badly():
    raise SystemExit("no luck")

def never_again():
    if os.environ["CHAOS_ATTEMPT"] != "1":
        raise SystemExit("been here before")
    Path("done").write_text("whole")
    step("half")
"""


@pytest.fixture(autouse=True)
def outside_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suites run as where the package is installed: it can be imported, and the plugin is named, whether it is declared or not."""
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(INSTALLED))


def run(pytester: pytest.Pytester, body: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(tools=TOOLS, test_suite=f"{HEAD}\nfrom tools import *\n{body}")
    return pytester.runpytest_subprocess("-p", plugin.__name__, "-p", "no:cacheprovider", *arguments, timeout=DEADLINE_SECS)


EVERYWHERE = """
@crash_everywhere(sound)
def test_whole(crash_workspace):
    assert (crash_workspace / "done").read_text() == "whole"
"""


def test_a_sound_tool_passes_at_each_of_its_steps_in_parallel_and_leaves_nothing_behind(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    area = tmp_path / "area"
    area.mkdir()
    monkeypatch.setenv("TMPDIR", str(area))
    found = run(pytester, EVERYWHERE, "-p", "xdist", "-n", "2", "-v", "--basetemp", str(tmp_path / "base"))
    found.assert_outcomes(passed=2)
    found.stdout.fnmatch_lines_random(["*PASSED*test_whole?begin?*", "*PASSED*test_whole?half?*"])
    assert [path.name for path in area.iterdir() if path.name.startswith("crash-")] == []


def test_a_torn_one_fails_and_says_where_it_was_killed(pytester: pytest.Pytester) -> None:
    body = """
@crash_at("half", torn)
def test_whole(crash_workspace, crash_driver):
    assert crash_driver.starts == (-9, 0)
    assert (crash_workspace / "done").read_text() == "one two"
"""
    found = run(pytester, body)
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["*'one one two' == 'one two'*", "killed at driver@1:half:1; its starts ended with [[]-9, 0[]]; all*"])


NOTHING = (
    ("@crash_everywhere(silent)", "unknown, nothing was killed: the target announced no step; call step(NAME)*"),
    ("@crash_everywhere(ends_badly)", "unknown, nothing was killed: the clean run ended with 1, not 0*: no luck"),
    ("@crash_at('later', sound)", "unknown, nothing was proved: did not fire: kill driver@1:later:1*"),
    ("@crash_at('half', never_again)", "the tool does not survive a kill: liveness: *: been here before"),
)


def test_what_proves_nothing_fails_before_the_body_runs(pytester: pytest.Pytester) -> None:
    bodies = (f"{mark}\ndef test_{number}(): print('the body ' + 'ran')" for number, (mark, _) in enumerate(NOTHING))
    found = run(pytester, "\n".join(bodies))
    found.assert_outcomes(failed=len(NOTHING))
    for _, why in NOTHING:
        found.stdout.fnmatch_lines_random([why])
    found.stdout.no_fnmatch_line("*the body ran*")


def test_a_tool_that_a_fresh_interpreter_cannot_find_is_refused_by_one_sentence(pytester: pytest.Pytester) -> None:
    found = run(pytester, "@crash_everywhere(lambda: None)\ndef test_nothing(): pass")
    found.assert_outcomes(errors=1)
    found.stdout.fnmatch_lines(["*MisuseError: tool <function <lambda>*must be a function of a module*"])


def test_a_fixture_without_its_mark_says_so(pytester: pytest.Pytester) -> None:
    found = run(pytester, "def test_nothing(crash_workspace): pass")
    found.assert_outcomes(errors=1)
    found.stdout.fnmatch_lines(["*crash_driver belongs to tests with @crash_at or @crash_everywhere*"])


ENGINE = """
def engine():
    import sys
    from recovery.session import open_session
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CRASHWORTHY_STEP_")}
    with open_session(os.environ["CHAOS_STATE"], ".", environ=environ) as session:
        session.bash("echo one >> lines", key="one")
        step("between")
        session.bash("echo two >> lines", key="two")
        session.finish()
"""


def test_a_tool_on_this_engine_is_judged_by_its_log(pytester: pytest.Pytester) -> None:
    body = """
@crash_at("between", "{python} -c 'import tools; tools.engine()'")
def test_log(crash_workspace, crash_log):
    assert (crash_workspace / "lines").read_text() == "one\\ntwo\\n"
    assert crash_log.kinds[-1] == "session_finished" and crash_log.kinds.count("driver_started") == 2
    crash_log.assert_sound()
    (crash_workspace / "lines").write_text("three")
    with pytest.raises(AssertionError, match="workspace-equals-log says fail"):
        crash_log.assert_sound()
"""
    pytester.makepyfile(tools=TOOLS + ENGINE)
    text = body.replace("{python}", f"env PYTHONPATH={INSTALLED}:{pytester.path} {sys.executable}")
    pytester.makepyfile(test_suite=f"{HEAD}\n{text}")
    found = pytester.runpytest_subprocess("-p", plugin.__name__, "-p", "no:cacheprovider", timeout=DEADLINE_SECS)
    found.assert_outcomes(passed=1)


def test_the_example_of_the_documentation_runs_as_it_says(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    assert len([line for line in blocks[0].splitlines() if line.strip() and not line.startswith(("import", "from"))]) <= 30
    pytester.makepyfile(test_example=blocks[0])
    found = pytester.runpytest_subprocess("-p", plugin.__name__, "-p", "no:cacheprovider", "-v", timeout=DEADLINE_SECS)
    found.assert_outcomes(passed=4)
    named = {"test_the_lines_are_there_once[line]", "test_the_lines_are_there_once[line:2]", "test_it_was_killed_once[line:2]"}
    assert [name for name in named if f"{name} PASSED" not in found.stdout.str()] == []


def test_the_plugin_is_declared_and_imports_nothing_of_the_project() -> None:
    assert f'crashworthy = "{plugin.__name__}"' in (INSTALLED / "pyproject.toml").read_text("utf-8")
    code = "import sys; import pytest; before = set(sys.modules); import chaos.testing.plugin; print(*sorted(set(sys.modules) - before))"
    environment = {**os.environ, "PYTHONPATH": str(INSTALLED)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["chaos", "chaos.testing", "chaos.testing.plugin"]


@pytest.mark.parametrize("name", ["crash_at", "crash_everywhere", "crash_workspace", "crash_driver", "crash_log", "prepare", "step(name)"])
def test_what_there_is_stands_in_its_document(name: str) -> None:
    assert f"`{name}" in DOCUMENT.read_text("utf-8")
