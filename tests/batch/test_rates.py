"""Rate limits: requests and tokens per minute reach the limit, and do not exceed it."""

import asyncio
from random import Random
from time import perf_counter
from unittest.mock import patch

import pytest

from lazyprompt.batch.rates import Bucket, Pace, Rates
from lazyprompt.errors import BatchError

HUNDRED = {"completion_tokens": 100, "total_tokens": 100}


@pytest.mark.parametrize(("limit", "largest"), [(60, 1), (1_000, 1), (1, 1), (60_000, 4_000), (1_000, 5_000)])
def test_a_bucket_stays_within_its_limit_in_every_minute(limit: int, largest: int) -> None:
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


def test_constant_demand_uses_the_whole_limit() -> None:
    bucket, now = Bucket(600), 5.0
    for _ in range(601):
        now += bucket.wait(now)
        bucket.take(1, now)
        now += 0.03  # a timer that is late
    assert now == pytest.approx(5.0 + 60.0, abs=0.2)


def test_idle_time_is_not_saved_for_a_burst() -> None:
    bucket = Bucket(60)
    bucket.take(1, 0.0)
    for at in (500.0, 500.9):
        assert bucket.wait(at) == 0
        bucket.take(1, at)
    assert bucket.wait(500.9) == pytest.approx(1.0)


def test_overestimated_tokens_are_returned_immediately() -> None:
    async def turns() -> None:
        pace = Pace(Rates(tpm=600))
        taken = await pace.turn(100)  # with the estimate of its response, the tokens of one minute
        asyncio.get_running_loop().call_later(0.02, pace.settle, taken, {"completion_tokens": 1, "total_tokens": 1})
        await asyncio.wait_for(pace.turn(1), 20)  # without the returned tokens: a minute

    asyncio.run(turns())


def test_a_response_longer_than_estimated_delays_the_next_request() -> None:
    async def wait() -> None:
        pace = Pace(Rates(tpm=6_000_000))
        taken = await pace.turn(10)
        pace.settle(taken, {"completion_tokens": 20_000, "total_tokens": 20_010})  # 0.2 s
        begun = perf_counter()
        assert await pace.turn(0) == 20_000  # estimated from the earlier response
        assert perf_counter() - begun >= 0.15

    with patch.object(Bucket, "wait", autospec=True, side_effect=Bucket.wait) as waits:
        asyncio.run(wait())
    assert waits.call_count < 9, "it sleeps while it waits"


def test_unreported_usage_is_replaced_by_the_estimate() -> None:
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

    # The estimate is the mean of the reported responses; missing completion tokens count as 0.
    assert asyncio.run(takings()) == [507, 507, 107, 57]


def test_the_request_limit_applies_without_a_token_limit() -> None:
    async def turns() -> float:
        pace, begun = Pace(Rates(rpm=600)), perf_counter()
        for _ in range(3):
            await pace.turn(9)  # one in 0.1 s
        assert not pace.counts
        return perf_counter() - begun

    assert asyncio.run(turns()) >= 0.15


def test_without_limits_requests_do_not_wait_and_tokens_are_not_counted() -> None:
    async def turns() -> bool:
        pace = Pace(Rates())
        for _ in range(1_000):
            pace.settle(await pace.turn(0), HUNDRED)
        return pace.counts

    assert asyncio.run(turns()) is False


@pytest.mark.parametrize("name", ["concurrency", "rpm", "tpm"])
def test_a_limit_of_zero_is_refused(name: str) -> None:
    with pytest.raises(BatchError, match=f"{name} must be 1 or more, not 0"):
        Rates(**{name: 0})
