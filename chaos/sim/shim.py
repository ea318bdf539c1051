"""The owner of one simulated command: starting mark, program, exit record, in the order of `recovery.space.shim` and with its steps."""

from typing import assert_never

from blake3 import blake3

from chaos.sim.ledger import SimLedger
from chaos.sim.process import Process
from chaos.sim.world import World
from eventlog import steps
from eventlog.errors import CrashworthyError
from eventlog.events import Exit
from recovery.space.ledger import Ledger
from recovery.space.memory import Await, Finish, Say
from recovery.space.records import Exited, Start
from recovery.space.request import CommandRequest
from recovery.space.starting import append_start

SIGTERM = 15


def run_shim(world: World, driver: Process, request: CommandRequest, role: str, epoch: int) -> int:
    """The life of a shim; it outlives its driver. Below the floor it starts nothing."""
    steps.enter(role, epoch)
    ledger = SimLedger(world.ledgers)
    identity = world.me.identity
    try:
        append_start(_as_file(ledger), epoch, Start(request.key, identity, request.key, world.durable.clock.now_ms()))
    except CrashworthyError:
        return 1
    me = world.me
    me.has_command = True
    steps.reach("running")
    exit_, output = _execute(world, request)
    me.has_command = False
    steps.reach("ended")
    steps.reach("sweep.before")
    steps.reach("sweep.after")
    world.durable.outputs[request.key] = output
    steps.reach("ledger.exit.before")
    with ledger.transaction() as transaction:
        transaction.append_shared(
            Exited(
                request.key, exit_, identity.boot_id, len(output), len(output), digest=blake3(output).hexdigest(),
                at_ms=world.durable.clock.now_ms(),
            )  # fmt: skip
        )
    steps.reach("idle")
    return 0


def _execute(world: World, request: CommandRequest) -> tuple[Exit, bytes]:
    said: list[bytes] = []
    for act in world.program(request):
        match act:
            case Say(_, data):
                said.append(data)
            case Finish(exit_):
                return exit_, b"".join(said)
            case Await():
                pass
            case other:
                assert_never(other)
        steps.reach("command.act")
    return Exit("exited", code=0), b"".join(said)


def _as_file(ledger: SimLedger) -> Ledger:
    """The ledger in memory where the engine's own functions take the file."""
    stands_in: object = ledger
    return stands_in  # type: ignore[return-value]
