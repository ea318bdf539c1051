"""`chaos compare`: the standard workload on several drivers, each a campaign of its own, and the table of what they violated."""

import datetime
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from chaos.console import ExitCode, check_target, write_file, write_json
from chaos.results import TrialResult
from chaos.syscalls.available import find_lack
from chaos.syscalls.level import STEP, SYSCALL
from chaos.target.peers import OWN, PEERS, Peer
from chaos.target.table import Comparison, Row, find_unadmitted, make_row, render_page, render_text
from eventlog.errors import MisuseError

HOME = Path(__file__).resolve().parents[2]
EXAMPLES = HOME / "docs" / "examples" / "targets"
PEERS_PYTHON = HOME / ".venv-peers" / "bin" / "python"
INSTALL = "make peers-target installs it"
VERSIONS_SECS = 120
PATIENCE = "600s"
"""How long one start may take: peers load for seconds, and under strace, on a busy machine, for minutes."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be compared, checked."""

    peers: tuple[Peer, ...]
    python: Path
    steps: int
    runs: int
    seed: int
    jobs: int
    out: Path
    lack: str


def compare(
    driver: Annotated[list[str] | None, typer.Option(metavar="NAME", help="only this driver; again for more")] = None,
    steps: Annotated[int, typer.Option(metavar="N", help="steps of the workload")] = 2,
    runs: Annotated[int, typer.Option(metavar="N", help="kills in system calls, for each driver")] = 12,
    seed: Annotated[int, typer.Option(metavar="N", help="which system calls")] = 1,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="trials at once; two per core when absent")] = None,
    peers: Annotated[str, typer.Option(metavar="PYTHON", help="the interpreter of the peers' environment")] = str(PEERS_PYTHON),
    out: Annotated[str, typer.Option(metavar="DIR", help="where the run directories go, new or empty")] = "chaos-runs/compare",
    json: Annotated[str, typer.Option(metavar="F", help="also write the table to F as JSON; - prints only that")] = "",
    page: Annotated[str, typer.Option(metavar="F", help="also write the table to F as a page of the documentation")] = "",
) -> int:
    """Kill several drivers of one workload at the same instants, and count what they violated."""
    plan = _check(driver or [], steps, runs, seed, jobs or 2 * (os.cpu_count() or 1), Path(peers), Path(out))
    for option, file in (("--json", json if json != "-" else ""), ("--page", page)):
        if file:
            check_target(option, file)
    rows = []
    for row in _run_all(plan):
        rows.append(row)
        if json != "-":
            print(f"{row.driver} {row.level} {row.kill}: {row.lack or f'{row.kills} kills'}", flush=True)
    found = Comparison(datetime.date.today().isoformat(), plan.steps, plan.seed, platform.python_version(), tuple(rows))
    if json != "-":
        print("\n".join(render_text(found)))
    if json:
        write_json(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n", json)
    if page:
        write_file("--page", render_page(found), page)
    return _conclude(rows)


def _conclude(rows: list[Row]) -> ExitCode:
    """Fail when this engine breaks its own promise; unknown when a trial of any driver that is here could not be judged."""
    if any(find_unadmitted(row) for row in rows if row.driver == OWN.name):
        return ExitCode.FAIL
    return ExitCode.UNKNOWN if any(row.unknown for row in rows) else ExitCode.PASS


def _check(driver: list[str], steps: int, runs: int, seed: int, jobs: int, python: Path, out: Path) -> _Plan:
    known = {peer.name: peer for peer in PEERS}
    for name in driver:
        if name not in known:
            raise MisuseError(f"--driver {name!r} is none; there are {', '.join(known)}")
    for option, value in (("steps", steps), ("runs", runs), ("jobs", jobs)):
        if value < 1:
            raise MisuseError(f"--{option} {value} must be at least 1")
    if not EXAMPLES.is_dir():
        raise MisuseError(f"{EXAMPLES}: there are no examples; run chaos compare from a clone of the project")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MisuseError(f"{out}: is not empty; give --out a new directory")
    chosen = tuple(known[name] for name in dict.fromkeys(driver)) or PEERS
    return _Plan(chosen, python, steps, runs, seed, jobs, out.absolute(), find_lack())


def _run_all(plan: _Plan) -> Iterator[Row]:
    for peer in plan.peers:
        versions, lack = _find_versions(peer, plan.python)
        for level, kill in ((STEP, "tree"), *(((STEP, "main"),) if peer.has_children else ()), (SYSCALL, "tree")):
            missing = lack or (plan.lack if level == SYSCALL else "")
            if missing:
                yield Row(peer.name, level, kill, versions=dict(versions), lack=missing)
            else:
                yield make_row(peer, level, kill, versions, _run(plan, peer, level, kill))


def _find_versions(peer: Peer, python: Path) -> tuple[Mapping[str, str], str]:
    """The versions of what a peer needs, and what is missing."""
    if not peer.packages:
        return {}, ""
    if not python.exists():
        return {}, f"there is no {python.name} of the peers' environment; {INSTALL}"
    script = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
    done = subprocess.run(
        [str(python), "-I", "-c", script, *peer.packages], capture_output=True, text=True, timeout=VERSIONS_SECS, check=False
    )  # fmt: skip
    if done.returncode:
        return {}, f"{', '.join(peer.packages)} is not in the peers' environment; {INSTALL}"
    return dict(zip(peer.packages, done.stdout.split(), strict=True)), ""


def _run(plan: _Plan, peer: Peer, level: str, kill: str) -> list[TrialResult]:
    """One campaign, as a person would start it. MisuseError in its own words when it cannot be run."""
    script = str(EXAMPLES / peer.script)
    python = str(plan.python if peer.packages else sys.executable)
    target = shlex.join([*(["sh"] if script.endswith(".sh") else [python]), script, *peer.arguments])
    run = plan.out / f"{peer.name}-{level}-{kill}"
    words = ["--target", target, "--workload", str(plan.steps), "--level", level, "--kill", kill, "--seed", str(plan.seed)]
    words += ["--patience", PATIENCE]
    words += ["--jobs", str(plan.jobs), "--out", str(run), *(["--runs", str(plan.runs)] if level == SYSCALL else ["--depth", "1"])]
    done = subprocess.run([sys.executable, "-m", "chaos", *words], capture_output=True, text=True, check=False)
    if done.returncode not in (ExitCode.PASS, ExitCode.FAIL, ExitCode.UNKNOWN):
        raise MisuseError(f"{peer.name}: its campaign could not be run: {(done.stderr.strip().splitlines() or ['nothing was said'])[-1]}")
    lines = (run / "results.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=TrialResult) for line in lines]
