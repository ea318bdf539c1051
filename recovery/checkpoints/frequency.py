"""Whether a commit takes a checkpoint, or leaves the calls since the newest one to be done again if the workspace is lost. Pure (rule C7).

The bound comes first: never are more finished calls without a checkpoint than `lost_work_bound`, 0 by default, which is a checkpoint with
every commit that changes the image. Within it the cost decides: a checkpoint is taken as soon as doing the calls since the newest one again
would take as long as the newest checkpoint took. So the time spent on checkpoints is at most about that spent on work, and what has to be
done again costs at most about one checkpoint more than what was known to be acceptable; and dearer calls never have fewer checkpoints.
What was changed outside any call cannot be done again, so it always has one.
"""

import msgspec


class Since(msgspec.Struct, frozen=True):
    """What no checkpoint has yet, this commit included: finished calls, the time they took; whether anything else changed the image."""

    calls: int
    work_ms: int
    is_outside: bool = False


def should_take(since: Since, bound: int, cost_ms: int) -> bool:
    """Whether this commit takes a checkpoint, which is expected to take `cost_ms`."""
    return since.is_outside or since.calls > bound or since.work_ms >= cost_ms
