"""The driver's shims: a few processes that own its commands, used again while they are idle.

A shim is idle only once it has said so, which it does after the exit record of its command stands. One that died idle is left out and
another is forked; one that dies with a command is lost (S7), and so is one that is gone before it could be asked.
"""

import select
import socket
from collections.abc import Iterator

import msgspec

from eventlog.process_identity import ProcessIdentity


class ShimLink(msgspec.Struct):
    """One shim: who it is, the driver's end of its socket, its own mark ("" for none), the key it owns ("" while it is idle)."""

    identity: ProcessIdentity
    connection: socket.socket
    mark: str
    key: str = ""


class Shims:
    """The pool of one driver."""

    def __init__(self) -> None:
        self._links: list[ShimLink] = []
        self._dropped: list[ShimLink] = []

    def add(self, link: ShimLink) -> ShimLink:
        self._links.append(link)
        return link

    def find_idle(self) -> ShimLink | None:
        """An idle shim that lives; those that ended meanwhile are left out from now on."""
        for link in [link for link in self._links if not link.key]:
            if not _has_ended(link.connection):
                return link
            self.drop(link)
        return None

    def find_owner(self, key: str) -> ShimLink | None:
        """The shim that owns this key, of those that this driver started."""
        return next((link for link in self._links if link.key == key), None)

    def pids(self) -> set[int]:
        """The processes of all that were not let go."""
        return {link.identity.pid for link in self._links}

    def drop(self, link: ShimLink) -> None:
        """It is not used again: let go of, it ends after what it does."""
        link.connection.close()
        self._links.remove(link)
        self._dropped.append(link)

    def close(self) -> Iterator[ShimLink]:
        """Let all go; every shim that this driver ever had."""
        for link in list(self._links):
            self.drop(link)
        yield from self._dropped


def _has_ended(connection: socket.socket) -> bool:
    """True when the peer is gone: an idle shim says nothing, so that anything to read is its end."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
