"""What a session's calls come to without any engine, the reference of its trials: each done once, in order, by the simulated shell."""

from dataclasses import dataclass, field

from chaos.oracle.values import Exit, Listing
from chaos.sim.evidence import list_tree
from chaos.sim.shell import run_lines
from chaos.sim.tree import FILE_MODE, Node, Tree
from chaos.sim.workloads import Workload
from recovery.script import BashCall, EditCall, WriteCall
from recovery.space.memory import Finish, Say


@dataclass(slots=True)
class Plain:
    """A workspace without a session, and what commands printed and how they ended, by their place in the script."""

    tree: Tree = field(default_factory=Tree)
    witness: bytearray = field(default_factory=bytearray)
    outputs: dict[int, bytes] = field(default_factory=dict)
    exits: dict[int, Exit] = field(default_factory=dict)

    def now_ns(self) -> int:
        """Times are not compared."""
        return 0

    @property
    def listing(self) -> Listing:
        """The workspace as the oracle compares it."""
        return list_tree(self.tree)


def run_plainly(workload: Workload) -> Plain:
    """Run a workload's calls."""
    plain = Plain()
    for index, call in enumerate(workload.calls):
        match call:
            case BashCall(run=run):
                _run_command(plain, index, run)
            case WriteCall(path=path, content=content):
                _put(plain.tree, path, content)
            case EditCall(path=path, old=old, new=new):
                found = plain.tree.nodes.get(path)
                if found is not None and found.content is not None and found.content.count(old) == 1:
                    _put(plain.tree, path, found.content.replace(old, new))
    return plain


def _run_command(plain: Plain, index: int, run: bytes) -> None:
    said: list[bytes] = []
    for act in run_lines(plain, run, f"plain/{index}"):
        match act:
            case Say(_, data):
                said.append(data)
            case Finish(exit_):
                plain.exits[index] = Exit(exit_.kind, exit_.code, exit_.signal)
            case _:
                pass
    plain.outputs[index] = b"".join(said)


def _put(tree: Tree, path: bytes, content: bytes) -> None:
    known = tree.nodes.get(path)
    tree.put(path, Node(FILE_MODE if known is None else known.mode, content))
