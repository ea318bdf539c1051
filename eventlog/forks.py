"""Handles and forks (case 21). A handle belongs to the process that opened it; a forked child must neither use nor close it.

Closing is not harmless: a child that ends while its parent is inside a transaction rolls "its" transaction back, and with it takes the
parent's uncommitted pages out of the shared WAL index. The parent then commits, and the database is malformed. So a child never gets to
close one: every handle is given a reference there that nothing takes away, and the kernel closes its descriptors when the child ends.
"""

import ctypes
import os
import weakref

import apsw

_handles: "weakref.WeakSet[apsw.Connection]" = weakref.WeakSet()


def keep_from_children(handle: apsw.Connection) -> None:
    """From now on no forked child closes `handle`, whether it ends by an exit, an exception or its interpreter's clean-up."""
    _handles.add(handle)


def _keep_for_ever() -> None:
    for handle in list(_handles):
        # A reference in a module would go when the interpreter clears its modules; this one does not.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


os.register_at_fork(after_in_child=_keep_for_ever)
