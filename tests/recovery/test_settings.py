"""The driver contract's environment: parsed once, every mistake named by its variable."""

import pytest

from eventlog.errors import MisuseError
from recovery.settings import DEFAULT_HEARTBEAT_SECS, DEFAULT_LOCK_SECS, read_settings


def test_an_empty_environment_says_nothing() -> None:
    settings = read_settings({})
    assert (settings.state, settings.name, settings.workspace, settings.epoch, settings.kill_mark) == ("", "", "", None, "auto")
    assert settings.heartbeat_secs == DEFAULT_HEARTBEAT_SECS == 30
    assert settings.lock_secs == DEFAULT_LOCK_SECS == 5
    assert not settings.allow_network and not settings.container_ends_all
    assert (settings.left_behind, settings.silent_secs) == ("", 60)


def test_every_variable_of_the_contract_is_read() -> None:
    settings = read_settings(
        {
            "SESSION_STATE_DIR": "/s",
            "SESSION_NAME": "n",
            "SESSION_WORKSPACE": "/w",
            "SESSION_EPOCH": "7",
            "SESSION_HEARTBEAT_SECS": "0.5",
            "SESSION_LOCK_SECS": "0.25",
            "SESSION_KILL_MARK": "environment",
            "SESSION_HINTS": "watch",
            "SESSION_LEFT_BEHIND": "keep",
            "SESSION_SILENT_SECS": "2.5",
            "SESSION_CONTAINER_ENDS_ALL": "1",
            "SESSION_HOLDERS_DIR": "/h",
            "SESSION_ALLOW_NETWORK_FILESYSTEM": "1",
        }
    )
    assert (settings.state, settings.name, settings.workspace, settings.epoch) == ("/s", "n", "/w", 7)
    assert (settings.heartbeat_secs, settings.lock_secs, settings.kill_mark) == (0.5, 0.25, "environment")
    assert (settings.left_behind, settings.silent_secs, settings.container_ends_all) == ("keep", 2.5, True)
    assert (settings.hints, settings.holders, settings.allow_network) == ("watch", "/h", True)


def test_unknown_hints_are_refused_by_name() -> None:
    assert read_settings({}).hints == "full"
    with pytest.raises(MisuseError, match="SESSION_HINTS='sometimes' is none of full, watch"):
        read_settings({"SESSION_HINTS": "sometimes"})


def test_the_state_directory_of_a_job_is_used_when_none_is_given() -> None:
    assert read_settings({"SESSION_JOB_DATA": "/job"}).state == "/job/session"
    assert read_settings({"SESSION_JOB_DATA": "/job", "SESSION_STATE_DIR": "/s"}).state == "/s"


def test_rule_S1_holders_stand_under_the_persons_state_directory() -> None:
    assert read_settings({"HOME": "/people/me"}).holders == "/people/me/.local/state/crashworthy/holders"
    assert read_settings({"HOME": "/x", "XDG_STATE_HOME": "/state"}).holders == "/state/crashworthy/holders"


def test_commands_get_the_environment_without_the_contracts_variables() -> None:
    """A command must not take the session's place in the contract, nor meet the harness."""
    found = read_settings({"PATH": "/bin", "SESSION_EPOCH": "1", "CRASHWORTHY_STEP_SOCKET": "/x", "SESSIONS": "kept"}).command_environment
    assert found == {"PATH": "/bin", "SESSIONS": "kept"}


@pytest.mark.parametrize("text", ["0", "-1", "one", "1.0", " 1", "\u0661", str((1 << 53) - (1 << 20))])
def test_a_bad_epoch_is_named(text: str) -> None:
    with pytest.raises(MisuseError, match="SESSION_EPOCH=.* is not a number from 1 to 9007199253692415; unset it"):
        read_settings({"SESSION_EPOCH": text})


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "1e9"])
@pytest.mark.parametrize("name", ["SESSION_HEARTBEAT_SECS", "SESSION_LOCK_SECS"])
def test_a_bad_number_of_seconds_is_named(name: str, text: str) -> None:
    with pytest.raises(MisuseError, match=f"{name}=.* is not a number of seconds above 0"):
        read_settings({name: text})
