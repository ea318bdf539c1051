"""The `recovery` command: run a scripted session, drive it again after a crash, explain what a driver would do."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from eventlog import console, steps
from eventlog.errors import CrashworthyError, MisuseError
from eventlog.ports import LinuxHost, RandomIds, SystemClock
from recovery.command_checkpoints import collect_checkpoints, list_checkpoints, verify_checkpoints
from recovery.command_files import ChangeOrder, change, has_workspace, release_space
from recovery.command_image import ImageOrder, take_image
from recovery.command_quarantine import EmptyOrder, check_out_quarantine, empty_decisions, list_quarantine, show_quarantine
from recovery.command_release import release_holder
from recovery.command_restore import RestoreOrder, restore_image
from recovery.command_settle import settle_processes, settle_rebuild, settle_root
from recovery.command_space import Opener, StartOrder, advance, attach, kill, list_running, logs, parse_left_behind, show, start
from recovery.driver.entry import drive
from recovery.driver.order import Order, Ports
from recovery.opening import check_log_exists
from recovery.plan import explain, forecast
from recovery.script import Session, load_session, parse_on_interrupted
from recovery.settings import Settings, read_settings
from recovery.space.condemned import Trust

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Run sessions that survive a crash at any instant.", rich_markup_mode=None
)

quarantine = typer.Typer(no_args_is_help=True, help="What restores displaced: look at it, copy it out, delete it.", rich_markup_mode=None)
app.add_typer(quarantine, name="quarantine")
space = typer.Typer(no_args_is_help=True, help="Commands in a space by hand: fenced, recorded, run once a key.", rich_markup_mode=None)
app.add_typer(space, name="space")

checkpoints = typer.Typer(no_args_is_help=True, help="A session's checkpoints: list, prove, collect.", rich_markup_mode=None)
app.add_typer(checkpoints, name="checkpoints")

InterruptedOption = Annotated[str, typer.Option("--on-interrupted", help="what to do about an interrupted call: stop, reissue or continue")]
AcceptOption = Annotated[
    str, typer.Option("--accept-outside", help="root hash of an outside state with mass deletions that is meant (rule C4)")
]
LogArgument = Annotated[Path, typer.Argument(help="the session's state directory, or the log in it")]
WorkspaceOption = Annotated[Path, typer.Option("--workspace", help="the session's workspace")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object")]
DecisionArgument = Annotated[int, typer.Argument(help="the restore decision, as `recovery quarantine list` names it")]
SpaceArgument = Annotated[Path, typer.Argument(help="a session's state directory, or the directory of a space")]
KeyArgument = Annotated[str, typer.Argument(help="the command's key, as `recovery ps` lists it")]
DirectoryOption = Annotated[Path, typer.Option("--dir", help="the directory of the space, or a session's state directory")]
KeyOption = Annotated[str, typer.Option("--key", help="the command's key")]
EpochOption = Annotated[int, typer.Option("--epoch", help="who asks: the space's floor, or for an advance a number above it")]
MarkOption = Annotated[str, typer.Option("--mark", help="the kill mark (default: SESSION_KILL_MARK, else the strongest there is)")]
StateArgument = Annotated[Path, typer.Argument(help="the session's state directory")]


@app.command()
def run(
    session: Annotated[Path, typer.Argument(help="session file (TOML)")],
    on_interrupted: InterruptedOption = "",
    accept_outside: AcceptOption = "",
) -> int:
    """Run a session file; a session that has begun is resumed."""
    settings = _settings()
    loaded = _override(load_session(session), settings)
    return _drive(loaded.state, loaded, settings, on_interrupted, accept_outside)


@app.command(name="drive")
def drive_again(
    state: StateArgument,
    on_interrupted: InterruptedOption = "",
    accept_outside: AcceptOption = "",
    accept_lost: Annotated[
        int, typer.Option("--accept-lost", min=0, help="give so many finished calls up where the newest checkpoint is not whole (rule C7)")
    ] = 0,
    finish: Annotated[bool, typer.Option("--finish", help="end a session that has no script (image --new), for good")] = False,
) -> int:
    """Drive a session under the next epoch: recover what a crash left, then go on with its script."""
    check_log_exists(str(state))
    return _drive(str(state), None, _settings(), on_interrupted, accept_outside, finish, accept_lost)


@checkpoints.command(name="list")
def list_taken(log: LogArgument, as_json: JsonOption = False) -> int:
    """The checkpoints that the log names, the newest first; nothing of them is proved."""
    return list_checkpoints(str(log), as_json, _settings())


@checkpoints.command()
def verify(log: LogArgument, as_json: JsonOption = False) -> int:
    """Read and prove every checkpoint that the log names, with all contents. Exit 1 when one is damaged."""
    return verify_checkpoints(str(log), as_json, _settings())


@checkpoints.command()
def gc(
    log: LogArgument,
    keep: Annotated[int, typer.Option("--keep", min=1, help="how many of the newest named checkpoints stay (default: all)")] = 1 << 53,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
    as_json: JsonOption = False,
) -> int:
    """Remove checkpoints that the log does not name, and contents that no checkpoint needs. Exit 2 when something would go (--dry-run)."""
    return collect_checkpoints(str(log), keep, dry_run, as_json, _settings())


@app.command()
def plan(state: StateArgument, as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False) -> int:
    """Explain what the next driver would do; changes nothing. Exit 0 nothing to recover, 2 something to recover."""
    check_log_exists(str(state))
    found = forecast(str(state), LinuxHost())
    if as_json:
        facts = found.facts.named() if found.facts else None
        print(json.dumps({**dataclasses.asdict(found), "facts": facts}))
    else:
        print("\n".join(explain(found)))
    return 0 if found.is_idle else 2


@app.command()
def release(state: StateArgument, as_json: JsonOption = False) -> int:
    """Free a workspace of a parked session, so that another session may have it; refused while anything of the session lives. Of a space by
    hand everything is ended."""
    if has_workspace(str(state)):
        return release_space(str(state), as_json, _opener(""))
    return release_holder(str(state), as_json, _settings(), _ports())


@app.command()
def image(
    log: LogArgument,
    workspace: WorkspaceOption,
    new: Annotated[bool, typer.Option("--new", help="begin a log: a session without a script")] = False,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", help="with --new: a .gitignore pattern of paths left out")] = None,
    track: Annotated[list[str] | None, typer.Option("--track", help="with --new: owners or acls, tracked beside the rest")] = None,
    rehash: Annotated[bool, typer.Option("--rehash", help="trust nothing that was remembered: read every file again")] = False,
    hints: Annotated[str, typer.Option("--hints", help="full: one look; watch: look until the workspace rests")] = "full",
    accept_outside: AcceptOption = "",
    as_json: JsonOption = False,
) -> int:
    """Take an image of a workspace and record it."""
    profile = tuple(exclude or ()), tuple(track or ())
    order = ImageOrder(str(log), str(workspace), new, accept_outside, as_json, *profile, rehash, hints)
    return take_image(order, _settings(), _ports())


@app.command()
def restore(
    log: LogArgument,
    at: Annotated[int, typer.Option("--at", help="the event whose image is wanted")],
    workspace: WorkspaceOption,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the plan, change nothing; exit 2 when something differs")] = False,
    as_json: JsonOption = False,
) -> int:
    """Make the workspace equal to the image at an earlier event; calls after it are undone, and what is displaced is kept."""
    return restore_image(RestoreOrder(str(log), at, str(workspace), dry_run, as_json), _settings(), _ports())


@app.command()
def settle(
    log: LogArgument,
    processes_dead: Annotated[
        bool, typer.Option("--processes-dead", help="nothing of an older epoch lives, though nothing can prove it: your word, on record")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="make what is where the workspace was equal to the log; what it displaces is kept")
    ] = False,
    accept_root: Annotated[
        bool, typer.Option("--accept-root", help="the directory that is there is the workspace from here on")
    ] = False,
) -> int:
    """Say what only a person can know; the next drive goes on from there."""
    match [processes_dead, rebuild, accept_root]:
        case [True, False, False]:
            return settle_processes(str(log), _settings(), _ports())
        case [False, True, False]:
            return settle_rebuild(str(log), _settings(), _ports())
        case [False, False, True]:
            return settle_root(str(log), _settings(), _ports())
        case _:
            raise MisuseError("recovery settle: say what is settled, one thing: --processes-dead, --rebuild or --accept-root")


@quarantine.command(name="list")
def quarantine_list(log: LogArgument, as_json: JsonOption = False) -> int:
    """List the decisions that displaced something: when, rounds, paths, bytes."""
    return list_quarantine(str(log), as_json)


@quarantine.command(name="show")
def quarantine_show(log: LogArgument, seq: DecisionArgument, as_json: JsonOption = False) -> int:
    """Print what one decision displaced."""
    return show_quarantine(str(log), seq, as_json)


@quarantine.command(name="checkout")
def quarantine_checkout(
    log: LogArgument,
    seq: DecisionArgument,
    directory: Annotated[Path, typer.Argument(help="a directory that is not there yet, outside workspace and state directory")],
    as_json: JsonOption = False,
) -> int:
    """Copy what one decision displaced into a new directory; the quarantine stays as it is."""
    return check_out_quarantine(str(log), seq, str(directory), as_json, _ports())


@quarantine.command(name="empty")
def quarantine_empty(
    log: LogArgument,
    seq: Annotated[int | None, typer.Argument(help="the restore decision; all of them when left out")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would go, delete nothing; exit 2 when something would")] = False,
    as_json: JsonOption = False,
) -> int:
    """Delete what a restore displaced, for ever; the only command that does."""
    return empty_decisions(EmptyOrder(str(log), seq, dry_run, as_json), _settings(), _ports())


@space.command(name="start")
def space_start(
    directory: DirectoryOption,
    key: KeyOption,
    epoch: EpochOption,
    command: Annotated[list[str], typer.Argument(help="the command, after --")],
    mark: MarkOption = "",
    policy: Annotated[str, typer.Option("--policy", help="processes left behind at its end: kill (default), keep or fail")] = "kill",
    timeout: Annotated[float | None, typer.Option("--timeout", help="seconds until it is ended (TERM, then KILL)")] = None,
    where: Annotated[str, typer.Option("--where", help="the directory it runs in (default: the current one)")] = ".",
    stdin: Annotated[str, typer.Option("--stdin", help="a file with what it reads (default: nothing)")] = "",
    separate: Annotated[bool, typer.Option("--separate", help="keep standard error apart from standard output")] = False,
    space: Annotated[str, typer.Option("--space", help="local, or namespaced: it may write below --where only")] = "",
    as_json: JsonOption = False,
) -> int:
    """Start a command under a key, or attach to it, or replay it; wait for its end. The exit code is not the command's."""
    order = StartOrder(
        str(directory), key, epoch, tuple(command), where, stdin, separate, timeout, parse_left_behind(policy), as_json,
        space or _settings().space or "local",
    )  # fmt: skip
    return start(order, _opener(mark))


