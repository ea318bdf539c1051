"""What every clock, source of ids and host must do: the real ones and the fakes run one suite."""

import string

import pytest

from eventlog.ports import Clock, CountingIds, FakeClock, FakeHost, Host, Ids, LinuxHost, RandomIds, SystemClock

CLOCKS = [SystemClock, FakeClock, lambda: FakeClock(now_ms=1_700_000_000_000)]
ID_SOURCES = [RandomIds, CountingIds, lambda: CountingIds(first=1 << 100)]
HOSTS = [LinuxHost, FakeHost, lambda: FakeHost("boot-2", 4026531836)]


@pytest.fixture(params=CLOCKS, ids=["system", "fake", "fake of today"])
def clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


@pytest.fixture(params=ID_SOURCES, ids=["random", "counting", "counting from far"])
def ids(request: pytest.FixtureRequest) -> Ids:
    made: Ids = request.param()
    return made


@pytest.fixture(params=HOSTS, ids=["linux", "fake", "fake after a reboot"])
def host(request: pytest.FixtureRequest) -> Host:
    made: Host = request.param()
    return made


def test_a_clock_tells_people_whole_milliseconds_from_1970_on(clock: Clock) -> None:
    now = clock.now_ms()
    assert type(now) is int and now > 0


def test_a_clock_for_deadlines_never_runs_back(clock: Clock) -> None:
    seen = [clock.monotonic() for _ in range(100)]
    assert seen == sorted(seen) and all(isinstance(one, float) for one in seen)


@pytest.mark.parametrize("seconds", [0.0, 0.0004, 0.0014, 0.0025])
def test_a_pause_takes_at_least_as_long_as_it_says(clock: Clock, seconds: float) -> None:
    before = clock.monotonic()
    clock.pause(seconds)
    assert clock.monotonic() - before >= seconds - 1e-6


def test_a_poll_that_pauses_comes_to_its_deadline(clock: Clock) -> None:
    deadline = clock.monotonic() + 0.005
    polls = 0
    while clock.monotonic() < deadline:
        clock.pause(0.0001)
        polls += 1
    assert 1 <= polls <= 100


def test_ids_are_16_bytes_and_never_come_twice(ids: Ids) -> None:
    made = [ids.new_id() for _ in range(2000)]
    assert all(type(one) is bytes and len(one) == 16 for one in made)
    assert len(set(made)) == len(made)


def test_a_boot_id_is_one_printable_word_that_stays(host: Host) -> None:
    boot = host.boot_id()
    assert boot and set(boot) <= set(string.ascii_letters + string.digits + "-")
    assert host.boot_id() == boot


def test_a_pid_namespace_is_a_number_that_stays(host: Host) -> None:
    namespace = host.pid_namespace()
    assert type(namespace) is int and namespace > 0
    assert host.pid_namespace() == namespace


def test_real_ids_of_two_sources_differ() -> None:
    first, second = RandomIds(), RandomIds()
    assert not {first.new_id() for _ in range(100)} & {second.new_id() for _ in range(100)}


def test_the_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(now_ms=5000)
    assert [clock.now_ms() for _ in range(3)] == [5000] * 3 and clock.monotonic() == 5.0
    clock.pause(1.5)
    assert (clock.now_ms(), clock.pauses) == (6500, 1)


def test_the_fake_host_reboots_when_told() -> None:
    host = FakeHost()
    before = host.boot_id()
    host.boot = "boot-2"
    assert host.boot_id() != before
