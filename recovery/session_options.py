"""What a program says of its session when it opens it, as a session file would say it: one without a script. Opens nothing."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eventlog.errors import MisuseError
from recovery.script import Session
from recovery.session_file import parse_bound, parse_limits, parse_mode, parse_store
from recovery.workspace.profile import parse_profile

WHERE = "open_session"
"""How messages name the place where it was said."""


def describe_session(
    state: str | os.PathLike[str], workspace: str | os.PathLike[str] | None, name: str, exclude: Sequence[str], track: Sequence[str],
    modes: Mapping[str, Any],
) -> Session | None:  # fmt: skip
    """The session that is to begin, or must have begun, in these places; None without a workspace: it must be there then.

    `modes` has what was said of `mode`, `store` (relative to the current directory), `lost_work_bound` and `limits`. Raises MisuseError
    for what a session file may not say either, and for modes without a workspace.
    """
    if workspace is None:
        if modes:
            raise MisuseError(f"{WHERE}: {', '.join(modes)} is fixed when a session begins; name its workspace as well, or leave it out")
        return None
    mode = parse_mode(modes.get("mode", "transactional"), WHERE)
    said = dict(modes) | ({"store": os.fspath(modes["store"])} if isinstance(modes.get("store"), os.PathLike) else {})
    return Session(
        name=name,
        workspace=os.path.abspath(workspace),
        state=os.path.abspath(state),
        on_interrupted="continue",
        calls=(),
        profile=parse_profile(list(exclude), list(track), WHERE),
        mode=mode,
        store=parse_store(said, mode, Path.cwd(), WHERE),
        lost_work_bound=parse_bound(said, mode, WHERE),
        limits=parse_limits(said.get("limits"), mode, WHERE),
    )
