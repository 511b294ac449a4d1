"""Polling intervals (core.jobs.polling_interval), compared with fixed intervals and backoff by simulation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jobs.polling_interval import (
    MAX_DELAY,
    MAX_DELAY_SECONDS,
    MAX_REMAINING,
    MAX_SAMPLES,
    MIN_SAMPLES,
    History,
    expected_duration,
    next_poll,
)

TWO_HOURS = 7200.0
UNKNOWN = History()
UNKNOWN_DURATIONS = range(600, 7201, 7)

Share = Callable[[float], float]


@dataclass(frozen=True)
class Cost:
    """The number of requests including the POST, and the seconds from the job's end until a client knows it."""

    requests: int
    late: float


def simulate(duration: float, intervals: Iterator[float]) -> Cost:
    """The cost of polling with these intervals until the job has ended."""
    age, requests = 0.0, 1
    while age < duration:
        age += next(intervals)
        requests += 1
    return Cost(requests, age - duration)


def every(seconds: float) -> Iterator[float]:
    while True:
        yield seconds


def backoff(base: float = 1, cap: float = 60) -> Iterator[float]:
    attempt = 0
    while True:
        yield min(base * 2**attempt, cap)
        attempt += 1


def recommended(duration: float, history: History = UNKNOWN, share: Share | None = None) -> Cost:
    """The cost of polling with the recommended intervals. `share`: progress by share of the duration."""

    def intervals() -> Iterator[float]:
        age = 0.0
        while True:
            interval = next_poll(age, history=history, progress=share(age / duration) if share else None)
            yield interval
            age += interval

    return simulate(duration, intervals())


def is_late(duration: float, cost: Cost) -> bool:
    """Whether the end is known later than 5 % of the duration and 30 s."""
    return cost.late > max(MAX_DELAY * duration, MAX_DELAY_SECONDS)


def kind(usual: float, chance: random.Random, samples: int = MAX_SAMPLES) -> tuple[History, float]:
    """A history of this many jobs and the duration of the next one, all of them `usual` ± 20 %."""
    history = UNKNOWN
    for _ in range(samples):
        history = history.with_one(usual * chance.uniform(0.8, 1.2))
    return history, usual * chance.uniform(0.8, 1.2)


def in_steps(total: int) -> Share:
    """Even progress in this many batches, the batch in progress included."""
    return lambda done: min(math.floor(done * total) + 1, total) / total


# ── other schedules ──────────────────────────────────────────────────────────────────────────────────────────


def test_other_schedules() -> None:
    """For two hours, once a minute takes 121 requests; backoff 1, 2, 4, … up to 60 s takes 126."""
    assert simulate(TWO_HOURS, every(60)) == Cost(121, 0)
    assert simulate(TWO_HOURS, backoff()).requests == 126


# ── kinds with a history ─────────────────────────────────────────────────────────────────────────────────────


def test_known_kind() -> None:
    """Two hours ± 20 % take at most 12 requests, where once a minute takes 97 to 145. Of 5000 ends at most 5
    are known late, and within 10 % of the duration: the job is shorter than all in the history.
    """
    chance, costs = random.Random(20_261_130), []
    for _ in range(5000):
        history, duration = kind(TWO_HOURS, chance)
        costs.append((duration, recommended(duration, history)))
    assert max(cost.requests for _, cost in costs) <= 12
    assert sum(is_late(*each) for each in costs) <= 5
    assert max(cost.late / duration for duration, cost in costs) < 2 * MAX_DELAY
    assert min(simulate(duration, every(60)).requests for duration, _ in costs) >= 97


@pytest.mark.parametrize(("usual", "most"), [(10.0, 5), (60.0, 6), (600.0, 12), (3600.0, 12), (36_000.0, 12)])
def test_other_known_kinds(usual: float, most: int) -> None:
    """Kinds of any duration take few requests, and ends are as rarely known late."""
    chance = random.Random(1)
    costs = [
        (duration, recommended(duration, history))
        for history, duration in (kind(usual, chance) for _ in range(2000))
    ]
    assert max(cost.requests for _, cost in costs) <= most
    assert sum(is_late(*each) for each in costs) <= 3


def test_short_history() -> None:
    """With five samples, up to 3 in 100 ends are known late, within 30 % of the duration."""
    chance = random.Random(5)
    costs = [
        (duration, recommended(duration, history))
        for history, duration in (kind(TWO_HOURS, chance, MIN_SAMPLES) for _ in range(2000))
    ]
    assert max(cost.requests for _, cost in costs) <= 14
    assert sum(is_late(*each) for each in costs) <= 60
    assert max(cost.late / duration for duration, cost in costs) < 0.3


def test_early_end() -> None:
    """A job that fails at once is noticed after 1 % of the usual duration."""
    history = History((TWO_HOURS,) * MAX_SAMPLES)
    assert recommended(3, history) == Cost(2, 69)


