"""A running command, as its shim holds it, and how it ended."""

import contextlib
import os
import signal

import msgspec

from eventlog.events import Exit


class Running(msgspec.Struct):
    """A running command: its pid and pidfd, the read ends of its output. `errors` is None where stderr is merged into `output`."""

    pid: int
    descriptor: int
    output: int
    errors: int | None

    def signal(self, number: int) -> None:
        """Signal the process and its group. It leads its own session and is not reaped yet, so neither number can be anybody else's."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        with contextlib.suppress(ProcessLookupError):  # one that left its group
            signal.pidfd_send_signal(self.descriptor, number)

    def reap(self) -> int:
        """The wait status of the ended process."""
        os.close(self.descriptor)
        return os.waitpid(self.pid, 0)[1]

    def end(self, timed_out: bool) -> tuple[Exit, int]:
        """How the ended command ended, and how many processes ended with it that are to be seen nowhere any more."""
        return exit_of(self.reap(), timed_out), 0


def exit_of(status: int, timed_out: bool) -> Exit:
    """Code and signal kept apart; no exit is ever invented (I8, case 33)."""
    if os.WIFSIGNALED(status):
        return Exit("timed_out" if timed_out else "signaled", signal=os.WTERMSIG(status))
    if timed_out:
        return Exit("timed_out", code=os.WEXITSTATUS(status))
    return Exit("exited", code=os.WEXITSTATUS(status))
