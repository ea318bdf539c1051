"""Kill marks: what identifies every process of one attempt, so that all of them can be killed and their death proved (rules S8, S9)."""

from recovery.space.marks.acts import (
    allows_reuse,
    command_mark,
    end_members,
    end_strays,
    forget_mark,
    has_leaf,
    is_inherited,
    join_mark,
    keep_members,
    kill_mark,
    list_members,
    make_mark,
    name_helper_mark,
    name_mark,
    release_mark,
)
from recovery.space.marks.cgroup import find_cgroup_base, kill_cgroup
from recovery.space.marks.choose import choose_marks
from recovery.space.marks.descendants import describe, kill_descendants, list_descendants, read_newest
from recovery.space.marks.living import list_command_processes, list_left_processes, list_shim_marks
from recovery.space.marks.values import ENVIRONMENT_VARIABLE, KINDS, Joined, MarkKind, MarkSetting, Target

__all__ = [
    "ENVIRONMENT_VARIABLE",
    "KINDS",
    "Joined",
    "MarkKind",
    "MarkSetting",
    "Target",
    "allows_reuse",
    "choose_marks",
    "command_mark",
    "describe",
    "end_members",
    "end_strays",
    "has_leaf",
    "is_inherited",
    "find_cgroup_base",
    "forget_mark",
    "join_mark",
    "keep_members",
    "kill_cgroup",
    "kill_descendants",
    "kill_mark",
    "list_command_processes",
    "list_descendants",
    "list_left_processes",
    "list_members",
    "list_shim_marks",
    "make_mark",
    "name_helper_mark",
    "name_mark",
    "read_newest",
    "release_mark",
]
