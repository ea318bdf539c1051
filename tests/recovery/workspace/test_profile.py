"""What a profile excludes, held against git, and scans under one."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from eventlog.errors import MisuseError
from eventlog.image import root_hash
from recovery.workspace.profile import MOST_PATTERNS, Profile, parse_profile
from recovery.workspace.scan import Scanner, scan
from recovery.workspace.side import RESERVED_NAME
from tests.recovery.workspace.support import Space

PATTERNS = [
    "a", "*.o", "!b.o", "/a", "a/b", "b/", "!a/", "?", "*/b", "/c/*", "!c/a", "*", "a*/", "c/**", "**/a", "a/**/b", "!c/b/", "[ab]", "!*/",
    "ab/**", "\\!x", "a\\*", "!ab/b.o", "c/**/", "caf*",
]  # fmt: skip
NAMES = ("a", "b", "c", "b.o", "a.o", "ab", "!x", "café")


def make_tree(root: Path) -> None:
    """Every name of NAMES as a file somewhere and as a directory somewhere else."""
    for above in ("c", "ab", "c/b", "ab/a"):
        for name in NAMES:
            full = root / above / name
            full.parent.mkdir(parents=True, exist_ok=True)
            if not full.exists() and (above, name) not in (("c", "b"), ("ab", "a")):
                full.touch()


@pytest.mark.parametrize("seed", range(60))
def test_the_scanner_leaves_out_what_git_leaves_out(space: Space, seed: int) -> None:
    chosen = random.Random(seed)
    lines = [chosen.choice(PATTERNS) for _ in range(chosen.randint(1, 5))]
    root = Path(space.root)
    make_tree(root)
    excludes = Path(space.base) / "excludes"
    excludes.write_text("\n".join(lines) + "\n")
    command = ["git", "-C", space.root, "ls-files", "-z", "--others", f"--exclude-from={excludes}"]
    environment = {**os.environ, "GIT_DIR": os.path.join(space.base, "git"), "GIT_WORK_TREE": space.root}
    try:
        subprocess.run(["git", "init", "-q"], env=environment, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("git is not here")
    kept = {path for path in subprocess.run(command, env=environment, check=True, capture_output=True).stdout.split(b"\0") if path}
    image = scan(space.root, side_directory_name=RESERVED_NAME, profile=Profile(tuple(lines))).image
    assert {path for path, entry in image.items() if entry.kind == "f"} == kept, lines


def test_bytes_that_are_not_utf_8_match(space: Space) -> None:
    for name in (b"\xff1", b"\xff2", b"\xfe"):
        Path(os.fsdecode(os.fsencode(space.root) + b"/" + name)).touch()
    image = scan(space.root, side_directory_name=RESERVED_NAME, profile=Profile((os.fsdecode(b"\xff*"),))).image
    assert sorted(image) == [b"", b"\xfe"]


def test_a_scan_that_remembers_finds_the_excluded_again_and_loads_them(space: Space) -> None:
    space.write("d/node_modules/m")
    space.write("e/f.o")
    space.write("e/f")
    profile = Profile(("node_modules/", "*.o"))
    cache = space.base + "/scan.cache"
    scanner = Scanner(space.root, profile, cache_path=cache, boot_id="boot")
    first = scanner.scan()
    assert first.excluded == (b"d/node_modules", b"e/f.o") and sorted(first.image) == [b"", b"e", b"e/f"]
    assert scanner.scan() == first
    scanner.save()
    again = Scanner(space.root, profile, cache_path=cache, boot_id="boot")
    assert again.scan() == first
    other = Scanner(space.root, cache_path=cache, boot_id="boot")
    assert other.scan().image == scan(space.root, side_directory_name=RESERVED_NAME).image
    os.rename(space.at("e/f"), space.at("e/g.o"))
    assert scanner.scan().excluded == (b"d/node_modules", b"e/f.o", b"e/g.o")


def test_a_directory_with_only_excluded_content_is_there_where_the_image_before_has_it(space: Space) -> None:
    space.write("d/e/node_modules/m")
    space.write("d/node_modules/m")
    scanner = Scanner(space.root, Profile(("node_modules",)))
    whole = scan(space.root, side_directory_name=RESERVED_NAME).image
    for wanted in ([b""], [b"", b"d"], [b"", b"d", b"d/e"]):
        before = {path: whole[path] for path in wanted}
        found = scanner.scan(against=before).image
        assert sorted(found) == wanted
        assert root_hash(found) == root_hash(dict(found))
    space.write("d/e/f")
    assert sorted(scanner.scan().image) == [b"", b"d", b"d/e", b"d/e/f"]


def test_too_many_patterns_are_refused() -> None:
    with pytest.raises(MisuseError, match="1001 exclude patterns"):
        Profile(tuple(f"a{number}" for number in range(MOST_PATTERNS + 1)))


@pytest.mark.parametrize("line", ["!", "[z-a]", "# a", "a\nb", "a\0"])
def test_what_is_no_pattern_is_one_sentence_that_names_it(line: str) -> None:
    with pytest.raises(MisuseError, match=r"f\.toml: the exclude pattern '.*' .*; write it as a line of a \.gitignore$"):
        parse_profile(["*.o", line], [], "f.toml")


@pytest.mark.parametrize("line", ["", "  "])
def test_an_empty_pattern_is_refused(line: str) -> None:
    with pytest.raises(MisuseError, match=r"f\.toml: an exclude pattern is empty; leave it out"):
        parse_profile(["*.o", line], [], "f.toml")
