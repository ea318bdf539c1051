"""One session's redriver in a made-up world: what it starts, when, and when it stops. No process, no waiting."""

import random

import msgspec

from recovery.redrive.conformance.made_up import START_WALL_MS, Died, Life, MadeUpClock, MadeUpWorld, made_redrive, run
from recovery.redrive.policy import Ended, Limits

CRASH = Ended("killed", 9)
LIMITS = Limits(attempts=4, backoff_secs=1.0, most_secs=60.0, stall_secs=120.0, grace_secs=600.0)


def world_of(*lives: Life) -> MadeUpWorld:
    return MadeUpWorld(MadeUpClock(), list(lives))


def test_a_session_is_driven_until_it_has_finished() -> None:
    world = world_of(Life(3, CRASH, progress=True), Life(5, CRASH), Life(1, Ended("exited", 0), finishes=True))
    assert run(made_redrive(world, LIMITS), world) == 0
    assert world.epochs == [1, 2, 3]
    assert [one.ended for one in world.load().attempts] == ["killed by signal 9", "killed by signal 9", "exit 0"]
    assert world.load().is_finished


def test_a_driver_that_committed_progress_is_followed_at_once_one_that_did_not_after_a_delay() -> None:
    world = world_of(Life(10, CRASH, progress=True), Life(10, CRASH), Life(10, Ended("exited", 0), finishes=True))
    run(made_redrive(world, LIMITS), world)
    first, second, third = world.starts
    assert second - first == 10 and 10.5 <= third - second <= 11.5
    assert [one.delay_ms for one in world.load().attempts][:2] == [0, 0] and 500 <= world.load().attempts[2].delay_ms <= 1000


def test_delays_come_from_the_seed() -> None:
    def starts(seed: int) -> list[float]:
        world = world_of(*[Life(1, CRASH)] * 4)
        assert run(made_redrive(world, LIMITS, seed=seed), world) == 78
        return world.starts

    assert starts(5) == starts(5) and starts(5) != starts(6)


def test_a_parked_session_stays_parked_until_a_person_says_retry() -> None:
    said: list[str] = []
    world = world_of(*[Life(1, CRASH)] * 4, Life(1, CRASH), Life(1, Ended("exited", 0), finishes=True))
    assert run(made_redrive(world, LIMITS, said), world) == 78
    assert said[-1] == (
        "s: parked: 4 drivers were started and none committed progress; the last: killed by signal 9; "
        "`recovery redrive STATE_DIR --retry` goes on"
    )
    published = world.published
    assert run(made_redrive(world, LIMITS), world) == 78 and (len(world.starts), world.published) == (4, published)
    assert run(made_redrive(world, LIMITS, retry=True), world) == 0 and len(world.starts) == 6


def test_a_driver_that_needs_a_person_parks_the_session_with_its_sentence() -> None:
    said: list[str] = []
    world = world_of(Life(1, Ended("exited", 78, "call 1 waits")), Life(1, Ended("exited", 0), finishes=True))
    assert run(made_redrive(world, LIMITS, said), world) == 78 and "parked: call 1 waits" in said[-1]
    assert run(made_redrive(world, LIMITS), world) == 78 and len(world.starts) == 1
    world.seen = msgspec.structs.replace(world.seen, head_seq=world.seen.head_seq + 1)  # somebody answered
    assert run(made_redrive(world, LIMITS), world) == 0


def test_an_answer_that_comes_before_the_end_is_looked_at_is_not_lost() -> None:
    """The driver had asked and was gone; a person answered before the redriver looked at the log."""
    world = world_of(Life(1, Ended("exited", 78, "call 1 waits"), answered=True), Life(1, Ended("exited", 0), finishes=True))
    assert run(made_redrive(world, LIMITS), world) == 78
    assert run(made_redrive(world, LIMITS), world) == 0


def test_what_stood_in_the_log_when_a_driver_was_begun_lifts_nothing() -> None:
    """A driver that refused before it wrote anything had seen what others had written: it is not started again for that."""
    world = world_of(Life(1, Ended("exited", 78, "another configuration")))
    world.seen = msgspec.structs.replace(world.seen, head_seq=9)
    assert run(made_redrive(world, LIMITS), world) == 78
    assert run(made_redrive(world, LIMITS), world) == 78


def test_a_pause_is_not_ended_by_a_redriver() -> None:
    world = world_of(Life(1, Ended("exited", 78, "paused"), pauses=True), Life(1, Ended("exited", 0), finishes=True))
    assert run(made_redrive(world, LIMITS), world) == 78
    assert run(made_redrive(world, LIMITS), world) == 78 and len(world.starts) == 1
    assert run(made_redrive(world, LIMITS, retry=True), world) == 0


