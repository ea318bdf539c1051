"""The runner's side of the zygote protocol (chaos/zygote_client.py): one line in, one answer out, whatever goes wrong in between."""

import sys
import traceback
from collections.abc import Callable

import msgspec

from chaos.results import Recording, TrialResult


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request led to: one of them, or a recording with the results of its trials."""

    recording: Recording | None = None
    result: TrialResult | None = None
    results: tuple[TrialResult, ...] | None = None
    error: str | None = None


def answer_lines(answer: Callable[[bytes], Answer]) -> None:
    """Answer until standard input ends."""
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(_try(answer, line)) + b"\n")
        sys.stdout.buffer.flush()


def _try(answer: Callable[[bytes], Answer], line: bytes) -> Answer:
    try:
        return answer(line)
    except Exception as error:  # noqa: BLE001
        # Trouble in the harness is an answer of its own kind: never a pass, and never a failure of the product.
        traceback.print_exc()
        return Answer(error=f"{type(error).__name__}: {error}")
