"""The shipped suite of spaces (recovery.space.conformance), run for each space of the project."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from recovery.space import conformance
from recovery.space.conformance.fixtures import space, space_name, subject

__all__ = ["space", "space_name", "subject"]
