"""What code a campaign runs, as one digest: of the engine, and of the harness. Two that are equal did run the same code."""

from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

HOME = Path(__file__).resolve().parent.parent
ENGINE = ("eventlog", "recovery")
HARNESS = ("chaos",)
SUFFIXES = (".py", ".sql")


def digest_engine(engine: Path | None) -> str:
    """The digest of the engine copy, or of the installed one for None."""
    return digest_sources((engine or HOME) / package for package in ENGINE)


def digest_harness() -> str:
    """The digest of this package."""
    return digest_sources(HOME / package for package in HARNESS)


def digest_sources(packages: Iterable[Path]) -> str:
    """The digest of names and contents of all source files of some packages, 16 hex digits."""
    whole = blake3()
    for package in packages:
        for file in sorted(file for file in package.rglob("*") if file.suffix in SUFFIXES):
            content = file.read_bytes()
            whole.update(f"{file.relative_to(package.parent)}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()[:16]
