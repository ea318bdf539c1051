"""Zygotes at work: a group of requests stays with one of them, and none is idle while requests are left.

Whether two are at work at a time is asked of a barrier: it lets nobody pass alone.
"""

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from chaos.pool import AHEAD, RESTARTS, AllLostError, Answered, Began, Lost, Pool
from chaos.zygote_client import Zygote, ZygoteError, ZygoteLostError
from tests.chaos.fakes import FakeZygote

TOGETHER_SECS = 120
Ask = Callable[[Zygote, str], int]


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Two zygotes."""
    pool = Pool(start, 2)
    yield pool
    pool.close()


def start(slot: int) -> FakeZygote:
    return FakeZygote({}, slot=slot)


def together() -> Ask:
    """Answers a request with the slot that took it, and only while the other slot works on one too."""
    both = threading.Barrier(2)

    def ask(zygote: Zygote, request: str) -> int:
        both.wait(TOGETHER_SECS)
        return zygote.slot

    return ask


def group_of(request: str) -> str:
    """`a2` is a request of the group `a`."""
    return request[0]


def work(pool: Pool, requests: Sequence[str], ask: Ask) -> dict[str, int]:
    """Which slot answered each request, in the order of the answers."""
    answers: dict[str, int] = {}
    for news in pool.work(requests, ask, group_of):
        if isinstance(news, Answered):
            assert news.value is not None, news.trouble
            answers[news.request] = news.value
    return answers


def slots_of(answers: dict[str, int]) -> dict[str, set[int]]:
    """The slots that worked on each group."""
    slots: dict[str, set[int]] = {}
    for request, slot in answers.items():
        slots.setdefault(group_of(request), set()).add(slot)
    return slots


def test_each_of_two_groups_stays_with_one_zygote(pool: Pool) -> None:
    answers = work(pool, ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"], together())
    slots = slots_of(answers)
    assert sorted(map(sorted, slots.values())) == [[1], [2]]


def test_all_zygotes_are_kept_at_work_at_the_end(pool: Pool) -> None:
    answers = work(pool, ["a1", "a2", "a3", "a4", "a5", "b1"], together())
    assert len(answers) == 6
    assert slots_of(answers)["a"] == {1, 2}


def test_one_group_alone_keeps_all_at_work(pool: Pool) -> None:
    assert slots_of(work(pool, ["a1", "a2", "a3", "a4"], together())) == {"a": {1, 2}}


def test_a_group_goes_home_in_the_next_batch(pool: Pool) -> None:
    first = slots_of(work(pool, ["a1", "b1"], together()) | work(pool, ["c1"], lambda zygote, request: zygote.slot))
    homes = {group: next(iter(slots)) for group, slots in first.items()}
    shares = {slot: sum(home == slot for home in homes.values()) for slot in (1, 2)}
    # As much work for the zygote with one group as for the one with two.
    requests = [f"{group}{number}" for group in "cab" for number in range(4 // shares[homes[group]])]
    assert slots_of(work(pool, requests, together())) == first


def test_requests_of_a_group_are_answered_in_order_and_the_largest_group_first() -> None:
    pool = Pool(start, 1)
    for _ in range(2):  # the second time all of them are at home
        answers = work(pool, ["a1", "b1", "a2", "b2", "c1", "b3"], lambda zygote, request: zygote.slot)
        assert list(answers) == ["b1", "b2", "b3", "a1", "a2", "c1"]
    pool.close()


def test_every_request_is_begun_and_answered_once_whatever_happens(pool: Pool) -> None:
    def ask(zygote: Zygote, request: str) -> int:
        if request == "a2":
            raise ZygoteError("it cannot")
        if request == "b1":
            raise ZygoteLostError("it is gone")
        return zygote.slot

    news = list(pool.work(["a1", "a2", "b1", "b2"], ask, group_of))
    assert sorted(one.request for one in news if isinstance(one, Began)) == ["a1", "a2", "b1", "b2"]
    answers = {one.request: (one.value is None, one.trouble) for one in news if isinstance(one, Answered)}
    assert answers == {"a1": (False, ""), "a2": (True, "it cannot"), "b1": (True, "it is gone"), "b2": (False, "")}
    assert [one.reason for one in news if isinstance(one, Lost)] == ["it is gone"]


def test_a_lost_zygote_is_closed_and_another_takes_its_slot() -> None:
    started: list[FakeZygote] = []

    def begin(slot: int) -> FakeZygote:
        started.append(start(slot))
        return started[-1]

    def ask(zygote: Zygote, request: str) -> int:
        if len(started) <= RESTARTS:
            raise ZygoteLostError("it is gone")
        return len(started)

    pool = Pool(begin, 1)
    news = list(pool.work(["a1", "a2", "a3", "a4", "a5"], ask, group_of))
    assert [one.value for one in news if isinstance(one, Answered)] == [None] * RESTARTS + [RESTARTS + 1] * 2
    assert {zygote.slot for zygote in started} == {1}
    assert [zygote.lost for zygote in started] == [True] * RESTARTS + [False]
    pool.close()
    assert started[-1].lost


def test_when_all_are_lost_the_rest_is_no_answer() -> None:
    def ask(zygote: Zygote, request: str) -> int:
        raise ZygoteLostError("it is gone")

    with pytest.raises(AllLostError, match=r"all zygotes are lost, 2 requests are left: it is gone"):
        list(Pool(start, 1).work([f"a{number}" for number in range(RESTARTS + 3)], ask, group_of))


def test_after_a_stop_only_what_was_begun_is_answered() -> None:
    pool = Pool(start, 1)
    done = 0
    for news in pool.work([f"a{number}" for number in range(20)], lambda zygote, request: zygote.slot, group_of):
        if isinstance(news, Answered):
            done += 1
            pool.stop()
    assert 1 <= done <= 1 + AHEAD
    pool.close()
