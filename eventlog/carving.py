"""Rows found on the pages of a damaged log, without the trees that lead to them: a lost root or inner page hides every row below it.

Each page is looked at by itself, as SQLite's file format has it: of a leaf its cells, of a cell its record with the pages that it goes on
in. A record is taken for a row of the table whose columns it has the types of. So old versions of pages, and pages that are free by now,
give rows too: harmless, since a log's rows are never changed, and whoever reads what was carved proves each value by the chain or by
its name. Nothing is written but the scratch database.
"""

import itertools
import mmap
import os
import struct
from collections.abc import Iterator, Sequence

import apsw

from eventlog import connection
from eventlog.errors import CorruptError
from eventlog.recovered import TABLES
from eventlog.show import show_text
from eventlog.values import CHUNK_BYTES

PAGE = connection.PAGE_BYTES
FIRST_PAGE_HEADER = 100
FRAME_HEADER = 24
WAL_HEADER = 32
MOST_TIMES = 4
"""Bytes of records that are decoded, in sizes of the files: cells that all claim one chain of pages must not make that square."""

SHORT_STREAM = 6
"""Columns of a stream's row that format 1 wrote, two less than today's."""
TABLE_LEAF, INDEX_LEAF, INDEX_INNER = 0x0D, 0x0A, 0x02
_KINDS = (TABLE_LEAF, INDEX_LEAF, INDEX_INNER)
Value = int | float | str | bytes | None
Page = memoryview


class _NotARecordError(Exception):
    """These bytes are no record that a log has."""


class Pages:
    """Every version of every page in the files: those of today first, by number, then what was written over since."""

    def __init__(self, database: Page, wal: Page) -> None:
        self.bytes = len(database) + len(wal)
        self._today = {at // PAGE + 1: database[at : at + PAGE] for at in range(0, len(database) - PAGE + 1, PAGE)}
        self._older: list[tuple[int, Page]] = []
        step = FRAME_HEADER + PAGE
        for at in range(WAL_HEADER, len(wal) - step + 1, step):
            number, page = int.from_bytes(wal[at : at + 4], "big"), wal[at + FRAME_HEADER : at + step]
            if wal[at + 8 : at + 16] == wal[16:24]:  # of the WAL as it was last begun; what follows is older than the database
                if number in self._today:
                    self._older.append((number, self._today[number]))
                self._today[number] = page
            else:
                self._older.append((number, page))

    def all(self) -> Iterator[tuple[int, Page]]:
        yield from self._today.items()
        yield from self._older

    def today(self, number: int) -> Page:
        """The page of a number. Raises _NotARecordError."""
        try:
            return self._today[number]
        except KeyError as error:
            raise _NotARecordError from error


def carve(copy: str, scratch: str) -> None:
    """Put every row that is found in the files of the private copy of a log into a new database at `scratch`."""
    handle = connection.create_blank(scratch)
    try:
        handle.execute("BEGIN").fetchall()
        for table, columns in TABLES.items():
            unique = ", ".join(_KEYS[table])
            handle.execute(f"CREATE TABLE {table} ({', '.join(columns)}, UNIQUE ({unique}))").fetchall()
        for table, row in _rows(Pages(_view(copy), _view(copy + "-wal"))):
            handle.execute(_INSERT[table], row).fetchall()
        handle.execute("COMMIT").fetchall()
    except apsw.Error as error:
        raise CorruptError(f"{show_text(copy)}: its rows cannot be kept ({error})") from error
    finally:
        handle.close()


def _view(path: str) -> Page:
    """A file's bytes without reading it whole; none of a file that is empty or not there. The map goes with the last view of it."""
    if not os.path.exists(path) or not os.path.getsize(path):
        return memoryview(b"")
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


Row = tuple[str, tuple[Value, ...]]
"""A table and the columns of one of its rows."""


class _Allowance:
    """How many more bytes are decoded."""

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, payload: bytes) -> bytes:
        self.left -= len(payload)
        return payload


def _rows(pages: Pages) -> Iterator[Row]:
    """Each row on each page: those of sound pages first, so that no remains on a damaged one take a row's place."""
    allowance = _Allowance(MOST_TIMES * pages.bytes)
    damaged = []
    for number, page in pages.all():
        start = FIRST_PAGE_HEADER if number == 1 else 0
        kind, count = page[start], int.from_bytes(page[start + 3 : start + 5], "big")
        is_sound = kind in _KINDS and 0 < count <= (PAGE - _first_pointer(start, kind)) // 2
        found = [row for row in _rows_of(page, start, kind, count, pages, allowance) if row is not None] if is_sound else []
        if not found:
            damaged.append((start, page))
        yield from found
    for start, page in damaged:
        yield from max((_rows_without_header(page, start, kind, pages, allowance) for kind in _KINDS), key=len)


