"""A session's places for one test: short paths, a registry of holders of their own, and the session opened there."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from eventlog.history import parse_point
from eventlog.ports import LinuxHost, RandomIds, SystemClock
from recovery.driver.order import Ports
from recovery.opening import log_path
from recovery.place import fork_into
from recovery.session import Session, open_session
from recovery.settings import read_settings


@dataclass(frozen=True)
class Places:
    """Everything of one test is below `base`: workspaces and state directories by name."""

    base: Path

    @property
    def environ(self) -> Mapping[str, str]:
        """The process's own environment with a registry for this test."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SESSION_", "CRASHWORTHY_"))}
        return own | {"SESSION_HOLDERS_DIR": str(self.base / "holders")}

    def work(self, name: str = "work") -> Path:
        return self.base / name

    def open(self, name: str = "work") -> AbstractContextManager[Session]:
        """The session whose workspace is `name`."""
        return open_session(self.base / f"{name}.state", self.work(name), environ=self.environ)

    def fork(self, at: str, name: str) -> None:
        """Fork the session of `work` at a point, to be opened as `name`."""
        log, ports = log_path(str(self.base / "work.state")), Ports(SystemClock(), RandomIds(), LinuxHost())
        state, settings = str(self.base / f"{name}.state"), read_settings(self.environ)
        fork_into(log, None, parse_point(at), "session", state, str(self.work(name)), settings, ports)


@contextmanager
def places() -> Iterator[Places]:
    """Places with an empty workspace `work`; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="crashworthy-", ignore_cleanup_errors=True) as base:
        made = Places(Path(os.path.realpath(base)))
        made.work().mkdir()
        yield made
