"""The pointer map of a database with auto_vacuum: which page points to each page. Only giving back free pages reads it (`compact`), so that
its damage would be found long after; SQLite's own check of 3.54 passes over an entry that says nothing.

By https://sqlite.org/fileformat2.html, "Pointer Map or Ptrmap Pages": page 2 is the first, one more follows after every usable/5 pages;
an entry is a type from 1 to 5 and a page number of 4 bytes.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from eventlog import connection
from eventlog.reader import Reader

_ENTRY = 5
_TYPES = frozenset(range(1, 6))
_PENDING_BYTE = 1 << 30
_WAL_HEAD = struct.Struct(">8I")
_FRAME_HEAD = struct.Struct(">6I")


def find_silent_entries(reader: Reader) -> int:
    """How many pages have no entry in the pointer map, as far as it lies in the database file; a page of it that the WAL holds is SQLite's
    concern, which compares that with its checksum. Needs no transaction: once a page has an entry, a commit may change it and never
    empties it.

    Read through SQLite's own layer for files (L6): a descriptor of our own would give up this process's locks when it is closed. Raises as
    a read does.
    """
    if reader.rows("PRAGMA auto_vacuum") == [(0,)]:
        return 0
    count, size = (int(str(reader.rows(f"PRAGMA {name}")[0][0])) for name in ("page_count", "page_size"))
    try:
        in_wal = frozenset(_list_wal_pages(reader.path + "-wal", size))
        with _opened(reader.path, apsw.SQLITE_OPEN_MAIN_DB) as file:
            return sum(_count_silent(file, page, count, size) for page in _map_pages(in_wal, count, size))
    except apsw.Error as error:
        raise connection.translate(error, reader.path, reader.name) from error


@contextmanager
def _opened(path: str, kind: int) -> Iterator[apsw.VFSFile]:
    file = apsw.VFSFile("", connection.name_for_sqlite(path), [kind | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        yield file
    finally:
        file.xClose()


def _map_pages(in_wal: frozenset[int], count: int, size: int) -> Iterator[int]:
    lock_page = _PENDING_BYTE // size + 1
    for page in range(2, count + 1, size // _ENTRY + 1):
        page += page == lock_page
        if page not in in_wal:
            yield page


def _count_silent(file: apsw.VFSFile, page: int, count: int, size: int) -> int:
    behind = file.xFileSize() // size
    if page > behind:
        return 0
    data = file.xRead(size, (page - 1) * size)
    lock_page = _PENDING_BYTE // size + 1
    pages = range(page + 1, min(page + size // _ENTRY, count, behind) + 1)
    return sum(data[(one - page - 1) * _ENTRY] not in _TYPES for one in pages if one != lock_page)


def _list_wal_pages(path: str, size: int) -> Iterator[int]:
    """The pages of which the WAL has a frame since it began anew, whether committed or not."""
    if not os.path.exists(path):
        return
    with _opened(path, apsw.SQLITE_OPEN_WAL) as file:
        head = file.xRead(_WAL_HEAD.size, 0)
        salts = _WAL_HEAD.unpack(head)[4:6] if len(head) == _WAL_HEAD.size else ()
        offset = _WAL_HEAD.size
        while salts and len(frame := file.xRead(_FRAME_HEAD.size, offset)) == _FRAME_HEAD.size:
            page, _, *mine = _FRAME_HEAD.unpack(frame)
            if tuple(mine[:2]) == salts:
                yield page
            offset += _FRAME_HEAD.size + size