def _rows_without_header(page: Page, start: int, kind: int, pages: Pages, allowance: _Allowance) -> list[Row]:
    """The rows of a page whose header says neither what it is nor how many cells it has, read as one of `kind`, as far as that goes: what
    follows the last pointer is the remains of what the page once was."""
    cells = _rows_of(page, start, kind, (PAGE - _first_pointer(start, kind)) // 2, pages, allowance)
    return [row for row in itertools.takewhile(lambda row: row is not None, cells) if row is not None]


def _first_pointer(start: int, kind: int) -> int:
    return start + (12 if kind == INDEX_INNER else 8)


def _rows_of(page: Page, start: int, kind: int, count: int, pages: Pages, allowance: _Allowance) -> Iterator[Row | None]:
    """The row of each cell, None for a cell that has none."""
    first = _first_pointer(start, kind)
    for at in range(first, first + 2 * count, 2):
        if allowance.left < 0:
            return
        cell = int.from_bytes(page[at : at + 2], "big")
        try:
            payload = allowance.take(_payload(page, cell, kind, pages)) if first <= cell < PAGE - 4 else b""
        except _NotARecordError:
            payload = b""
        row = _decode(payload)
        if row is not None and len(row) == SHORT_STREAM:
            row += (None, None)
        table = None if row is None else _table_of(row)
        yield None if row is None or table is None else (table, row)


def _payload(page: Page, at: int, kind: int, pages: Pages) -> bytes:
    """The record of one cell, with what of it lies on other pages. Raises _NotARecordError."""
    at += 4 if kind == INDEX_INNER else 0
    size, at = _varint(page, at)
    if kind == TABLE_LEAF:
        _, at = _varint(page, at)  # the row id
    if not 2 <= size <= pages.bytes:
        raise _NotARecordError
    most = PAGE - 35 if kind == TABLE_LEAF else (PAGE - 12) * 64 // 255 - 23
    if size <= most:
        return _exactly(page, at, size)
    least = (PAGE - 12) * 32 // 255 - 23
    local = least + (size - least) % (PAGE - 4)
    local = local if local <= most else least
    parts, left = [_exactly(page, at, local)], size - local
    following = int.from_bytes(_exactly(page, at + local, 4), "big")
    while left > 0:
        more = pages.today(following)
        parts.append(bytes(more[4 : 4 + min(left, PAGE - 4)]))
        following, left = int.from_bytes(more[:4], "big"), left - len(parts[-1])
    return b"".join(parts)


def _exactly(page: Sequence[int], at: int, size: int) -> bytes:
    found = bytes(page[at : at + size])
    if len(found) != size:
        raise _NotARecordError
    return found


def _varint(data: Sequence[int], at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it. Raises _NotARecordError."""
    value = 0
    for index in range(9):
        if at + index >= len(data):
            raise _NotARecordError
        byte = data[at + index]
        if index == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    raise _NotARecordError


_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def _decode(payload: bytes) -> tuple[Value, ...] | None:
    """The columns of a record; None for what is none."""
    try:
        head, at = _varint(payload, 0)
        serials = []
        while at < head:
            serial, at = _varint(payload, at)
            serials.append(serial)
        if at != head:
            return None
        values = []
        for serial in serials:
            value, at = _value(payload, at, serial)
            values.append(value)
        return tuple(values) if at == len(payload) else None
    except (_NotARecordError, UnicodeDecodeError):
        return None


def _value(payload: bytes, at: int, serial: int) -> tuple[Value, int]:
    """One column and the place behind it. Raises _NotARecordError, UnicodeDecodeError."""
    match serial:
        case 0:
            return None, at
        case 1 | 2 | 3 | 4 | 5 | 6:
            size = _INTEGER_BYTES[serial]
            return int.from_bytes(_exactly(payload, at, size), "big", signed=True), at + size
        case 7:
            return struct.unpack(">d", _exactly(payload, at, 8))[0], at + 8
        case 8 | 9:
            return serial - 8, at
        case _ if serial >= 12:
            size = (serial - 12) // 2
            data = _exactly(payload, at, size)
            return (data.decode("utf-8") if serial % 2 else data), at + size
    raise _NotARecordError


_SHAPES = {
    "tibititbb": "event",
    "tiibttiBiBBBIIBi": "image_change",
    "btib": "blob",
    "biti": "dropped",
    "tt": "meta",
    "tTIiibTT": "stream",
}
"""The types of each table's columns: text, integer, bytes; a capital for one that may be NULL."""
_CODECS = ("raw", "zstd", "chunks")
_META = ("format", "log_id", "salvaged_from")


def _table_of(row: tuple[Value, ...]) -> str | None:
    """The table whose row this can be."""
    for shape, table in _SHAPES.items():
        if len(shape) == len(row) and all(_is_of(kind, value) for kind, value in zip(shape, row, strict=True)):
            return table if _is_plausible(table, row) else None
    return None


def _is_of(kind: str, value: Value) -> bool:
    if value is None:
        return kind.isupper()
    return isinstance(value, {"t": str, "i": int, "b": bytes}[kind.lower()])


def _is_plausible(table: str, row: tuple[Value, ...]) -> bool:
    """Whether the row can be one that a log has: of two tables of one shape, and of what looks like a row by chance, no more is known."""
    sizes = {at: len(value) for at, value in enumerate(row) if isinstance(value, bytes | str)}
    match table:
        case "event":
            return (sizes[2], sizes[7], sizes[8]) == (16, 32, 32)
        case "blob":
            return sizes[0] == 32 and row[1] in _CODECS and sizes[3] <= 2 * CHUNK_BYTES
        case "image_change":
            return row[4] in ("put", "del", "times")
        case "dropped":
            return sizes[0] == 32
        case "meta":
            return row[0] in _META
        case "stream":
            return sizes[5] == 32
        case _:
            return True


_KEYS = {
    "meta": ("key",),
    "stream": ("id",),
    "event": ("stream", "seq"),
    "image_change": ("stream", "seq", "idx"),
    "blob": ("hash",),
    "dropped": ("hash",),
}
_INSERT = {
    **{table: f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(columns))})" for table, columns in TABLES.items()},
    # Of the versions of a stream's row the newest; a log's other rows never change.
    "stream": f"INSERT INTO stream VALUES ({', '.join('?' * len(TABLES['stream']))}) ON CONFLICT (id) DO UPDATE SET"
    f" {', '.join(f'{name} = excluded.{name}' for name in TABLES['stream'])} WHERE excluded.head_seq > head_seq",
}
