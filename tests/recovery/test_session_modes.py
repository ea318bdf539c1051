"""Sessions from Python in every mode: what a session file says of modes can be said when one is opened, and holds."""

import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from eventlog import events
from eventlog.errors import LostProcessError, MisuseError, NeedsPersonError
from eventlog.reader import Reader
from eventlog.values import ContentId
from recovery.session import Session, open_session
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox

CUT = "kill -9 $PPID; while :; do sleep 0.1; done"


def opened(sandbox: Sandbox, **options: Any) -> AbstractContextManager[Session]:
    return open_session(sandbox.state, sandbox.root, environ=sandbox.environment(None, ()), **options)


def contents_in_log(sandbox: Sandbox) -> int:
    """How many contents of images are in the log itself."""
    reader = Reader.open(str(sandbox.log))
    try:
        named = {change.entry.content for stored in sandbox.events() for change in stored.changes if change.entry and change.entry.content}
        return sum(reader.has_blob(ContentId(one)) for one in named)
    finally:
        reader.close()


def test_rule_C7_every_outcome_of_a_checkpoint_session_stands_on_a_checkpoint_and_a_lost_workspace_comes_from_it(sandbox: Sandbox) -> None:
    store = sandbox.base / "kept"
    with opened(sandbox, mode="checkpoint", store=store) as session:
        session.bash("echo one >> log", key="one")
        session.write("d/a", "x", key="two")
    assert [one.mode for one in sandbox.of_kind(events.SessionOpened)] == ["checkpoint"]
    assert [taken.root for taken in sandbox.of_kind(events.CheckpointTaken)] == [done.root for done in sandbox.of_kind(events.CallSettled)]
    assert contents_in_log(sandbox) == 0 and any(store.rglob("*"))
    shutil.rmtree(sandbox.root)
    told: list[str] = []
    with opened(sandbox, mode="checkpoint", store=store, tell=told.append) as session:
        assert session.bash("cat log d/a", key="three").stdout == b"one\nx"
        session.finish()
    assert "root_lost" in sandbox.labels() and any("lost_calls=0 bound=0" in line for line in told), told
    assert read_contents(sandbox.root) == {"log": b"one\n", "d": None, "d/a": b"x"}


def test_rule_C8_auto_switches_once_in_the_outcome_that_crosses_a_limit(sandbox: Sandbox) -> None:
    with opened(sandbox, mode="auto", limits={"paths": 2}) as session:
        session.bash("touch a", key="one")
        assert session.state.mode == "auto"
        session.bash("touch b c d", key="two")
        assert session.state.mode == "checkpoint"
        session.bash("rm b c d", key="three")
    switched = [stored for stored in sandbox.events() if isinstance(stored.event, events.ModeSwitched)]
    assert len(switched) == 1
    outcome = next(stored for stored in sandbox.events() if isinstance(stored.event, events.CallSettled) and stored.event.call == 2)
    assert 0 < switched[0].seq - outcome.seq <= 2, "it is in the outcome's commit"


def test_rule_C8_a_transactional_session_begins_no_call_above_its_limit(sandbox: Sandbox) -> None:
    with opened(sandbox, limits={"bytes": 100}) as session:
        session.bash("head -c 1000 /dev/zero > big; echo ran >> $WITNESS", key="one")
    with pytest.raises(NeedsPersonError, match="limit"), opened(sandbox, limits={"bytes": 100}) as session:
        session.bash("echo ran >> $WITNESS", key="two")
    assert sandbox.witnessed() == ["ran"]


