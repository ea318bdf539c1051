"""A file of 2 GiB: into a log, verified, exported, imported, compacted, checked out, by processes with 600,000 KiB of address space."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventlog import support

MIB = 1 << 20
MAKE = """
import random, sys
from blake3 import blake3
from eventlog.blobs import encode_content
from eventlog.creation import create_log
from eventlog.image import Entry
from eventlog.ports import RandomIds
from eventlog.values import ContentId
from tests.eventlog import support

def pieces():
    for number in range(int(sys.argv[2])):
        yield random.Random(number).randbytes(1 << 20)

whole = blake3()
for piece in pieces():
    whole.update(piece)
image = {b"": support.IMAGE[b""], b"large": Entry("f", 0o600, ContentId(whole.digest()), int(sys.argv[2]) << 20)}
create_log(sys.argv[1], support.STREAM, support.opened(image=image), encode_content(pieces()), RandomIds())
"""


def under_limit(*arguments: str) -> str:
    """The output of a Python process that has to manage with what the budget names."""
    command = ["bash", "-c", 'ulimit -v 600000 && exec "$@"', "bash", sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=support.ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("mebibytes", [24, pytest.param(2048, marks=pytest.mark.soak, id="2 GiB")])
def test_a_large_file_goes_every_way_in_bounded_memory(tmp_path: Path, mebibytes: int) -> None:
    log, new, bundle, tree = (str(tmp_path / name) for name in ("log.sqlite", "new.sqlite", "a.bundle", "tree"))
    under_limit("-c", MAKE, log, str(mebibytes))
    assert "sound up to its head" in under_limit("-m", "eventlog", "verify", log)
    under_limit("-m", "eventlog", "export", log, "--to", bundle)
    under_limit("-m", "eventlog", "import", new, bundle, "--new")
    os.unlink(bundle)
    under_limit("-m", "eventlog", "compact", new)
    under_limit("-m", "eventlog", "checkout", new, "--at", "head", "--to", tree)
    with open(os.path.join(tree, "large"), "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    assert found == digest_of(mebibytes) and os.path.getsize(os.path.join(tree, "large")) == mebibytes * MIB
    under_limit("-m", "eventlog", "doctor", new)


def digest_of(mebibytes: int) -> str:
    code = "import hashlib, random, sys; whole = hashlib.sha256()\nfor number in range(int(sys.argv[1])):"
    code += " whole.update(random.Random(number).randbytes(1 << 20))\nprint(whole.hexdigest())"
    return under_limit("-c", code, str(mebibytes)).strip()
