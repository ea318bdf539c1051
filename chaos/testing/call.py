"""A Python function as a program of its own: `python call.py PATHS FILE NAME` loads FILE, with PATHS (JSON) to import from, and calls NAME.

A fresh interpreter each time: what a crash leaves in memory is nothing.
"""

import importlib.util
import json
import sys

MODULE = "crash_tested"


def call(paths: str, file: str, name: str) -> None:
    """Load the file as a module, and call its function."""
    sys.path[:0] = json.loads(paths)
    specification = importlib.util.spec_from_file_location(MODULE, file)
    if specification is None or specification.loader is None:
        sys.exit(f"{file} is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[MODULE] = module
    specification.loader.exec_module(module)
    getattr(module, name)()


if __name__ == "__main__":
    call(*sys.argv[1:])
