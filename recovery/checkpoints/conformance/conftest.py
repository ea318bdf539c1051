"""Fixtures of the suite, where it is run by its package."""

from recovery.checkpoints.conformance.fixtures import subject, subject_name

__all__ = ["subject", "subject_name"]
