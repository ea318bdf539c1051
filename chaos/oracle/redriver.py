"""Oracle `redriver`: every driver that a redriver began is on its count, once, whatever killed redriver and drivers in between (case 26).

One start too many may be counted (killed between the count and the start, a redriver leaves a process that ends unused), none too few: a
session whose call kills its drivers would be driven for ever.
"""

from .evidence import Evidence, known
from .values import Finding, failed, passed


def judge_redriver(evidence: Evidence) -> Finding | None:
    """Starts are counted in order, each epoch and each process once, and no driver was begun uncounted. Left out where nobody redrove."""
    found = known(evidence.redriven)
    if found is None:
        return None
    for before, after in zip(found.counted, found.counted[1:], strict=False):
        if after.epoch <= before.epoch or after.number != before.number + 1:
            return failed(
                f"start {after.number} under epoch {after.epoch} is counted after start {before.number} under epoch {before.epoch}"
            )
    drivers = [one.driver for one in found.counted]
    for one in found.counted:
        if drivers.count(one.driver) > 1:
            return failed(f"the process of epoch {one.epoch} is counted as {drivers.count(one.driver)} starts", found=str(one.driver))
    uncounted = sorted(found.begun - {one.epoch for one in found.counted})
    if uncounted:
        return failed(f"the driver of epoch {uncounted[0]} was begun and is not counted")
    return passed(f"{len(found.counted)} starts counted, {len(found.begun)} drivers begun")
