"""What a command's digest covers: everything that makes it another command, and nothing that does not."""

from typing import Any

import msgspec
import pytest

from recovery.space.request import CommandRequest, digest_request

REQUEST = CommandRequest("k", [b"bash", b"-c", b"true"], b"/place", [(b"HOME", b"/root"), (b"PATH", b"/bin")], b"in", False, 1.5, "kill")


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": [b"bash", b"-c", b"false"]},
        {"arguments": [b"bash", b"-ctrue"]},
        {"directory": b"/place/"},
        {"environment": [(b"PATH", b"/bin")]},
        {"environment": [(b"HOMEPATH", b"/bin")]},
        {"stdin": b""},
        {"stdin": None},
        {"separate": True},
        {"timeout_secs": None},
        {"timeout_secs": 1.0},
        {"left_behind": "keep"},
    ],
    ids=str,
)
def test_another_command_has_another_digest(change: dict[str, Any]) -> None:
    assert digest_request(msgspec.structs.replace(REQUEST, **change)) != digest_request(REQUEST)


@pytest.mark.parametrize(
    "change",
    [{"key": "l"}, {"environment": [(b"PATH", b"/opt"), (b"HOME", b"/home")]}, {"environment": list(reversed(REQUEST.environment))}],
    ids=str,
)
def test_key_values_and_order_of_the_environment_make_no_other_command(change: dict[str, Any]) -> None:
    assert digest_request(msgspec.structs.replace(REQUEST, **change)) == digest_request(REQUEST)


def test_a_digest_is_the_same_tomorrow() -> None:
    """It stands in ledgers: a change of the encoding would refuse every key that was prepared before."""
    assert digest_request(REQUEST) == "334b7fe2962bb08cae0dcb6b7bbaaf324f7c2bc53456a84a4abfbda20678f10e"
    whole, decimal = (msgspec.structs.replace(REQUEST, timeout_secs=limit) for limit in (1, 1.0))
    assert digest_request(whole) == digest_request(decimal)
