"""The area of a campaign: gone at its end, and swept by the next one when the campaign was killed."""

import os
import subprocess
from pathlib import Path

from chaos.area import open_area

TMPFS = "tmpfs {} tmpfs rw 0 0\n"


def test_an_area_is_gone_at_the_end(tmp_path: Path) -> None:
    with open_area(tmp_path, tmp_path / "no-mounts") as area:
        (area / "trial").mkdir()
        assert area.is_dir()
    assert not area.exists()


def test_the_area_of_a_killed_campaign_is_swept_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    memory = tmp_path / "memory"
    memory.mkdir()
    mounts.write_text(TMPFS.format(memory), "utf-8")
    ended = subprocess.Popen(["true"])
    ended.wait()
    killed, living = memory / f"chaos-{ended.pid}-abc", memory / f"chaos-{os.getpid()}-abc"
    (killed / "trial").mkdir(parents=True)
    living.mkdir()
    with open_area(memory, mounts):
        assert living.is_dir() and not killed.exists()
