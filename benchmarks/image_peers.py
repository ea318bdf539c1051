"""git, restic and borg doing the nearest thing to an image and to a rebuild, as commands. One that is missing is named.

Each gets a fresh repository for every round; making it is not measured. Passwords are fixed words: nothing here is worth hiding.
"""

import os
import shutil
import subprocess
from collections.abc import Callable

ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@example.invalid",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@example.invalid",
    "RESTIC_PASSWORD": "bench",
    "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
    "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes",
}


def run(*command: str, where: str | None = None, base: str | None = None) -> bytes:
    """Run a peer to its end; its caches lie below `base`."""
    places = {"XDG_CACHE_HOME": f"{base}/cache", "BORG_BASE_DIR": f"{base}/borg", "HOME": base} if base else {}
    done = subprocess.run(command, cwd=where, env={**os.environ, **ENVIRONMENT, **places}, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} {command[1]} failed: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return done.stdout


class Peer:
    """`prepare(base)` makes an empty repository below `base`, `store` images `root` into it, `rebuild` writes it out below `target`."""

    def __init__(self, name: str, prepare: Callable[[str], object], store: Callable[[str, str], object],
                 rebuild: Callable[[str, str], object]) -> None:  # fmt: skip
        self.name, self.prepare, self.store, self.rebuild = name, prepare, store, rebuild


def git(base: str, root: str, *words: str) -> bytes:
    return run("git", f"--git-dir={base}/repo.git", f"--work-tree={root}", *words, where=root, base=base)


def _git_rebuild(base: str, target: str) -> None:
    git(base, target, "checkout-index", "--all", "--force")


PEERS = (
    Peer(
        "git",
        lambda base: run("git", "init", "--quiet", "--bare", f"{base}/repo.git", base=base),
        lambda base, root: git(base, root, "add", "--all"),
        _git_rebuild,
    ),
    Peer(
        "restic",
        lambda base: run("restic", "-q", "-r", f"{base}/repo", "init", base=base),
        lambda base, root: run("restic", "-q", "-r", f"{base}/repo", "backup", ".", where=root, base=base),
        lambda base, target: run("restic", "-q", "-r", f"{base}/repo", "restore", "latest", "--target", target, base=base),
    ),
    Peer(
        "borg",
        lambda base: run("borg", "init", "--encryption=none", f"{base}/repo", base=base),
        lambda base, root: run("borg", "create", f"{base}/repo::one", ".", where=root, base=base),
        lambda base, target: run("borg", "extract", f"{base}/repo::one", where=target, base=base),
    ),
)
STORES = {"git": "git add", "restic": "restic backup", "borg": "borg create"}
REBUILDS = {"git": "git checkout-index", "restic": "restic restore", "borg": "borg extract"}


def find_peers() -> tuple[list[Peer], dict[str, str]]:
    """The peers that are here, and a word about each that is not."""
    here = [peer for peer in PEERS if shutil.which(peer.name)]
    missing = {peer.name: "unavailable: not installed; `make bench-peers` as root installs it" for peer in PEERS if peer not in here}
    return here, missing
