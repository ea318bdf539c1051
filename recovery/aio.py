"""The asyncio face of a session: the same object, its requests run one after the other by a thread of its own.

    async with open_session_async("state", "work") as session:
        built = await session.do(Session.bash, "make", key="build")

Not a twin: every method of `Session` is reached through `do`. A task that is cancelled while it waits takes nothing back: the call runs on
to its end in the thread, and whoever asks again under its key gets its result. Leaving the block waits for it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from recovery.session import Session, open_session

P = ParamSpec("P")
T = TypeVar("T")


class AsyncSession:
    """A session whose requests are awaited."""

    def __init__(self, session: Session, thread: ThreadPoolExecutor) -> None:
        self._session = session
        self._thread = thread

    async def do(self, method: Callable[Concatenate[Session, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a method of Session, or any function that takes one, in the session's thread; what it returns or raises."""
        return await asyncio.wrap_future(self._thread.submit(method, self._session, *arguments, **named))


@contextlib.asynccontextmanager
async def open_session_async(*arguments: Any, **named: Any) -> AsyncIterator[AsyncSession]:
    """`open_session` with the same arguments, opened, used and closed in one thread; it raises the same errors."""
    with ThreadPoolExecutor(1, thread_name_prefix="session") as thread:

        async def run(work: Callable[[], T]) -> T:
            return await asyncio.wrap_future(thread.submit(work))

        opening = open_session(*arguments, **named)
        session = await run(opening.__enter__)
        try:
            yield AsyncSession(session, thread)
        except BaseException as error:
            kept = error
            if not await run(lambda: opening.__exit__(type(kept), kept, kept.__traceback__)):
                raise
        else:
            await run(lambda: opening.__exit__(None, None, None))
