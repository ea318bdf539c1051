"""What tests of steps and plans draw."""

from hypothesis import strategies as st

from chaos.losses import LOSSES
from chaos.results import Action
from chaos.step import Step, format_step

roles = st.one_of(st.sampled_from(["driver", "spawner", "worker"]), st.integers(1, 99).map("shim.{}".format))
names = st.from_regex(r"[a-z][a-z0-9_-]{0,5}(\.[a-z]{1,5}){0,3}", fullmatch=True)
numbers = st.integers(1, 10**6)
steps = st.builds(Step, roles, numbers, names, numbers)
whos = st.builds("{}@{}".format, st.one_of(roles, st.just("command")), numbers)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
paths = texts.filter(bool)

_at = steps.map(format_step)
actions = st.one_of(
    st.builds(lambda at, do: Action(at, do), _at, st.sampled_from(["wait", "kill", "freeze"])),
    st.builds(lambda who, do: Action("", do, who), whos, st.sampled_from(["kill", "freeze", "wake", "release", "end"])),
    st.just(Action("", "start")),
    st.builds(lambda at, what: Action(at, "lose", path=what), st.one_of(st.just(""), _at), st.sampled_from(sorted(LOSSES))),
    st.builds(lambda at: Action(at, "keep", path="log"), _at),
    st.builds(lambda who, words: Action("", "parked", who, path=words), whos, paths),
    st.builds(lambda command: Action("", "person", path=command), paths),
    st.builds(
        lambda at, path, content: Action(at, "edit", path=path, content=content), st.one_of(st.just(""), _at), paths, st.none() | texts
    ),
)
"""Every action that can be meant, of every verb, with its names in full."""
