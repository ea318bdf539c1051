"""The files of a space in memory: a plain dictionary by path, with symbolic links, and the three changes of the file worker. Pure but for
the dictionary that it is given.

A directory is there while something is in it. Words of a refusal are the file worker's, or the operating system's where that would say it.
"""

from typing import assert_never

import msgspec

from recovery.space.file_request import Delete, Edit, Write

_LINKS_LIMIT = 40


class Link(msgspec.Struct, frozen=True):
    """A symbolic link."""

    target: bytes


Files = dict[bytes, bytes | Link]


class _Refused(Exception):
    """What was asked cannot be, and why."""


def change_file(files: Files, act: Write | Edit | Delete) -> str:
    """Carry it out; why it cannot be, with nothing changed, "" when it was done."""
    try:
        match act:
            case Write(path, content):
                _replace(files, _resolve(files, path), content)
            case Edit(path, old, new):
                _edit(files, _resolve(files, path), old, new)
            case Delete(path):
                _delete(files, _resolve(files, path, follows_last=False))
            case other:
                assert_never(other)
    except _Refused as refusal:
        return f"cannot {act.__struct_config__.tag} {act.path!r}: {refusal}"
    return ""


def _resolve(files: Files, path: bytes, *, follows_last: bool = True) -> bytes:
    """The path with every link in it followed, none of which may lead out (S6)."""
    if not path or path.startswith(b"/"):
        raise _Refused("it must be a path relative to the workspace")
    pending, real, links = path.split(b"/")[::-1], list[bytes](), 0
    while pending:
        name = pending.pop()
        if name == b".." and not real:
            raise _Refused("it leads out of the workspace")
        if name in (b"", b".", b".."):
            del real[len(real) - (name == b"..") :]
            continue
        real.append(name)
        found = files.get(b"/".join(real))
        if isinstance(found, Link) and (pending or follows_last):
            links += 1
            if links > _LINKS_LIMIT or found.target.startswith(b"/"):
                raise _Refused("a link on the way leads out of the workspace, or round in it")
            real.pop()
            pending += found.target.split(b"/")[::-1]
        elif isinstance(found, bytes) and pending:
            raise _Refused("Not a directory")
    if not real:
        raise _Refused("it names the workspace itself")
    return b"/".join(real)


def _is_directory(files: Files, path: bytes) -> bool:
    return any(one.startswith(path + b"/") for one in files)


def _replace(files: Files, path: bytes, content: bytes) -> None:
    if _is_directory(files, path):
        raise _Refused("it is a directory")
    files[path] = content


def _edit(files: Files, path: bytes, old: bytes, new: bytes) -> None:
    content = files.get(path)
    if not isinstance(content, bytes):
        raise _Refused("there is no such file")
    at = content.find(old)
    if not old or at < 0 or content.find(old, at + 1) >= 0:
        raise _Refused("the text to replace is not in it exactly once")
    _replace(files, path, content[:at] + new + content[at + len(old) :])


def _delete(files: Files, path: bytes) -> None:
    if _is_directory(files, path):
        raise _Refused("Directory not empty")
    if files.pop(path, None) is None:
        raise _Refused("No such file or directory")
