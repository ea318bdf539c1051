"""What a session leaves out of its images, and what it tracks beside the rest. Fixed when the session begins, but for the paths that a
person leaves out because they cannot be read.

Patterns are lines of a `.gitignore` at the workspace's root (library `pathspec`): of several that match, the last decides, `!` takes
back, a `/` at the end means directories only. What lies in an excluded directory is never looked at, so that no `!` brings it back, as in
git. `?` is one character, where git means one byte.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from eventlog.errors import MisuseError
from eventlog.events import SessionOpened, Tracked
from eventlog.excludes import excludes_of
from eventlog.show import show_text

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

TRACKS: tuple[str, ...] = get_args(Tracked)
MOST_PATTERNS = 1000
"""Every name that changed is held against every pattern: so many take about 4 ms each."""


class Profile(msgspec.Struct, frozen=True, eq=False):
    """Raises MisuseError for a line that is no pattern: one sentence that names it. `left_out` are the paths that a person excluded while
    the session went on (C5): as little looked at as what a pattern matches, and no part of the name of an image."""

    excludes: tuple[str, ...] = ()
    owners: bool = False
    acls: bool = False
    left_out: frozenset[bytes] = frozenset()
    _compiled: "GitIgnoreSpec | None" = None

    def __post_init__(self) -> None:
        if self.excludes:
            msgspec.structs.force_setattr(self, "_compiled", _compile(self.excludes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Profile) and self._named == other._named

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct has one of its own

    def __hash__(self) -> int:
        return hash(self._named)

    @property
    def _named(self) -> tuple[object, ...]:
        """What names an image."""
        return self.excludes, self.owners, self.acls

    def matches(self, path: bytes, is_directory: bool) -> bool:
        """Whether a path whose parents are not excluded is."""
        if path in self.left_out:
            return True
        if self._compiled is None:
            return False
        text = path.decode("utf-8", "surrogateescape")
        return self._compiled.match_file(text + "/" if is_directory else text)

    @property
    def leaves_out(self) -> bool:
        """Whether anything is excluded, by pattern or by a person."""
        return bool(self.excludes or self.left_out)

    @property
    def track(self) -> list[Tracked]:
        """What is tracked beside the rest, as it stands in events."""
        wanted: list[Tracked] = []
        if self.owners:
            wanted.append("owners")
        if self.acls:
            wanted.append("acls")
        return wanted


def profile_of(opened: SessionOpened) -> Profile:
    """The profile that a session began with. Raises CorruptError, MisuseError."""
    return Profile(excludes_of(opened), "owners" in opened.track, "acls" in opened.track)


def parse_profile(excludes: Any, track: Any, where: str) -> Profile:
    """The profile in the values of `exclude` and `track` of a file or command line named `where`. Raises MisuseError."""
    if not isinstance(excludes, list) or not all(isinstance(line, str) for line in excludes):
        raise MisuseError(f'{where}: exclude must be a list of patterns, such as exclude = ["node_modules/", "*.o"]')
    if not isinstance(track, list) or not all(isinstance(word, str) for word in track):
        raise MisuseError(f'{where}: track must be a list, such as track = ["owners", "acls"]')
    for word in track:
        if word not in TRACKS:
            raise MisuseError(f"{where}: cannot track {show_text(word)!r}; known are {', '.join(TRACKS)}")
    try:
        return Profile(tuple(excludes), "owners" in track, "acls" in track)
    except MisuseError as error:
        raise MisuseError(f"{where}: {error}") from error


def _compile(lines: Sequence[str]) -> "GitIgnoreSpec":
    import pathspec  # only where paths are excluded: it costs a driver without excludes more than all its other imports

    if len(lines) > MOST_PATTERNS:
        raise MisuseError(f"{len(lines)} exclude patterns, {MOST_PATTERNS} are the most; exclude whole directories instead")
    for line in lines:
        if not line.strip():
            raise MisuseError("an exclude pattern is empty; leave it out, or write it as a line of a .gitignore")
        problem = _find_problem(line, pathspec.GitIgnoreSpec.from_lines)
        if problem:
            raise MisuseError(f"the exclude pattern {show_text(line)!r} {problem}; write it as a line of a .gitignore")
    return pathspec.GitIgnoreSpec.from_lines(map(_spell_out, lines))


def _spell_out(line: str) -> str:
    """The pattern of the same meaning that the library does not also take for the directory itself: git's `a/**` is what lies in `a`."""
    if line.endswith("/**"):
        return line + "/*"
    return line + "*/" if line.endswith("/**/") else line


def _find_problem(line: str, read: Callable[[list[str]], "GitIgnoreSpec"]) -> str:
    if any(character in line for character in "\0\n\r"):
        return "holds a NUL or a line break"
    try:
        (pattern,) = read([_spell_out(line)]).patterns or (None,)
    except Exception:  # noqa: BLE001  # the library lets errors of several kinds out, those of `re` among them
        return "is none"
    return "matches nothing" if pattern is None or pattern.include is None else ""


