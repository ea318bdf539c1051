"""`chaos replay`: play a kept trial again, and say whether the same happened."""

import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from chaos.area import open_area
from chaos.console import exit_code_of
from chaos.divergence import find_divergence
from chaos.explain import explain
from chaos.launch import has_mounts
from chaos.options import check_engine
from chaos.powerloss.copies import ENTRY as COPY
from chaos.powerloss.copies import MODE as COPY_MODE
from chaos.powerloss.enumerate import ENTRY as POWER
from chaos.powerloss.enumerate import MODE as POWER_MODE
from chaos.results import Trial, Verdict
from chaos.scenario import from_json
from chaos.syscalls.level import SYSCALL
from chaos.target.client import TargetZygote
from chaos.target.target import Target, read_target
from chaos.transcript import Transcript, read_transcript
from chaos.volume import NAMESPACE
from chaos.zygote_client import ProcessZygote, ZygoteError, zygote_command
from eventlog.errors import MisuseError


def replay(
    file: Annotated[str, typer.Argument(metavar="FILE", help="trial.json of a kept trial, or its directory")],
    explain_it: Annotated[bool, typer.Option("--explain", help="what was killed, what recovery knew and decided, what differs")] = False,
    engine: Annotated[str, typer.Option(metavar="DIR", help="an engine copy to run instead of the installed one")] = "",
    from_zero: Annotated[bool, typer.Option("--from-zero", help="play the whole plan, without a saved state")] = False,
) -> int:
    """Play a kept trial again. Ends with its verdict now; with 2 when it went another way (DIVERGED) and did not fail."""
    recorded = read_transcript(Path(file))
    target = read_target(recorded.scenario, file)
    if target is not None and (engine or from_zero):
        raise MisuseError(f"{file}: this trial is of a target, which has no engine copy and no saved state; leave the option away")
    if target is None:
        _refuse_unplayable(file, recorded.result.trial)
    replayed = _play_target(target, recorded) if target else _play_again(recorded, check_engine(engine), from_zero)
    divergence = find_divergence(recorded, replayed)
    if explain_it:
        print("\n".join(explain(replayed)))
    then, now = recorded.result.verdict, replayed.result.verdict
    if divergence:
        print(f"DIVERGED {divergence}")
        print(f"verdict then {then}, now {now}{f' ({replayed.result.reason})' if replayed.result.reason else ''}")
        return exit_code_of(Verdict.FAIL if now is Verdict.FAIL else Verdict.UNKNOWN)
    what = "starts" if target else "events"
    print(f"REPLAYED the same {len(replayed.events)} {what}; verdict then {then}, now {now}")
    return exit_code_of(now)


def _refuse_unplayable(file: str, trial: Trial) -> None:
    """Raise MisuseError, with the command that repeats it, for a trial that only its own campaign can play."""
    if trial.entry not in (SYSCALL, POWER, COPY):
        return
    kind, what = {
        SYSCALL: (["--level", SYSCALL], "was killed by strace, not at a step"),
        POWER: (["--mode", POWER_MODE, "--seed", str(trial.seed)], "lost its power"),  # the seed draws states of the disk
        COPY: (["--mode", COPY_MODE], "lost its power on a real file system"),
    }[trial.entry]
    words = [*kind, "--scenario", trial.scenario, "--step", trial.plan[-1].at if trial.plan else ""]
    raise MisuseError(f"{file}: this trial {what}; repeat it with `chaos {shlex.join(words)}`")


def _play_target(target: Target, recorded: Transcript) -> Transcript:
    with open_area() as area, tempfile.TemporaryDirectory(prefix="chaos-replay-") as errors:
        runner = TargetZygote(target, Path(errors) / "runner.txt")
        try:
            runner.run_target(recorded.result.trial, area, "replay")
        except ZygoteError as error:
            raise MisuseError(f"the trial could not be played again: {error}") from error
        finally:
            runner.close()
        return read_transcript(area)


def _play_again(recorded: Transcript, engine: Path | None, from_zero: bool) -> Transcript:
    scenario = from_json(recorded.scenario, "the transcript's scenario")
    trial = recorded.result.trial
    with open_area() as area, tempfile.TemporaryDirectory(prefix="chaos-replay-") as errors:
        directory = area / "slot-1" / "trial"
        directory.mkdir(parents=True)
        namespace = NAMESPACE if has_mounts([scenario]) else ()
        zygote = ProcessZygote([*namespace, *zygote_command(engine)], Path(errors) / "zygote.txt")
        try:
            zygote.replay(scenario, trial, directory, recorded.converges_to, from_zero)
        except ZygoteError as error:
            raise MisuseError(f"the trial could not be played again: {error}") from error
        finally:
            zygote.close()
        return read_transcript(directory)
