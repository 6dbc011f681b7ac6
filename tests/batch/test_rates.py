"""No more goes out in a minute than may, and no less."""

import asyncio
from random import Random
from time import perf_counter
from unittest.mock import patch

import pytest

from lazyprompt.batch.rates import Bucket, Pace, Rates
from lazyprompt.errors import BatchError

HUNDRED = {"completion_tokens": 100, "total_tokens": 100}


@pytest.mark.parametrize(("limit", "largest"), [(60, 1), (1_000, 1), (1, 1), (60_000, 4_000), (1_000, 5_000)])
def test_in_no_minute_is_more_taken_than_the_limit_a_tenth_of_a_second_and_the_last(limit: int, largest: int) -> None:
    random = Random(f"{limit}")  # noqa: S311 - no secret
    bucket, now, taken = Bucket(limit), 1_000.0, list[tuple[float, int]]()
    for _ in range(400):
        now += random.choice((0, 0, 0, 0.01, 3)) + bucket.wait(now)
        amount = random.randint(1, largest)
        bucket.take(amount, now)
        taken.append((now, amount))
    for begin, _ in taken:
        within = [amount for at, amount in taken if begin <= at < begin + 60]
        assert sum(within[:-1]) <= limit * 60.1 / 60 + 1e-6


def test_who_always_asks_gets_the_whole_limit() -> None:
    bucket, now = Bucket(600), 5.0
    for _ in range(601):
        now += bucket.wait(now)
        bucket.take(1, now)
        now += 0.03  # a timer that is late
    assert now == pytest.approx(5.0 + 60.0, abs=0.2)


def test_time_in_which_nothing_was_asked_is_not_saved_up() -> None:
    bucket = Bucket(60)
    bucket.take(1, 0.0)
    for at in (500.0, 500.9):
        assert bucket.wait(at) == 0
        bucket.take(1, at)
    assert bucket.wait(500.9) == pytest.approx(1.0)


def test_what_was_taken_too_much_is_given_back_at_once() -> None:
    async def turns() -> None:
        pace = Pace(Rates(tpm=600))
        taken = await pace.turn(100)  # with the first guess of its answer, it is a minute's worth
        asyncio.get_running_loop().call_later(0.02, pace.settle, taken, {"completion_tokens": 1, "total_tokens": 1})
        await asyncio.wait_for(pace.turn(1), 20)  # without what is given back: a minute

    asyncio.run(turns())


def test_an_answer_that_was_longer_than_thought_makes_the_next_wait() -> None:
    async def wait() -> None:
        pace = Pace(Rates(tpm=6_000_000))
        taken = await pace.turn(10)
        pace.settle(taken, {"completion_tokens": 20_000, "total_tokens": 20_010})  # 0.2 s
        begun = perf_counter()
        assert await pace.turn(0) == 20_000  # as long as those before it
        assert perf_counter() - begun >= 0.15

    with patch.object(Bucket, "wait", autospec=True, side_effect=Bucket.wait) as asked:
        asyncio.run(wait())
    assert asked.call_count < 9, "it sleeps while it waits"


def test_who_does_not_tell_tokens_is_taken_to_have_what_was_guessed() -> None:
    async def takings() -> list[int]:
        pace = Pace(Rates(tpm=100_000_000))
        first = await pace.turn(7)
        pace.settle(first, None)
        second = await pace.turn(7)
        pace.settle(second, HUNDRED)
        third = await pace.turn(7)
        pace.settle(third, {"total_tokens": 9})
        pace.settle(0, {"completion_tokens": 5, "total_tokens": 0})
        return [first, second, third, await pace.turn(7)]

    # The mean of the answers so far; one without a count of its own counts as none.
    assert asyncio.run(takings()) == [507, 507, 107, 57]


def test_requests_wait_although_tokens_are_not_limited() -> None:
    async def turns() -> float:
        pace, begun = Pace(Rates(rpm=600)), perf_counter()
        for _ in range(3):
            await pace.turn(9)  # one in 0.1 s
        assert not pace.counts
        return perf_counter() - begun

    assert asyncio.run(turns()) >= 0.15


def test_without_limits_nobody_waits_or_counts() -> None:
    async def turns() -> bool:
        pace = Pace(Rates())
        for _ in range(1_000):
            pace.settle(await pace.turn(0), HUNDRED)
        return pace.counts

    assert asyncio.run(turns()) is False


@pytest.mark.parametrize("name", ["concurrency", "rpm", "tpm"])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(BatchError, match=f"{name} must be 1 or more, not 0"):
        Rates(**{name: 0})
