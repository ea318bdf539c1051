"""The HTML page: one file, everything of a run in it, and nothing of it is read as HTML."""

import re
from html.parser import HTMLParser

from chaos.results import Action, OracleVerdict, Verdict
from reports.html import render_html
from reports.load import Judgement
from tests.reports.makers import make_clean, make_plan, make_run, make_trial

EVIL = '<script>alert(1)</script>"\x1b[2J'


class Tags(HTMLParser):
    """The tags of a page, and what they refer to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.places: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open += [tag] * (tag != "meta")
        self.places += [f"{name}={value}" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_holds_summary_failures_with_commands_and_both_coverages() -> None:
    differs = OracleVerdict("workspace", Verdict.FAIL, "content differs", "a.txt", "11", "22", "session 5 call_settled")
    failed = make_trial(1, Verdict.FAIL, oracles=(differs,), kept="runs/1/artifacts/small-1")
    passed = make_plan(2, "kill", Action("shim.1@1:exit:1", "kill"), labels={"adopt_exit": 1})
    page = render_html(make_run(make_clean(), failed, passed, judgement=Judgement(Verdict.FAIL, ("a reason",))))
    for text in (
        "fail by workspace of a path, nothing decided: content differs", "chaos replay runs/1/artifacts/small-1/trial.json --explain",
        "chaos shrink runs/1/artifacts/small-1", "--step driver@1:s:1 --fault kill --seed 7", "a reason", "shim:exit",
        'title="adopt_exit 1"', "chaos --seed 7",
    ):  # fmt: skip
        assert text in page, text
    assert not Tags(page).open


def test_a_page_of_no_failures_says_so() -> None:
    assert "Every trial passed." in render_html(make_run(make_clean()))


def test_names_of_a_run_are_escaped_and_the_page_asks_for_nothing() -> None:
    evil = make_plan(
        1, "edit", Action("", "edit", "", EVIL, EVIL), scenario=EVIL, verdict=Verdict.FAIL, reason=EVIL, kept=EVIL,
        oracles=(OracleVerdict(EVIL, Verdict.FAIL, EVIL, EVIL, EVIL, EVIL, EVIL),), labels={EVIL: 1},
    )  # fmt: skip
    page = render_html(make_run(evil, judgement=Judgement(Verdict.FAIL, (EVIL,))))
    tags = Tags(page)
    assert "script" not in tags.tags and not tags.places and "&lt;script&gt;" in page
    assert not re.search(r"[^\n\x20-\x7e]", page)
