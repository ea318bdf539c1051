"""Which kind of mark is in force: the one that is asked for, or by `auto` the first of `AUTO` that this machine offers; told by trying."""

from collections.abc import Callable

import msgspec

from eventlog.errors import MisuseError
from eventlog.show import show_text
from recovery.space.marks.cgroup import explain_cgroup_base, find_cgroup_base
from recovery.space.marks.freezer import explain_freezer_base
from recovery.space.marks.values import KINDS, MarkKind, MarkSetting
from recovery.space.namespaces import CLONE_NEWPID, CLONE_NEWUTS, probe_private

AUTO: tuple[MarkKind, ...] = ("cgroup", "pid-namespace", "cgroup1", "uts", "environment")
"""cgroup v2 proves as much as a pid namespace, costs a tenth of it and leaves a command's view of the machine as it is: it comes first."""


class _Offer(msgspec.Struct, frozen=True):
    """Where leaves are made ("" for kinds without), and why the kind is not to be had ("" when it is)."""

    base: str
    refusal: str


def choose_marks(wanted: str) -> MarkSetting:
    """The mark of a drive: `wanted` is auto or one of `KINDS`. Raises MisuseError, with the reason, when it is not to be had."""
    if wanted == "auto":
        offers = ((kind, _PROBES[kind]()) for kind in AUTO)
        return next(MarkSetting(kind, offer.base) for kind, offer in offers if not offer.refusal)
    kind = next((kind for kind in KINDS if kind == wanted), None)
    if kind is None:
        raise MisuseError(f"SESSION_KILL_MARK={show_text(wanted)!r} is unknown; use auto, {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    offer = _PROBES[kind]()
    if offer.refusal:
        raise MisuseError(
            f"SESSION_KILL_MARK={kind}: it is not to be had here ({offer.refusal}); unset it for the strongest that is, or allow it"
        )
    return MarkSetting(kind, offer.base)


def explain_mark(kind: MarkKind) -> str:
    """Why a kind is not to be had here, "" when it is."""
    return _PROBES[kind]().refusal


def _probe_cgroup() -> _Offer:
    return _Offer(*explain_cgroup_base())


def _probe_freezer() -> _Offer:
    return _Offer(*explain_freezer_base())


def _probe_pid_namespace() -> _Offer:
    refusal = probe_private(CLONE_NEWPID)
    return _Offer("" if refusal else find_cgroup_base(), refusal)


def _probe_uts() -> _Offer:
    return _Offer("", probe_private(CLONE_NEWUTS))


def _probe_environment() -> _Offer:
    return _Offer("", "")


_PROBES: dict[MarkKind, Callable[[], _Offer]] = {
    "pid-namespace": _probe_pid_namespace,
    "cgroup": _probe_cgroup,
    "cgroup1": _probe_freezer,
    "uts": _probe_uts,
    "environment": _probe_environment,
}
