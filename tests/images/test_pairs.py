"""Any fully tracked tree is put back over any other: a sample here, every ordered pair in the soak.

The seed of the sample is printed with each failure; CRASHWORTHY_PAIRS_SEED changes it.
"""

import itertools
import os
import random
import time
from pathlib import Path

import pytest

from tests.images.stories import FULLY_TRACKED, HUGE, cut_call, differences, digest, remove_trees, replace_command
from tests.recovery.sessions import Sandbox, sandbox_directory
from tests.recovery.workspace.support import make_tree

SEED = int(os.environ.get("CRASHWORTHY_PAIRS_SEED", "1"))
SAMPLE = 6
NAMES = [name for name in FULLY_TRACKED if name not in HUGE and (os.geteuid() == 0 or name != "modes")]
"""`modes` has a file that its own owner may not read, so only root can image it."""
PAIRS = list(itertools.permutations(NAMES, 2))


def put_back(sandbox: Sandbox, wanted: str, present: str) -> None:
    other = sandbox.base / "other"
    make_tree(wanted, str(sandbox.root))
    make_tree(present, str(other))
    before = digest(sandbox.root)
    cut_call(sandbox, replace_command(sandbox, other))
    assert digest(sandbox.root) != before
    sandbox.drive()
    if digest(sandbox.root) != before:
        fresh = sandbox.base / "fresh"
        make_tree(wanted, str(fresh))
        raise AssertionError(f"CRASHWORTHY_PAIRS_SEED={SEED}: {wanted} over {present}\n{differences(sandbox.root, fresh)}")


@pytest.mark.parametrize(("wanted", "present"), random.Random(SEED).sample(PAIRS, SAMPLE))
def test_a_tree_is_put_back_over_another(sandbox: Sandbox, wanted: str, present: str) -> None:
    put_back(sandbox, wanted, present)


@pytest.mark.soak
def test_every_tree_is_put_back_over_every_other() -> None:
    begun = time.monotonic()
    failed = []
    for wanted, present in PAIRS:
        with sandbox_directory() as base:
            sandbox = Sandbox(Path(base))
            sandbox.root.rmdir()
            try:
                put_back(sandbox, wanted, present)
            except AssertionError as error:
                print(error)
                failed.append((wanted, present))
            finally:
                remove_trees(sandbox.root, sandbox.base / "other")
                sandbox.close()
    assert not failed
    print(f"{len(PAIRS)} pairs in {time.monotonic() - begun:.0f} s")
