"""`recovery space change`, and `recovery release` of a space by hand: files changed by key in the one workspace that such a space has."""

import json
import os

import msgspec

from eventlog.errors import MisuseError
from eventlog.show import show_text
from recovery.command_space import Opener, ended_json, read_input, telling_of
from recovery.opening import is_finished
from recovery.space.file_request import Delete, Edit, FileRequest, Write
from recovery.space.standalone import StandaloneSpace
from recovery.space.workspaces import NAME


class ChangeOrder(msgspec.Struct, frozen=True):
    """What `space change` was asked for: exactly one of `content` (a file to read), `old` with `new`, and `is_delete`."""

    directory: str
    key: str
    epoch: int
    path: str
    workspace: str
    content: str | None
    old: str | None
    new: str | None
    is_delete: bool
    as_json: bool


def change(order: ChangeOrder, opener: Opener) -> int:
    """Make the change, or replay it; exit 0 whether it could be made or not, as for a command."""
    request = FileRequest(order.key, _read_act(order))
    space = opener.make(order.directory) if order.workspace else opener.open(order.directory)
    try:
        with telling_of(order.directory):
            if order.workspace:
                space.use_workspace(order.workspace, opener.ids, is_finished)
            if space.facts().floor == 0:
                space.advance(order.epoch)  # a new space: there is nobody to take it from
            how = space.change(order.epoch, request)
            ended = space.wait(order.epoch, order.key)
    finally:
        space.close()
    if order.as_json:
        print(json.dumps({"how": how, **ended_json(ended)}))
    else:
        print(f"{show_text(order.key)}: {ended.out.decode('utf-8', 'surrogateescape')}{' (replayed)' if how == 'replayed' else ''}")
    return 0


def _read_act(order: ChangeOrder) -> Write | Edit | Delete:
    path = os.fsencode(order.path)
    is_edit = order.old is not None and order.new is not None
    if (order.content is not None) + is_edit + order.is_delete != 1 or (order.old is None) != (order.new is None):
        raise MisuseError("say what is to be done: --write FILE, or --old TEXT with --new TEXT, or --delete")
    if order.old is not None and order.new is not None:
        return Edit(path, os.fsencode(order.old), os.fsencode(order.new))
    if order.content is None:
        return Delete(path)
    return Write(path, read_input("--write", order.content))


def has_workspace(directory: str) -> bool:
    """Whether this is the directory of a space by hand with a workspace of its own."""
    return os.path.exists(os.path.join(directory, NAME)) and os.path.exists(os.path.join(directory, "ledger"))


def release_space(directory: str, as_json: bool, opener: Opener) -> int:
    """Advance a space by hand by one epoch, so that nothing of it lives, and free its workspace."""
    space: StandaloneSpace = opener.open(directory)
    try:
        facts = space.facts()
        is_released = space.give_up_workspace(facts.floor + 1)
    finally:
        space.close()
    released = [show_text(facts.workspace)] if is_released else []
    if as_json:
        print(json.dumps({"session": facts.holder, "state": os.path.realpath(directory), "released": released, "registry": opener.holders}))
    elif released:
        print(f"released {released[0]} from the space in {show_text(directory)}; `recovery space change --workspace` claims it again")
    else:
        print(f"the space in {show_text(directory)} holds no workspace in the registry {show_text(opener.holders)}; its epoch was raised")
    return 0