@space.command(name="change")
def space_change(
    directory: DirectoryOption,
    key: KeyOption,
    epoch: EpochOption,
    path: Annotated[str, typer.Argument(help="the path to change, relative to the workspace")],
    workspace: Annotated[str, typer.Option("--workspace", help="the space's one workspace; once given it is known")] = "",
    content: Annotated[str | None, typer.Option("--write", help="a file with what is to stand there")] = None,
    old: Annotated[str | None, typer.Option("--old", help="the text that stands there once and is to be replaced by --new")] = None,
    new: Annotated[str | None, typer.Option("--new", help="what comes in place of --old")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="remove the file, link, FIFO or empty directory")] = False,
    mark: MarkOption = "",
    as_json: JsonOption = False,
) -> int:
    """Write, edit or delete a file below the space's workspace under a key, or replay that; never outside the workspace."""
    return change(ChangeOrder(str(directory), key, epoch, path, workspace, content, old, new, delete, as_json), _opener(mark))


@space.command(name="advance")
def space_advance(
    directory: DirectoryOption,
    epoch: EpochOption,
    claim: Annotated[list[str] | None, typer.Option("--claim", help="a key that goes on under the new epoch; may be repeated")] = None,
    mark: MarkOption = "",
    processes_dead: Annotated[
        bool, typer.Option("--processes-dead", help="nothing of an older epoch lives, though nothing can prove it: your word, on record")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Raise the floor: what is claimed goes on, everything else is ended and proved dead, and older epochs are refused."""
    return advance(str(directory), epoch, tuple(claim or ()), as_json, _opener(mark), Trust(all_dead=processes_dead))


@space.command(name="claim")
def space_claim(directory: DirectoryOption, key: KeyOption, epoch: EpochOption, mark: MarkOption = "", as_json: JsonOption = False) -> int:
    """Advance to an epoch with one key claimed: it goes on, everything else is ended."""
    return advance(str(directory), epoch, (key,), as_json, _opener(mark))


@space.command(name="show")
def space_show(directory: DirectoryOption, as_json: JsonOption = False) -> int:
    """Print a space and every key in it; changes nothing."""
    return show(str(directory), as_json, _opener(""))


@app.command()
def ps(
    directory: SpaceArgument,
    every: Annotated[bool, typer.Option("--all", help="also what has ended and is not collected yet")] = False,
    as_json: JsonOption = False,
) -> int:
    """List the commands that run; changes nothing."""
    return list_running(str(directory), every, as_json, _opener(""))


@app.command(name="attach")
def attach_to(directory: SpaceArgument, key: KeyArgument, as_json: JsonOption = False) -> int:
    """Follow a command's output to its end. Ending this ends the following, not the command."""
    return attach(str(directory), key, as_json, _opener(""))


@app.command(name="logs")
def print_logs(
    directory: SpaceArgument,
    key: KeyArgument,
    stderr: Annotated[bool, typer.Option("--stderr", help="standard error, where it was kept apart")] = False,
    as_json: JsonOption = False,
) -> int:
    """Print what is kept of the output of a command that ended, byte for byte."""
    return logs(str(directory), key, "err" if stderr else "out", as_json, _opener(""))


@app.command(name="kill")
def kill_command(directory: SpaceArgument, key: KeyArgument, as_json: JsonOption = False) -> int:
    """End a running command and everything it started; its exit says by which signal."""
    return kill(str(directory), key, as_json, _opener(""))


def _opener(mark: str) -> Opener:
    ports, settings = _ports(), _settings()
    return Opener(mark or settings.kill_mark, ports.clock, ports.ids, ports.host, settings.holders, settings.silent_secs)


def _ports() -> Ports:
    return Ports(SystemClock(), RandomIds(), LinuxHost())


def _settings() -> Settings:
    steps.install(steps.hook_from_environment(os.environ))
    return read_settings(os.environ)


def _override(session: Session, settings: Settings) -> Session:
    """Environment beats file (driver contract). Directories from the environment are relative to the current one."""
    return dataclasses.replace(
        session,
        name=settings.name or session.name,
        workspace=os.path.abspath(settings.workspace) if settings.workspace else session.workspace,
        state=os.path.abspath(settings.state) if settings.state else session.state,
    )


def _drive(
    state: str, session: Session | None, settings: Settings, on_interrupted: str, accept_outside: str, finish: bool = False,
    accept_lost: int = 0,
) -> int:  # fmt: skip
    choice = parse_on_interrupted(on_interrupted, "--on-interrupted") if on_interrupted else None
    return drive(Order(state, session, choice, accept_outside, finish=finish, accept_lost=accept_lost), settings, _ports())


def _open_standard_handles() -> None:
    """0, 1 and 2 are open from here on: else the next file opened would take one of their places, and get what is said there."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open("/dev/null", os.O_RDWR)  # the lowest free number


def _code(error: CrashworthyError) -> int:
    return error.exit_code


def main() -> None:
    """Entry point of the console command."""
    _open_standard_handles()
    sys.exit(console.run(app, "recovery", 78, _code))


if __name__ == "__main__":
    main()
