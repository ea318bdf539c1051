"""The pytest plugin: a mark and fixtures. It is loaded in every pytest run beside an installed crashworthy, and imports nothing of that:
what a test needs comes with its mark, from `chaos.testing.crash`, which the test's module has imported.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MARK = "crash_tested"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", f"{MARK}(test): a tool is killed and started again before the test (chaos.testing.crash makes it)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each step at which its tool is killed."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is not None:
        kills = mark.args[0].list_kills(metafunc.config)
        metafunc.parametrize("crash_driver", kills, indirect=True, ids=[kill.name for kill in kills])


@pytest.fixture
def crash_driver(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """How the tool was killed and started again: `chaos.testing.crash.Driver`."""
    mark = request.node.get_closest_marker(MARK)
    if mark is None:
        pytest.fail("crash_driver belongs to tests with @crash_at or @crash_everywhere of chaos.testing.crash", pytrace=False)
    return mark.args[0].make_driver(request.config, request.param, tmp_path / "crash")


@pytest.fixture
def crash_workspace(crash_driver: Any) -> Path:
    """The tool's current directory, as it left it."""
    return Path(crash_driver.workspace)


@pytest.fixture
def crash_log(crash_driver: Any) -> Any:
    """The log of a tool on this engine: `chaos.testing.log.Log`."""
    return crash_driver.log


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Before the body of a marked test its tool is started, killed and started again."""
    driver: Any = pyfuncitem.funcargs.get("crash_driver")
    if driver is not None and pyfuncitem.get_closest_marker(MARK) is not None:
        trouble = driver.play()
        pyfuncitem.add_report_section("call", "crash", driver.describe())
        if trouble:
            pytest.fail(trouble, pytrace=False)
    return (yield)
