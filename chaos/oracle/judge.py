"""Start the oracle: `python -I -S judge.py --path DIR [--path DIR ...] [--once FILE]`.

Each DIR is appended to `sys.path` and has to hold blake3 and zstandard. Without `--once` the program answers one JSON request
per line of stdin with one JSON line on stdout until end of file (requests: `server.py`, `request.py`). With `--once FILE` it
answers the one request in FILE and exits 0 pass, 1 fail, 2 unknown; 254 means wrong usage.

The sibling modules import each other relatively, so that tests and mypy can see them as `chaos.oracle.*`; run by path they are
loaded here as a package of their own, found by its place alone. Neither the project's root nor `chaos/` ever gets on
`sys.path`: the oracle cannot import project code, not even by accident.
"""

import importlib
import importlib.util
import os
import sys
from types import ModuleType

PACKAGE = "crashworthy_oracle"
USAGE = "usage: judge.py --path DIR [--path DIR ...] [--once FILE]"
EXIT_USAGE = 254


class UsageError(Exception):
    """The command line cannot be understood."""


def parse_arguments(arguments: list[str]) -> tuple[list[str], str | None]:
    """Give the library directories and the request file (None: serve). Raises UsageError."""
    directories: list[str] = []
    once: str | None = None
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        if option not in ("--path", "--once") or not rest:
            raise UsageError(f"{option} is unknown or lacks its value")
        if option == "--path":
            directories.append(rest.pop(0))
        else:
            once = rest.pop(0)
    return directories, once


def load_package(directory: str) -> None:
    """Make the modules of `directory` importable as the package PACKAGE, without a search of `sys.path`."""
    specification = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(directory, "__init__.py"), submodule_search_locations=[directory]
    )
    if specification is None or specification.loader is None:
        raise ImportError(f"{directory} holds no package")
    package: ModuleType = importlib.util.module_from_spec(specification)
    sys.modules[PACKAGE] = package
    specification.loader.exec_module(package)


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code."""
    try:
        directories, once = parse_arguments(arguments)
    except UsageError as error:
        print(f"judge.py: {error}\n{USAGE}", file=sys.stderr)
        return EXIT_USAGE
    sys.dont_write_bytecode = True  # a judge leaves nothing behind in the tree of what it judges
    sys.path.extend(directories)
    load_package(os.path.dirname(os.path.abspath(__file__)))
    server = importlib.import_module(f"{PACKAGE}.server")
    if once is None:
        return int(server.serve(sys.stdin.buffer, sys.stdout.buffer))
    return int(server.answer_once(once, sys.stdout))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
