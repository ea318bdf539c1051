"""The `recovery` command: run a scripted session, drive it again after a crash, explain what a driver would do."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from eventlog import console, steps
from eventlog.command_options import POINT_HELP
from eventlog.errors import CrashworthyError, MisuseError
from eventlog.ports import LinuxHost, RandomIds, SystemClock
from recovery.command_answer import answer, choose_answer
from recovery.command_apply import apply_recovery
from recovery.command_checkpoints import collect_checkpoints, list_checkpoints, verify_checkpoints
from recovery.command_export import export_session as export_bundle
from recovery.command_files import ChangeOrder, change, has_workspace, release_space
from recovery.command_fork import fork as fork_session
from recovery.command_fork import place as place_session
from recovery.command_image import ImageOrder, take_image
from recovery.command_log import state_of
from recovery.command_note import print_note
from recovery.command_pause import ask_pause
from recovery.command_quarantine import EmptyOrder, check_out_quarantine, empty_decisions, list_quarantine, show_quarantine
from recovery.command_redrive import RedriveOrder, print_histories, redrive
from recovery.command_release import release_holder
from recovery.command_rerun import rerun as rerun_session
from recovery.command_restore import RestoreOrder, restore_image
from recovery.command_settle import (
    settle_discard,
    settle_exclude,
    settle_not_run,
    settle_processes,
    settle_ran,
    settle_rebuild,
    settle_root,
    settle_undo,
    settle_workspace,
)
from recovery.command_space import Opener, StartOrder, advance, attach, kill, list_running, logs, parse_left_behind, show, start
from recovery.driver.entry import drive
from recovery.driver.order import Order, Ports
from recovery.note import DEFAULT_BYTES
from recovery.opening import check_log_exists, find_vault
from recovery.plan import explain, forecast
from recovery.script import Session, parse_on_interrupted
from recovery.session_file import load_session
from recovery.settings import Settings, read_limits, read_settings
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


@app.command(name="redrive")
def redrive_all(
    places: Annotated[list[Path], typer.Argument(help="state directories, or directories of them")],
    attempts: Annotated[int | None, typer.Option("--attempts", help="starts without committed progress before a session is parked")] = None,
    backoff: Annotated[float | None, typer.Option("--backoff", help="seconds before the second of them, doubling from there")] = None,
    backoff_most: Annotated[float | None, typer.Option("--backoff-most", help="the longest delay")] = None,
    stall: Annotated[float | None, typer.Option("--stall", help="seconds of silence after which a driver is ended; 0: never")] = None,
    grace: Annotated[float | None, typer.Option("--grace", help="the same before its first output")] = None,
    ready: Annotated[
        float | None, typer.Option("--ready", help="seconds that a driver has run after which the next start is counted ahead; 0: never")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="of the delays' spread")] = None,
    cold: Annotated[bool, typer.Option("--cold", help="keep no process ready")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="drive on what is parked or paused, and count from here")] = False,
    status: Annotated[bool, typer.Option("--status", help="print the attempts so far; starts nothing")] = False,
    on_interrupted: InterruptedOption = "",
    accept_outside: AcceptOption = "",
    as_json: JsonOption = False,
) -> int:
    """Start the next driver of each session until it has finished or is parked with its reason."""
    if status:
        return print_histories(list(map(str, places)), as_json)
    _settings()
    options = {
        "SESSION_REDRIVE_ATTEMPTS": ("--attempts", attempts), "SESSION_BACKOFF_SECS": ("--backoff", backoff),
        "SESSION_BACKOFF_MOST_SECS": ("--backoff-most", backoff_most), "SESSION_STALL_SECS": ("--stall", stall),
        "SESSION_GRACE_SECS": ("--grace", grace), "SESSION_READY_SECS": ("--ready", ready),
    }  # fmt: skip
    given = {name: f"{value:.15g}" for name, (_, value) in options.items() if value is not None}
    limits = read_limits({**os.environ, **given}, {name: options[name][0] for name in given})
    if on_interrupted:
        parse_on_interrupted(on_interrupted, "--on-interrupted")
    order = RedriveOrder(tuple(map(str, places)), limits, seed, not cold, retry, on_interrupted, accept_outside)
    return redrive(order, os.environ, _ports())


@app.command()
def plan(state: StateArgument, as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False) -> int:
    """Explain what the next driver would do; changes nothing. Exit 0 nothing to recover, 2 something, 1 try again."""
    place = state_of(str(state))
    check_log_exists(place)
    settings, ports = read_settings(os.environ), _ports()
    found = forecast(place, ports.host, lambda session: find_vault(session, settings.checkpoints, ports.clock))
    if as_json:
        facts = found.facts.named() if found.facts else None
        print(json.dumps({**msgspec.to_builtins(found), "facts": facts}))
    else:
        print("\n".join(explain(found)))
    return found.exit_code


@app.command()
def fork(
    log: LogArgument,
    at: Annotated[str, typer.Option("--at", help=POINT_HELP)],
    state: Annotated[Path, typer.Option("--state", help="the fork's own state directory; missing or empty")],
    workspace: Annotated[Path, typer.Option("--workspace", help="the fork's own workspace; missing or empty")],
    name: Annotated[str | None, typer.Option("--name", help="what the fork is called; without it, what its parent is called")] = None,
    session: Annotated[str | None, typer.Option("--session", help="the session, where the log holds several")] = None,
    as_json: JsonOption = False,
) -> int:
    """Begin a session that goes on from a point of another one, in a space of its own; `drive` makes its files and drives it."""
    return fork_session(str(log), at, str(state), str(workspace), name, session, as_json, _settings(), _ports())


@app.command()
def export(
    log: LogArgument,
    to: Annotated[Path, typer.Option("--to", help="the bundle to write; a file of this name is never replaced")],
    upto: Annotated[int | None, typer.Option("--upto", help="only the events up to this seq")] = None,
    move: Annotated[bool, typer.Option("--move", help="the session goes away with the bundle: nothing is appended here any more")] = False,
    session: Annotated[str | None, typer.Option("--session", help="the session, where the log holds several")] = None,
    as_json: JsonOption = False,
) -> int:
    """Write a session into a bundle, as `eventlog export` does, with what of its files is only in its checkpoint store."""
    return export_bundle(str(log), str(to), upto, move, session, as_json, _settings(), _ports())


@app.command()
def place(
    state: StateArgument,
    workspace: Annotated[Path, typer.Option("--workspace", help="its workspace from here on; missing or empty")],
    as_json: JsonOption = False,
) -> int:
    """Give a session that was imported or moved here its workspace; `drive` makes its files and drives it."""
    return place_session(str(state), str(workspace), as_json, _settings(), _ports())


@app.command()
def rerun(
    log: LogArgument,
    at: Annotated[str | None, typer.Option("--at", help=POINT_HELP)] = None,
    every: Annotated[bool, typer.Option("--all", help="from every settled event, one after the other")] = False,
    session: Annotated[str | None, typer.Option("--session", help="the session, where the log holds several")] = None,
    as_json: JsonOption = False,
) -> int:
    """Run a recorded session again from a settled event, elsewhere; exit 1 when an image or an exit differs from the recorded one."""
    _settings()
    return rerun_session(str(log), at, every, session, as_json, os.environ, _ports())


@app.command()
def note(
    log: LogArgument,
    limit: Annotated[int, typer.Option("--bytes", help="the most bytes that the note may have")] = DEFAULT_BYTES,
    as_json: JsonOption = False,
) -> int:
    """Print what completed, may have partly run, was restored, lies in quarantine and must be done; from the log alone, bounded."""
    return print_note(str(log), limit, as_json)


@app.command()
def apply(log: LogArgument, accept_outside: AcceptOption = "", as_json: JsonOption = False) -> int:
    """Recover as `plan` says, and stop before the script goes on. Exit 0 settled; else as drive."""
    return apply_recovery(str(log), accept_outside, as_json, _settings(), _ports())


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
def pause(
    state: StateArgument,
    reason: Annotated[str, typer.Option("--reason", help="why, for whoever reads it later")] = "",
    as_json: JsonOption = False,
) -> int:
    """Ask for a planned pause at the next call boundary; the next drive after it goes on, days later too."""
    _settings()
    return ask_pause(str(state), reason, as_json, _ports())


@app.command(name="answer")
def give_answer(
    state: StateArgument,
    approve: Annotated[bool, typer.Option("--approve", help="the call runs as it is")] = False,
    edit: Annotated[Path | None, typer.Option("--edit", help="the call in this file (TOML or JSON) runs in its place")] = None,
    reject: Annotated[bool, typer.Option("--reject", help="the call does not run, and the session goes on without it")] = False,
    reason: Annotated[str, typer.Option("--reason", help="why, for whoever reads it later")] = "",
    as_json: JsonOption = False,
) -> int:
    """Answer what a session asks about a call that has `approve = true`."""
    _settings()
    return answer(str(state), choose_answer(approve, edit, reject), edit, reason, as_json, _ports())


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
    ran: Annotated[bool, typer.Option("--ran", help="the open call ran: what is there is its result, its exit stays unknown")] = False,
    not_run: Annotated[
        bool, typer.Option("--not-run", help="the open call did not run: the image before it is restored, and the next drive runs it")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="restore the image before the open call, which ends interrupted; try an open restore again")
    ] = False,
    accept_workspace: Annotated[
        str, typer.Option("--accept-workspace", metavar="HASH", help="end an open restore with the workspace as it is, which has this hash")
    ] = "",
    discard: Annotated[
        int, typer.Option("--discard", metavar="CALL", help="restore the image before the open call; what it made is deleted, for ever")
    ] = 0,
    exclude: Annotated[
        str, typer.Option("--exclude", metavar="PATH", help="leave a path that cannot be read out of all images from here on")
    ] = "",
) -> int:
    """Say what only a person can know; the next drive goes on from there."""
    acts: dict[str, tuple[bool, Callable[[str, Settings, Ports], int]]] = {
        "--processes-dead": (processes_dead, settle_processes),
        "--rebuild": (rebuild, settle_rebuild),
        "--accept-root": (accept_root, settle_root),
        "--ran": (ran, settle_ran),
        "--not-run": (not_run, settle_not_run),
        "--undo": (undo, settle_undo),
        "--accept-workspace HASH": (bool(accept_workspace), lambda at, with_, in_: settle_workspace(at, accept_workspace, with_, in_)),
        "--discard CALL": (bool(discard), lambda at, with_, in_: settle_discard(at, discard, with_, in_)),
        "--exclude PATH": (bool(exclude), lambda at, with_, in_: settle_exclude(at, exclude, with_, in_)),
    }
    wanted = [act for is_wanted, act in acts.values() if is_wanted]
    if len(wanted) != 1:
        raise MisuseError(f"recovery settle: say what is settled, one thing of: {', '.join(acts)}")
    return wanted[0](str(log), _settings(), _ports())


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
    return msgspec.structs.replace(
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