def test_a_silent_driver_is_ended_and_counted() -> None:
    world = world_of(*[Life(1e6, CRASH, every=1e7)] * 4)
    assert run(made_redrive(world, LIMITS), world) == 78
    assert all(lived.killed for lived in world.drivers) and len(world.drivers) == 4
    assert {one.ended for one in world.load().attempts} == {"stalled: silent for 600 s, and killed"}


def test_a_driver_that_fell_silent_is_ended_before_the_grace() -> None:
    world = world_of(Life(1e6, CRASH, every=1.0), Life(1, Ended("exited", 0), finishes=True))
    redrive = made_redrive(world, LIMITS)
    run(redrive, world, until=30)
    world.drivers[0].life = Life(1e6, CRASH, every=1e5)  # not a word more
    silent_from = world.clock.time
    assert run(redrive, world) == 0
    assert world.drivers[0].killed and 119 <= world.starts[1] - silent_from <= 122


def test_a_driver_whose_output_cannot_be_read_is_not_ended() -> None:
    world = world_of(Life(5_000, Ended("exited", 0), finishes=True, every=0))
    world.is_readable = False
    assert run(made_redrive(world, LIMITS), world) == 0 and not world.drivers[0].killed


def test_a_restarted_redriver_leaves_a_driver_that_lives_alone_and_waits_for_its_end() -> None:
    world = world_of(Life(100, CRASH, progress=True), Life(1, Ended("exited", 0), finishes=True))
    run(made_redrive(world, LIMITS), world, until=20)
    said: list[str] = []
    assert run(made_redrive(world, LIMITS, said), world) == 0
    assert said[0] == "s: driver 100 lives and is left alone"
    assert world.starts[1] >= 100 and [one.ended for one in world.load().attempts] == ["ended while nobody watched", "exit 0"]


def test_case_26_a_call_that_kills_its_driver_is_counted_whenever_it_does() -> None:
    """At once, after 3 s, after 40 s of healthy running; the redriver is restarted in between: the attempts add up, delays grow, and after
    the limit the session ends with its reason."""
    for secs in (0.0, 3.0, 40.0):
        world = world_of(*[Life(secs, CRASH)] * 4)
        code, restarts = None, 0
        while code is None:
            code = run(made_redrive(world, LIMITS), world, until=world.clock.time + 5)
            restarts += 1
            assert restarts < 1000
        assert code == 78 and len(world.starts) == 4 and (restarts > 1 or secs < 40)
        delays = [one.delay_ms for one in world.load().attempts]
        assert delays[0] == 0 and delays[1] <= 1000 <= delays[2] <= 2000 <= delays[3] <= 4000
        parked = world.load().parked
        assert parked is not None and parked.reason.startswith("4 drivers were started and none committed progress")


def test_case_26_an_attempt_is_counted_before_it_is_made() -> None:
    """A redriver that is killed between the two has counted a start that never was, and not made one that never counted."""
    world = world_of(Life(1, CRASH), Life(1, Ended("exited", 0), finishes=True))

    class KilledError(Exception):
        """The redriver's end."""

    def die(*_: object) -> None:
        raise KilledError

    honest, world.tell = world.tell, die  # type: ignore[method-assign,assignment]
    try:
        made_redrive(world, LIMITS).step()
    except KilledError:
        pass
    assert len(world.load().attempts) == 1 and not world.starts
    world.tell = honest  # type: ignore[method-assign]
    assert run(made_redrive(world, LIMITS), world) == 0 and world.epochs == [2]


def test_case_27_starts_and_stalls_do_not_follow_the_wall_clock() -> None:
    """Set by -1 h, +1 h, +10 years, frozen, at any moment, in a backoff above all: the same starts at the same monotonic times, no wait
    that is negative or endless; the record tells the times as they were."""

    def play(jump: int | None, at: float) -> tuple[list[float], list[int]]:
        world = world_of(Life(3, CRASH), Life(1e6, CRASH, every=1e7), Life(2, CRASH), Life(1, Ended("exited", 0), finishes=True))
        frozen = START_WALL_MS
        world.clock.wall = lambda time: frozen if jump is None else START_WALL_MS + round(time * 1000) + (jump if time >= at else 0)
        assert run(made_redrive(world, LIMITS), world) == 0
        return world.starts, [one.at_ms for one in world.load().attempts]

    expected, _ = play(0, 0.0)
    hour = 3_600_000
    for at in (0.0, 3.2, 4.0, 300.0):
        for jump in (-hour, hour, 10 * 365 * 24 * hour, None):
            starts, times = play(jump, at)
            assert starts == expected and len(times) == 4
    assert sorted(play(-hour, 4.0)[1]) != play(-hour, 4.0)[1], "times that run backwards are told as they were"


