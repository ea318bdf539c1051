"""Session files: every malformed one gives one sentence that names file, place and way out; calls survive the way to JSON and back."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.errors import MisuseError
from eventlog.show import encode_bytes
from recovery.script import BashCall, Call, EditCall, WriteCall, call_from_json, call_to_json, decode_bytes
from recovery.session_file import load_session

TOP = 'name = "n"\nworkspace = "w"\nstate = "s"\n'
CALL = '[[call]]\ntool = "bash"\nrun = "true"\n'

BAD: dict[str, tuple[str | bytes, str]] = {
    "not toml": ("name = ", "not valid TOML"),
    "not utf-8": (b"name = '\xff'", "not valid TOML"),
    "unknown key": (TOP + "color = 1\n" + CALL, "unknown key 'color'; a session has name, workspace"),
    "no name": ('workspace = "w"\nstate = "s"\n' + CALL, "name is missing or not a string"),
    "no workspace": ('name = "n"\nstate = "s"\n' + CALL, "workspace is missing or not a string"),
    "no state": ('name = "n"\nworkspace = "w"\n' + CALL, "state is missing or not a string"),
    "empty state": ('name = "n"\nworkspace = "w"\nstate = ""\n' + CALL, "state is missing or not a string"),
    "name a number": ('name = 1\nworkspace = "w"\nstate = "s"\n' + CALL, "name is missing or not a string"),
    "name a path": (TOP.replace('"n"', '"../n"') + CALL, "must be 1 to 64 letters, digits"),
    "name with newline": (TOP.replace('"n"', '"n\\n"') + CALL, "must be 1 to 64 letters, digits"),
    "unknown mode": (TOP + 'mode = "magic"\n' + CALL, "unknown mode 'magic'; use transactional, checkpoint, auto"),
    "mode a number": (TOP + "mode = 1\n" + CALL, "unknown mode 1"),
    "mode a list": (TOP + "mode = []\n" + CALL, "unknown mode []"),
    "on_interrupted": (TOP + 'on_interrupted = "maybe"\n' + CALL, "unknown on_interrupted 'maybe'; use stop, reissue, continue"),
    "on_interrupted a list": (TOP + "on_interrupted = []\n" + CALL, "unknown on_interrupted []"),
    "no calls": (TOP, "no [[call]] found; add at least one"),
    "calls no list": (TOP + "call = 1\n", "no [[call]] found"),
    "call no table": (TOP + "call = [1]\n", "call 1: expected a table, found int"),
    "no tool": (TOP + "[[call]]\n", "call 1: unknown tool None; use bash, write or edit"),
    "unknown tool": (TOP + CALL + '[[call]]\ntool = "rm"\n', "call 2: unknown tool 'rm'"),
    "bash without run": (TOP + '[[call]]\ntool = "bash"\n', "call 1: run is missing"),
    "bash unknown key": (TOP + CALL + 'path = "a"\n', "key 'path'; known are approve, effects, left_behind, policy, run, space, stderr, "),
    "effects unknown": (TOP + CALL + 'effects = "x"\n', "call 1: unknown effects 'x'; use inside, outside"),
    "outside again": (TOP + CALL + 'effects = "outside"\npolicy = "after-restore"\n', "no restore takes back what it did outside"),
    "outside safe": (TOP + CALL + 'effects = "outside"\npolicy = "safe"\n', "no restore takes back what it did outside"),
    "run a number": (TOP + '[[call]]\ntool = "bash"\nrun = 1\n', "call 1: run: expected a string or { b64"),
    "run with NUL": (TOP + '[[call]]\ntool = "bash"\nrun = "a\\u0000b"\n', "call 1: a command may not contain a NUL byte"),
    "bad base64": (TOP + '[[call]]\ntool = "bash"\nrun = { b64 = "?" }\n', 'call 1: run: "?" is not base64'),
    "timeout text": (TOP + CALL + 'timeout_secs = "1"\n', "call 1: timeout_secs must be a positive number of seconds, found '1'"),
    "timeout zero": (TOP + CALL + "timeout_secs = 0\n", "call 1: timeout_secs must be a positive"),
    "timeout true": (TOP + CALL + "timeout_secs = true\n", "call 1: timeout_secs must be a positive"),
    "timeout nan": (TOP + CALL + "timeout_secs = nan\n", "call 1: timeout_secs must be a positive"),
    "stdin a number": (TOP + CALL + "stdin = 1\n", "call 1: stdin: expected a string or { b64"),
    "stderr": (TOP + CALL + 'stderr = "lost"\n', "call 1: stderr must be merged or separate, found 'lost'"),
    "stderr a list": (TOP + CALL + "stderr = []\n", "call 1: stderr must be merged or separate, found []"),
    "policy": (TOP + CALL + 'policy = "yolo"\n', "call 1: unknown policy 'yolo'; use safe, after-restore, never, ask"),
    "write without content": (TOP + '[[call]]\ntool = "write"\npath = "a"\n', "call 1: content is missing"),
    "mode too big": (TOP + '[[call]]\ntool = "write"\npath = "a"\ncontent = ""\nmode = 0o10000\n', "mode must be between 0o0 and 0o7777"),
    "mode negative": (TOP + '[[call]]\ntool = "write"\npath = "a"\ncontent = ""\nmode = -1\n', "mode must be between"),
    "path absolute": (TOP + '[[call]]\ntool = "write"\npath = "/etc/x"\ncontent = ""\n', "must be relative, inside the workspace"),
    "path up": (TOP + '[[call]]\ntool = "write"\npath = "a/../../x"\ncontent = ""\n', "path 'a/../../x' must be relative"),
    "path empty": (TOP + '[[call]]\ntool = "write"\npath = ""\ncontent = ""\n', "must be relative, inside the workspace"),
    "path with NUL": (TOP + '[[call]]\ntool = "write"\npath = "a\\u0000"\ncontent = ""\n', "must be relative, inside the workspace"),
    "edit without new": (TOP + '[[call]]\ntool = "edit"\npath = "a"\nold = "x"\n', "call 1: new is missing"),
    "edit of nothing": (
        TOP + '[[call]]\ntool = "edit"\npath = "a"\nold = ""\nnew = "x"\n',
        "call 1: old is empty; name the text to replace",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_session_file_gives_one_sentence(tmp_path: Path, name: str) -> None:
    content, says = BAD[name]
    file = tmp_path / "session.toml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(MisuseError) as caught:
        load_session(file)
    message = str(caught.value)
    assert says in message and message.startswith(str(file)) and "\n" not in message


@pytest.mark.parametrize(("make", "says"), [(None, "no such file"), ("directory", "is a directory, not a TOML file")])
def test_a_session_file_that_cannot_be_read_gives_one_sentence(tmp_path: Path, make: str | None, says: str) -> None:
    if make:
        (tmp_path / "x.toml").mkdir()
    with pytest.raises(MisuseError, match=says):
        load_session(tmp_path / "x.toml")


def test_the_example_of_the_design_is_read(tmp_path: Path) -> None:
    """Relative places are relative to the file; policies come from the tools."""
    more = '[[call]]\ntool = "write"\npath = "a"\ncontent = "c"\nmode = 0o755\n[[call]]\ntool = "edit"\npath = "a"\nold = "c"\nnew = "d"\n'
    (tmp_path / "s.toml").write_text(TOP + 'mode = "transactional"\n' + CALL + more)
    session = load_session(tmp_path / "s.toml")
    assert (session.workspace, session.state, session.on_interrupted) == (str(tmp_path / "w"), str(tmp_path / "s"), "stop")
    assert session.calls == (
        BashCall(b"true", None, "never"), WriteCall(b"a", b"c", 0o755, "safe"), EditCall(b"a", b"c", b"d", "after-restore"),
    )  # fmt: skip


def test_case_03_bytes_that_are_not_utf_8_are_written_in_base64(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOP + '[[call]]\ntool = "write"\npath = { b64 = "Y2Fm6Q==" }\ncontent = { b64 = "//4=" }\n')
    assert load_session(tmp_path / "s.toml").calls == (WriteCall(b"caf\xe9", b"\xff\xfe"),)


names = st.binary(min_size=1, max_size=8).filter(lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b".."))
policies = st.sampled_from(["safe", "after-restore", "never", "ask"])
calls: st.SearchStrategy[Call] = st.one_of(
    st.builds(BashCall, st.binary().filter(lambda run: b"\0" not in run), st.none() | st.floats(0.001, 1e6), policies),
    st.builds(WriteCall, names, st.binary(), st.none() | st.integers(0, 0o7777), policies),
    st.builds(EditCall, names, st.binary(min_size=1), st.binary(), policies),
)


@settings(deadline=None)
@given(calls)
def test_a_call_survives_the_way_to_json_and_back(call: Call) -> None:
    assert call_from_json(call_to_json(call), "call") == call


@settings(deadline=None)
@given(st.binary())
def test_bytes_survive_the_way_to_json_and_back(data: bytes) -> None:
    assert decode_bytes(encode_bytes(data), "x") == data
