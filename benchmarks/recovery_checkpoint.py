"""A checkpoint of a workspace of 1,000 files: unchanged, with one file changed, and the first one. Called by `benchmarks.recovery`.

What a commit does of an unchanged workspace in mode checkpoint is measured: a scan, the difference to the head image, the root, and the
look whether the newest checkpoint is one of that image and there. Beside it a bare walk of the tree (scandir and stat), in the same rounds.
"""

import os
from collections.abc import Callable

from benchmarks.measure import Report, interleave
from eventlog.image import diff, root_hash
from eventlog.ports import SystemClock
from recovery.checkpoints.directory import make_store
from recovery.checkpoints.vault import Vault
from recovery.workspace.scan import Scanner

FILES, BYTES = 1000, 16384
UNCHANGED_MS = 10.0
OWNER = "b" * 32


def bench(report: Report, base: str, is_quick: bool) -> None:
    """Print the figures beside their budget."""
    root = os.path.join(base, "tree")
    _make_tree(root)
    vault = Vault(make_store(os.path.join(base, "store")), OWNER, SystemClock())
    scanner = Scanner(root)
    image = scanner.scan().image
    began = SystemClock().monotonic()
    with vault.writing() as writer:
        manifest = vault.take(writer, image, (), root, scanner.kept)
    first_ms = (SystemClock().monotonic() - began) * 1e3
    name = root_hash(image)
    changed = os.path.join(root, "d0", "f0")

    def look() -> None:
        found = scanner.scan(against=image)
        diff(image, found.image)
        assert root_hash(found.image) == name and vault.store.has_manifest(OWNER, manifest)

    def change() -> None:
        with open(changed, "wb") as file:
            file.write(os.urandom(BYTES))
        found = scanner.scan(against=image)
        with vault.writing() as writer:
            vault.take(writer, found.image, (), root, scanner.kept)
        with open(changed, "wb") as file:
            file.write(b"0" * BYTES)

    subjects: dict[str, Callable[[], object]] = {"bare walk": lambda: _walk(root), "checkpoint of it unchanged": look}
    seconds = interleave(subjects, 20 if is_quick else 100)
    report.compare(f"Checkpoint of an unchanged workspace of {FILES} files of {BYTES >> 10} KiB", seconds, "bare walk", {})
    middle = sorted(seconds["checkpoint of it unchanged"])[len(seconds["checkpoint of it unchanged"]) // 2]
    report.figure("checkpoint of an unchanged workspace, p50", middle * 1e3, "ms", UNCHANGED_MS)
    again = interleave({"one changed": change}, 5 if is_quick else 20)
    report.figure("with one file changed, p50", sorted(again["one changed"])[len(again["one changed"]) // 2] * 1e3, "ms")
    report.figure("the first one", first_ms, "ms")


def _make_tree(root: str) -> None:
    for number in range(FILES):
        directory = os.path.join(root, f"d{number % 10}")
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, f"f{number}"), "wb") as file:
            file.write(b"0" * BYTES if not number else os.urandom(BYTES))


def _walk(path: str) -> int:
    count = 0
    with os.scandir(path) as entries:
        for entry in entries:
            entry.stat(follow_symlinks=False)
            count += 1 + (_walk(entry.path) if entry.is_dir(follow_symlinks=False) else 0)
    return count
