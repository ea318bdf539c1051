"""Fixtures of the suite, where it is run by its package."""

from recovery.space.conformance.fixtures import space, space_name, subject

__all__ = ["space", "space_name", "subject"]
