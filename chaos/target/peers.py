"""The drivers that are compared: how each is started, what it promises, and where it says so. Pure.

A promise is told in our own words, with its source; `admits` are the kinds of violation that it allows, each with the reason. What a
driver shows beyond them is against its promise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

DBOS_PAGE = "https://docs.dbos.dev/explanations/concurrent-executions"
LANGGRAPH_PAGE = "https://docs.langchain.com/oss/python/langgraph/durable-execution"
LANGGRAPH_MODES = "https://reference.langchain.com/python/langgraph/types/Durability"


@dataclass(frozen=True, slots=True)
class Peer:
    """A driver of the standard workload. `script` is a file of the examples, with `arguments`; `packages` are what it needs in the peers'
    environment, none for what needs no such environment. With `has_children` a kill of its main process alone is another experiment."""

    name: str
    about: str
    script: str
    promise: str
    source: str
    arguments: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    has_children: bool = False
    admits: Mapping[str, str] = field(default_factory=dict)


_REPEATED = "a step whose end was not recorded is run again from its beginning, on top of what the first time left"
_LANGGRAPH = {
    "ran-twice": "a node whose checkpoint was not written runs again: its documentation asks for idempotent nodes",
    "half-applied": "files are not part of the graph's state: a cut node leaves what it wrote, and runs again on top of it",
    "applied-twice": "the same, where the node was cut after its last write and before its checkpoint",
}

PEERS = (
    Peer(
        "journal",
        "a shell script with a journal of its own",
        "journal.sh",
        "A step that stands in the journal is not run again; a cut step is.",
        "docs/examples/targets/journal.sh",
        admits={"ran-twice": _REPEATED, "half-applied": _REPEATED, "applied-twice": _REPEATED},
    ),
    Peer(
        "dbos",
        "DBOS, a workflow of one step each, SQLite",
        "dbos_steps.py",
        "Workflows run to completion; steps run at least once, and not again once their result is recorded.",
        DBOS_PAGE,
        packages=("dbos",),
        admits={
            "ran-twice": "steps run at least once",
            "half-applied": "files are the step's own business: a cut step leaves what it wrote, and runs again on top of it",
            "applied-twice": "the same, where the step was cut after its last write and before its result was recorded",
        },
    ),
    Peer(
        "langgraph-sync",
        "LangGraph, a node each, SQLite checkpointer, durability sync",
        "langgraph_steps.py",
        "State is written before the next node starts; effects of nodes are to be idempotent, since a node may run again.",
        LANGGRAPH_PAGE,
        arguments=("sync",),
        packages=("langgraph", "langgraph-checkpoint-sqlite"),
        admits={
            **_LANGGRAPH,
            "acknowledged-lost": "what a stream of updates shows is no promise: it may be shown before its checkpoint is written",
        },
    ),
    Peer(
        "langgraph-async",
        "LangGraph, a node each, SQLite checkpointer, durability async (its default)",
        "langgraph_steps.py",
        "State is written while the next node runs; effects of nodes are to be idempotent, since a node may run again.",
        LANGGRAPH_MODES,
        arguments=("async",),
        packages=("langgraph", "langgraph-checkpoint-sqlite"),
        admits={
            **_LANGGRAPH,
            "acknowledged-lost": "what a stream of updates shows is no promise: its checkpoint is written while the next node runs",
        },
    ),
    Peer(
        "crashworthy",
        "this engine, a command each, a cut one issued again",
        "engine_steps.py",
        "A finished call took effect in the workspace exactly once, an interrupted one not at all; what a cut command did outside stands.",
        "docs/python-api.md",
        has_children=True,
        admits={"ran-twice": "a cut command may have acted outside the workspace before, and this driver issues it again"},
    ),
)
OWN = PEERS[-1]