def test_lost_work_bound_leaves_checkpoints_out_and_replays_what_is_safe(sandbox: Sandbox) -> None:
    """The newest checkpoint is spoiled: calls after the one before it are done again, as their policy, which `replay` says, lets them."""
    modes: dict[str, Any] = {"mode": "checkpoint", "lost_work_bound": 2, "replay": {"bash": "safe"}}
    with opened(sandbox, **modes) as session:
        for name in ("one", "two", "three"):
            assert session.bash(f"echo {name} >> log", key=name).ok
    assert {one.policy for one in sandbox.of_kind(events.AttemptStarted)} == {"safe"}
    newest = sandbox.of_kind(events.CheckpointTaken)[-1].manifest
    found = [path for path in (sandbox.state / "checkpoints").rglob("*") if newest in path.name]
    assert len(found) == 1
    found[0].write_bytes(b"spoiled")
    shutil.rmtree(sandbox.root)
    with opened(sandbox, **modes) as session:
        assert [session.bash(f"echo {name} >> log", key=name).is_recorded for name in ("one", "two", "three")] == [True] * 3
        assert not any(result.is_undone for result in session.results)
        session.finish()
    assert sandbox.of_kind(events.CallReplayed) and not sandbox.of_kind(events.CallUndone)
    assert read_contents(sandbox.root) == {"log": b"one\ntwo\nthree\n"}


def test_replay_says_the_policy_of_calls_that_say_none(sandbox: Sandbox) -> None:
    run = f"echo x >> a; echo ran >> $WITNESS; test $(wc -l < $WITNESS) = 2 || {{ {CUT}; }}"
    replay: dict[str, Any] = {"bash": "after-restore", "write": "never", "edit": "ask"}
    with pytest.raises(LostProcessError), opened(sandbox, replay=replay) as session:
        session.write("w", "1", key="w")
        session.write("w", "2", key="w2", policy="safe")
        session.edit("w", "2", "3", key="e")
        session.bash(run, key="one")
    with opened(sandbox, replay=replay) as session:
        assert session.bash(run, key="one").ok
        with pytest.raises(MisuseError, match="effects = .outside. cannot have policy"):
            session.bash("true", key="two", effects="outside")
    assert sandbox.witnessed() == ["ran", "ran"]
    policies = [(one.tool, one.policy) for one in sandbox.of_kind(events.AttemptStarted)]
    assert policies == [("write", "never"), ("write", "safe"), ("edit", "ask")] + [("bash", "after-restore")] * 2


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"mode": "often"}, "unknown mode 'often'; use transactional, checkpoint, auto"),
        ({"store": "s"}, "store is for sessions with checkpoints"),
        ({"lost_work_bound": 1}, "lost_work_bound is for sessions with checkpoints"),
        ({"mode": "checkpoint", "lost_work_bound": -1}, "lost_work_bound must be a number of calls"),
        ({"mode": "checkpoint", "limits": {"paths": 1}}, "leave them out in mode checkpoint"),
        ({"limits": {"files": 1}}, "limits must be a table of bytes, paths, file_bytes"),
        ({"replay": {"bash": "often"}}, "replay: bash: unknown policy 'often'"),
        ({"replay": {"sh": "safe"}}, "replay must be a table of bash, write and edit"),
    ],
)
def test_what_a_session_file_may_not_say_is_refused_and_nothing_is_made(sandbox: Sandbox, said: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MisuseError, match="open_session: ") as refused, opened(sandbox, **said):
        pass
    assert sentence in str(refused.value)
    assert not sandbox.state.exists()


def test_a_mode_is_fixed_when_the_session_begins(sandbox: Sandbox) -> None:
    with opened(sandbox, mode="checkpoint", lost_work_bound=1) as session:
        session.bash("echo one > a", key="one")
    for other in ({}, {"mode": "auto"}, {"mode": "checkpoint"}, {"mode": "checkpoint", "lost_work_bound": 2}):
        with pytest.raises(MisuseError, match="began with another `mode`, .* than is asked for now"), opened(sandbox, **other):
            pass
    with pytest.raises(MisuseError, match="mode is fixed when a session begins; name its workspace as well"):
        with open_session(sandbox.state, environ=sandbox.environment(None, ()), mode="checkpoint"):
            pass
    with open_session(sandbox.state, environ=sandbox.environment(None, ())) as session:
        assert session.state.mode == "checkpoint" and session.bash("cat a", key="two").stdout == b"one\n"


def test_a_store_is_relative_to_the_current_directory(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sandbox.base)
    for _ in range(2):
        with opened(sandbox, mode="checkpoint", store=Path("kept")) as session:
            session.bash("echo one > a", key="one")
    assert os.path.isdir(sandbox.base / "kept") and not (sandbox.state / "checkpoints").exists()