# ── without a history ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("total", [10, 20, 50, 400, 10**6])
def test_progress_without_history(total: int) -> None:
    """With at minimum ten batches, at most half of backoff's requests are needed, an eighth in total."""
    share = in_steps(total)
    costs = [(duration, recommended(duration, share=share)) for duration in UNKNOWN_DURATIONS]
    others = [simulate(duration, backoff()).requests for duration in UNKNOWN_DURATIONS]
    assert all(2 * cost.requests <= often for (_, cost), often in zip(costs, others, strict=True))
    assert sum(cost.requests for _, cost in costs) * 7.5 < sum(others)
    assert not [each for each in costs if is_late(*each)]


@pytest.mark.parametrize("total", [1, 2, 3, 5, 8])
def test_few_batches_without_history(total: int) -> None:
    """With fewer batches the end is known in time, with at most 1.5 times backoff's requests."""
    share = in_steps(total)
    for duration in UNKNOWN_DURATIONS:
        cost = recommended(duration, share=share)
        assert not is_late(duration, cost)
        assert cost.requests <= 1.5 * simulate(duration, backoff()).requests


def test_no_progress_and_no_history() -> None:
    """The end is known in time, with at most 1.5 times backoff's requests and 0.85 times in total. To know an
    end at any time within 30 s, 20 polls are needed in ten minutes; backoff polls 16 times, and knows it within
    a minute.
    """
    costs = [(duration, recommended(duration)) for duration in range(600, 7201)]
    others = {duration: simulate(duration, backoff()) for duration, _ in costs}
    assert not [each for each in costs if is_late(*each)]
    assert all(cost.requests <= 1.5 * others[duration].requests for duration, cost in costs)
    assert sum(cost.requests for _, cost in costs) < 0.85 * sum(cost.requests for cost in others.values())
    assert (others[600].requests - 1, max(cost.late for cost in others.values())) == (15, 59)


@given(st.floats(0.1, 10**6))
def test_any_duration(duration: float) -> None:
    """Without a history the end is always known in time."""
    assert not is_late(duration, recommended(duration))
    assert not is_late(duration, recommended(duration, share=lambda done: done))


# ── any age and history ──────────────────────────────────────────────────────────────────────────────────────

ages = st.floats(0, 10**6)
histories = st.lists(st.floats(0.001, 10**6), max_size=MAX_SAMPLES).map(lambda seconds: History(tuple(seconds)))
shares = st.none() | st.floats(0, 1)


@given(ages, histories, shares)
def test_any_interval(age: float, history: History, progress: float | None) -> None:
    """The interval is at minimum one second, with an upper limit from the age and the history."""
    seconds = next_poll(age, history=history, progress=progress)
    assert isinstance(seconds, int)
    assert (
        1
        <= seconds
        <= 1 + max(MAX_DELAY_SECONDS, MAX_REMAINING * age, history.usual or 0, max(history.seconds, default=0))
    )


@given(st.floats(MAX_DELAY_SECONDS, 10**6), histories)
def test_interval_of_old_jobs(age: float, history: History) -> None:
    """When a job can end at any time, no interval exceeds the allowed delay."""
    if age >= max([history.usual or 0, *history.seconds]):
        assert next_poll(age, history=history) <= max(MAX_DELAY * age, MAX_DELAY_SECONDS)


@given(ages, histories, shares)
def test_any_estimate(age: float, history: History, progress: float | None) -> None:
    """The estimated duration is at minimum the age. Without progress and history there is none."""
    duration = expected_duration(age, history=history, progress=progress)
    if duration is not None:
        assert duration >= age
    elif progress is not None:
        assert progress < 0.02
    assert (duration is None) <= (history.usual is None)


def test_estimates() -> None:
    """Progress takes precedence over the history, whose median is used; a late job is 5 % later."""
    history = History((90.0, 100.0, 110.0, 100.0, 5000.0))
    assert expected_duration(30, history=history) == 100
    assert expected_duration(30, history=history, progress=0.1) == pytest.approx(300)
    assert expected_duration(30, history=history, progress=0.001) == 100
    assert expected_duration(200, history=history) == pytest.approx(210)
    assert expected_duration(200, history=UNKNOWN) is None


@given(st.lists(st.floats(0.001, 10**6), max_size=3 * MAX_SAMPLES))
def test_history(seconds: list[float]) -> None:
    """The last 30 durations are kept in order, and five are needed for a median."""
    history = UNKNOWN
    for each in seconds:
        history = history.with_one(each)
    assert list(history.seconds) == seconds[-MAX_SAMPLES:]
    assert (history.usual is not None) == (len(seconds) >= MIN_SAMPLES)
    if history.usual is not None:
        assert min(history.seconds) <= history.usual <= max(history.seconds)
    assert history.minimum <= min(history.seconds, default=0)
