"""What a space on a `cua-spacesd` can do, judged by what the daemon says of itself at opening, and what it cannot, by name. Pure.

recovery/README, "A space on cua-spacesd", has the same table.
"""

from eventlog.errors import MisuseError
from recovery.space.cua_client import Probe
from recovery.space.port import CAPABILITIES, Capability

NEEDED = ("ProcessService/AdvanceEpoch", "ProcessService/GetExecRecord", "ProcessService/SignalProcess")
LEDGER_FEATURE = "process.exec_ledger"
KNOWN_PROTOCOL = (1, 13)
"""The protocol (version, revision) whose behaviour the list below was seen under."""

PROMISED: frozenset[Capability] = frozenset({"durable", "stderr apart", "time limit", "live output", "no epoch gap"})

UNAVAILABLE: dict[str, str] = {
    "claim": "an advance kills whatever runs under an older epoch; a running key to claim is refused, and nothing is changed",
    "standard input": "the daemon takes it from its client while the command runs, so that a client that dies leaves it cut; refused",
    "start marks": "the daemon's own mark precedes its fork, so that what it never forked is told as lost",
    "proves death": "an advance kills process groups: what left its group lives on, unseen",
    "left behind": "what a command leaves running is neither found nor ended, and `fail` is refused",
    "file changes": "there is no file worker and no workspace under the epoch: `change` is refused; a command may write",
    "survives its server": "a command whose daemon ends goes on unwatched: it is lost, and an advance is FenceIncomplete until a person "
    "says that it is dead",
    "order of merged streams": "the daemon reads both streams apart: each is in order, between them the order may differ",
    "all output": "what nobody followed is kept for 10 minutes and 256 ended processes, its last 8 MiB; after that the last 64 KiB of "
    "both streams",
    "exact environment": "a command has the daemon's own variables beside those of its request",
    "bytes": "arguments, directory and environment have to be UTF-8; refused otherwise",
    "fence against others": "digest, bounds of epochs and keys are checked by the record of this space: a client that asks the daemon "
    "directly passes by them, but not by the daemon's own epoch",
    "workspace": "no holder, root identity or workspace under the epoch: commands only, no session",
}
"""Each name with what is so instead."""


def judge_probe(probe: Probe, name: str) -> frozenset[Capability]:
    """The capabilities of a space on this daemon. Raises MisuseError, before anything is asked to run, when it has no ledger of keyed
    commands or cannot advance epochs, or speaks an older protocol than is known here."""
    lacking = [method for method in NEEDED if method not in probe.methods]
    if LEDGER_FEATURE not in probe.features:
        lacking.insert(0, LEDGER_FEATURE)
    if lacking:
        raise MisuseError(
            f"{name} (version {probe.version}) cannot be a space: it has no {', no '.join(lacking)}; use cua-spacesd 0.8 or newer"
        )
    if probe.protocol < KNOWN_PROTOCOL or probe.protocol[0] != KNOWN_PROTOCOL[0]:
        found, known = (".".join(map(str, one)) for one in (probe.protocol, KNOWN_PROTOCOL))
        raise MisuseError(f"{name} (version {probe.version}) speaks protocol {found}, and {known} is known here; use cua-spacesd 0.8")
    return PROMISED


def list_unavailable(capabilities: frozenset[Capability]) -> dict[str, str]:
    """What a space with these capabilities cannot do, each with what is so instead."""
    return {name: text for name, text in UNAVAILABLE.items() if name not in CAPABILITIES or name not in capabilities}
