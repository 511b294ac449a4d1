"""The rate limiter with workers and a queue, in virtual time: how long all jobs take, and who waits for whom."""

from __future__ import annotations

import pytest

from core.llm.catalog import Model, Rate
from tests.unit.core.llm.simulation import Arrival, Outcome, simulate

SEEDS = range(5)
ASK_SECONDS = [0.01, 0.02, 0.04]
TEN = Model(name="bedrock/m", requests=Rate.parse("10/s"))


def last(outcome: Outcome, owner: str | None = None) -> float:
    return max(outcome.starts[owner] if owner else outcome.all_starts)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ask_seconds", ASK_SECONDS)
def test_hundred_jobs(ask_seconds: float, seed: int) -> None:
    """100 jobs at 10/s start within 10 % of the ideal time, and never more than 10 in a second."""
    found = simulate(TEN, [Arrival("ana", 100)], ask_seconds=ask_seconds, seed=seed)
    assert len(found.all_starts) == 100
    assert found.most_in(1) <= 10
    assert last(found) <= 1.1 * 9.9


@pytest.mark.parametrize("seed", SEEDS)
def test_small_owner_beside_a_large_one(seed: int) -> None:
    """With 10 jobs beside 990, an owner is not behind them, and all jobs take no more than 5 % longer."""
    found = simulate(TEN, [Arrival("ana", 990), Arrival("ben", 10)], seed=seed)
    assert last(found, "ben") <= 10
    assert last(found) <= 1.05 * 99.9
    assert found.most_in(1) <= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_small_owner_that_comes_later(seed: int) -> None:
    """It is done as soon, although the others have waited for twenty seconds."""
    found = simulate(TEN, [Arrival("ana", 990), Arrival("ben", 10, at=20)], seed=seed)
    assert last(found, "ben") <= 20 + 13


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_ten_small_owners_beside_a_large_one(seed: int) -> None:
    """300 jobs of ten owners are done long before the 700 of another one."""
    owners = [f"small-{number}" for number in range(10)]
    found = simulate(TEN, [Arrival("large", 700), *(Arrival(owner, 30) for owner in owners)], seed=seed)
    assert max(last(found, owner) for owner in owners) <= 44
    assert last(found) <= 1.05 * 99.9
    assert found.most_in(1) <= 10


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_limit_per_minute(seed: int) -> None:
    """With 100/m, four workers start 300 jobs within 5 % of the ideal time, never more than 100 in a minute."""
    minute = Model(name="bedrock/m", requests=Rate.parse("100/m"))
    found = simulate(minute, [Arrival("ana", 300)], workers=4, seed=seed)
    assert found.most_in(60) <= 100
    assert last(found) <= 1.05 * 179.4


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_limit_of_tokens(seed: int) -> None:
    """Jobs that reserve 3000 and use 700 tokens, at 60,000 a minute, take about the time of the used ones."""
    limited = Model(name="bedrock/m", tokens=Rate.parse("60000/m"))
    found = simulate(limited, [Arrival("ana", 290), Arrival("ben", 10)], tokens=3000, used=700, seed=seed)
    assert found.most_in(60) * 700 <= 60_000
    assert last(found, "ben") <= last(found) / 3
    assert last(found) <= 240  # 3.5 windows of used tokens, 15 of reserved ones
    assert found.asks <= 6 * 300