def test_case_28_a_verdict_after_the_end_changes_nothing_however_often_it_comes() -> None:
    """The driver is killed after the commit that ends the session and before it tells anybody: the log is read first, then the death
    judged."""
    world = world_of(Life(5, CRASH, finishes=True))
    assert run(made_redrive(world, LIMITS), world) == 0
    stored, seen = world.stored, world.seen
    for _ in range(3):
        assert run(made_redrive(world, LIMITS), world) == 0
        assert run(made_redrive(world, LIMITS, retry=False), world) == 0
    assert (world.stored, world.seen, len(world.starts)) == (stored, seen, 1)


def test_random_lives_always_come_to_an_end_and_never_overlap() -> None:
    """By seed: whatever drivers do, the session ends finished or parked, within its starts, and the made-up world refuses a driver beside a
    living one."""
    for seed in range(200):
        chance = random.Random(seed)
        lives = [
            Life(
                chance.choice([0.0, 0.3, 5.0, 700.0]),
                chance.choice([CRASH, Ended("exited", 1), Ended("exited", 75), Ended("exited", 70), Ended("exited", 78, "x")]),
                progress=chance.random() < 0.3,
                finishes=chance.random() < 0.1,
                every=chance.choice([0.0, 1.0, 300.0]),
            )
            for _ in range(400)
        ]
        world = world_of(*lives)
        code = None
        while code is None:
            code = run(made_redrive(world, LIMITS, seed=seed), world, until=world.clock.time + chance.choice([0.2, 50.0, 1e6]))
        assert (code == 0) == world.seen.is_finished and code in (0, 78), f"seed {seed}"


def die(world: MadeUpWorld, place: str, since: float = 0.0) -> None:
    """Redrive, and be killed there, at the first time after `since`."""
    redrive = made_redrive(world, LIMITS)
    run(redrive, world, until=since)
    world.dies_at = place
    try:
        run(redrive, world)
    except Died:
        return
    raise AssertionError(f"there was no {place}")


def test_the_start_behind_a_driver_that_has_run_is_counted_ahead_and_nothing_is_written_before_it() -> None:
    world = world_of(Life(10, CRASH, progress=True), Life(1, CRASH, progress=True), Life(1, Ended("exited", 0), finishes=True))
    assert run(made_redrive(world, LIMITS), world) == 0
    long, short = ["publish", "tell", "publish"], ["tell", "publish"]
    assert world.happened[:7] == [*long, *short, "publish", "tell"], "the second driver was short: the third is counted when it starts"
    assert world.epochs == [1, 2, 3] and [one.ended for one in world.load().attempts] == ["killed by signal 9"] * 2 + ["exit 0"]


def test_a_start_that_was_counted_ahead_and_never_made_is_none() -> None:
    """The redriver is killed again and again while a driver runs well: no start is on the count that was not made."""
    world = world_of(Life(100, CRASH), *[Life(1, Ended("exited", 0), finishes=True)] * 9)
    for number in range(1, 8):
        run(made_redrive(world, LIMITS), world, until=number * 10)
    assert len(world.stored_record().attempts) == 1
    assert run(made_redrive(world, LIMITS), world) == 0 and len(world.load().attempts) == 2


def test_a_start_that_was_counted_ahead_is_on_the_count_wherever_its_redriver_is_killed() -> None:
    for place in ("after tell", "before publish", "after publish"):
        world = world_of(*[Life(10, CRASH)] * LIMITS.attempts)
        die(world, place, since=5.0)
        for _ in range(LIMITS.attempts):
            if run(made_redrive(world, LIMITS), world) is not None:
                break
        begun = [lived.identity for lived in world.drivers if lived.told_at is not None]
        assert {one.driver for one in world.load().attempts} == set(begun), place
        assert len(begun) == len(set(begun)) == LIMITS.attempts, f"{place}: {len(begun)} drivers were begun"


def test_an_epoch_that_somebody_used_meanwhile_is_not_used_for_a_start_that_was_counted_ahead() -> None:
    world = world_of(Life(10, CRASH, progress=True), Life(1, Ended("exited", 0), finishes=True))
    redrive = made_redrive(world, LIMITS)
    run(redrive, world, until=5)
    assert world.stored_record().ready is not None
    world.used_epoch = 7
    assert run(redrive, world) == 0 and world.epochs == [1, 8]


def test_a_process_that_died_while_it_waited_is_followed_by_another_that_is_counted_ahead() -> None:
    world = world_of(Life(20, CRASH, progress=True), Life(1, Ended("exited", 0), finishes=True))
    redrive = made_redrive(world, LIMITS)
    run(redrive, world, until=5)
    first, world.idle = world.stored_record().ready, None
    run(redrive, world, until=10)
    second = world.stored_record().ready
    assert first is not None and second is not None and first.driver != second.driver and second.epoch == first.epoch + 1
    world.happened.clear()
    assert run(redrive, world) == 0 and world.happened[0] == "tell" and world.drivers[1].identity == second.driver
