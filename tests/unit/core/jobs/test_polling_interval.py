"""The schedule of looks, by simulation, with the naive loops beside it: requests, and how late an end is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jobs.polling_interval import (
    FARTHEST,
    LATE_SECONDS,
    LATENESS,
    LEAST_SAMPLES,
    MEMORY,
    History,
    expected_length,
    next_poll,
)

TWO_HOURS = 7200.0
UNKNOWN = History()
UNSEEN_LENGTHS = range(600, 7201, 7)

Share = Callable[[float], float]


@dataclass(frozen=True)
class Cost:
    """Requests, the POST among them, and seconds from the end of the job until it is known."""

    requests: int
    late: float


def looked(length: float, gaps: Iterator[float]) -> Cost:
    """What a loop costs that sleeps for these gaps until the job has ended."""
    age, requests = 0.0, 1
    while age < length:
        age += next(gaps)
        requests += 1
    return Cost(requests, age - length)


def every(seconds: float) -> Iterator[float]:
    while True:
        yield seconds


def backoff(base: float = 1, cap: float = 60) -> Iterator[float]:
    attempt = 0
    while True:
        yield min(base * 2**attempt, cap)
        attempt += 1


def guided(length: float, history: History = UNKNOWN, share: Share | None = None) -> Cost:
    """What it costs to come back when told. `share`: what is known to be done of what is done by then."""

    def gaps() -> Iterator[float]:
        age = 0.0
        while True:
            gap = next_poll(age, history=history, progress=share(age / length) if share else None)
            yield gap
            age += gap

    return looked(length, gaps())


def broken(length: float, cost: Cost) -> bool:
    """Whether the promise is: the end is known within 5 % of the length or 30 s, whichever is more."""
    return cost.late > max(LATENESS * length, LATE_SECONDS)


def kind(usual: float, chance: random.Random, samples: int = MEMORY) -> tuple[History, float]:
    """How long so many jobs took, and how long another one will: all of them the usual length ± 20 %."""
    history = UNKNOWN
    for _ in range(samples):
        history = history.with_one(usual * chance.uniform(0.8, 1.2))
    return history, usual * chance.uniform(0.8, 1.2)


def in_steps(total: int) -> Share:
    """Even work that is counted in so many batches, the one that is under way included, as views tells it."""
    return lambda done: min(math.floor(done * total) + 1, total) / total


# ── the naive loops ──────────────────────────────────────────────────────────────────────────────────────────


def test_naive_loops() -> None:
    """Two hours, once a minute: 121 requests; with backoff 1, 3, 7, … capped at 60 s: 126."""
    assert looked(TWO_HOURS, every(60)) == Cost(121, 0)
    assert looked(TWO_HOURS, backoff()).requests == 126


# ── kinds that are known ─────────────────────────────────────────────────────────────────────────────────────


def test_a_two_hour_job_of_a_known_kind() -> None:
    """Of two hours ± 20 %, 30 of them known: at most 12 requests, where once a minute it takes 97 to 145.

    The promise holds for all but five to eight in ten thousand: a job that is shorter than all that were seen
    may end before anybody looks. Such an end is known within 10 % of the length.
    """
    chance, costs = random.Random(20_261_130), []
    for _ in range(5000):
        history, length = kind(TWO_HOURS, chance)
        costs.append((length, guided(length, history)))
    assert max(cost.requests for _, cost in costs) <= 12
    assert sum(broken(*each) for each in costs) <= 5
    assert max(cost.late / length for length, cost in costs) < 2 * LATENESS
    assert min(looked(length, every(60)).requests for length, _ in costs) >= 97


def test_exactly_two_hours() -> None:
    """A job of just two hours, among such, takes at most 9 requests and breaks no promise."""
    chance = random.Random(7)
    costs = [guided(TWO_HOURS, kind(TWO_HOURS, chance)[0]) for _ in range(1000)]
    assert max(cost.requests for cost in costs) <= 9
    assert not any(broken(TWO_HOURS, cost) for cost in costs)


@pytest.mark.parametrize(("usual", "most"), [(10.0, 5), (60.0, 6), (600.0, 12), (3600.0, 12), (36_000.0, 12)])
def test_other_known_kinds(usual: float, most: int) -> None:
    """Kinds of any usual length take few requests, and the promise is as rarely broken."""
    chance = random.Random(1)
    costs = [(length, guided(length, history)) for history, length in (kind(usual, chance) for _ in range(2000))]
    assert max(cost.requests for _, cost in costs) <= most
    assert sum(broken(*each) for each in costs) <= 3


def test_a_kind_of_few_jobs() -> None:
    """Five known jobs save as much, but say less of the shortest: up to 3 in 100 ends are known late, by 30 %."""
    chance = random.Random(5)
    costs = [
        (length, guided(length, history))
        for history, length in (kind(TWO_HOURS, chance, LEAST_SAMPLES) for _ in range(2000))
    ]
    assert max(cost.requests for _, cost in costs) <= 14
    assert sum(broken(*each) for each in costs) <= 60
    assert max(cost.late / length for length, cost in costs) < 0.3


def test_an_early_end() -> None:
    """A job that fails at once is noticed after 1 % of what is usual, not after all of it."""
    history = History((TWO_HOURS,) * MEMORY)
    assert guided(3, history) == Cost(2, 69)


# ── lengths never seen ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("total", [10, 20, 50, 400, 10**6])
def test_unseen_with_progress(total: int) -> None:
    """Ten minutes to two hours, never seen, with even progress: half of backoff's requests at most, as promised.

    For the whole range it is about an eighth, as long as there are ten batches or more.
    """
    share = in_steps(total)
    costs = [(length, guided(length, share=share)) for length in UNSEEN_LENGTHS]
    naive = [looked(length, backoff()).requests for length in UNSEEN_LENGTHS]
    assert all(2 * cost.requests <= often for (_, cost), often in zip(costs, naive, strict=True))
    assert sum(cost.requests for _, cost in costs) * 7.5 < sum(naive)
    assert not [each for each in costs if broken(*each)]


@pytest.mark.parametrize("total", [1, 2, 3, 5, 8])
def test_unseen_with_few_batches(total: int) -> None:
    """The fewer batches, the less is known: the promise holds for any number, at less of a saving."""
    share = in_steps(total)
    for length in UNSEEN_LENGTHS:
        cost = guided(length, share=share)
        assert not broken(length, cost)
        assert cost.requests <= 1.5 * looked(length, backoff()).requests


def test_unseen_without_progress() -> None:
    """Where nothing is known the promise holds, with at most 1.5 times backoff's requests, and fewer in all.

    No schedule can do it with half: a job of ten minutes may end at any moment of them, so knowing of its end
    within 30 s takes 20 looks, and backoff makes 16, which know of it within a minute.
    """
    costs = [(length, guided(length)) for length in range(600, 7201)]
    naive = {length: looked(length, backoff()) for length, _ in costs}
    assert not [each for each in costs if broken(*each)]
    assert all(cost.requests <= 1.5 * naive[length].requests for length, cost in costs)
    assert sum(cost.requests for _, cost in costs) < 0.85 * sum(cost.requests for cost in naive.values())
    assert (naive[600].requests - 1, max(cost.late for cost in naive.values())) == (15, 59)


@given(st.floats(0.1, 10**6))
def test_the_promise_of_any_length(length: float) -> None:
    """Without a history nothing is promised that is not held, for jobs of a second or of ten days."""
    assert not broken(length, guided(length))
    assert not broken(length, guided(length, share=lambda done: done))


# ── whatever is known ────────────────────────────────────────────────────────────────────────────────────────

ages = st.floats(0, 10**6)
histories = st.lists(st.floats(0.001, 10**6), max_size=MEMORY).map(lambda seconds: History(tuple(seconds)))
shares = st.none() | st.floats(0, 1)


@given(ages, histories, shares)
def test_any_look(age: float, history: History, progress: float | None) -> None:
    """The next look is a whole second or more away, and not farther than the age or what is usual could say."""
    wait = next_poll(age, history=history, progress=progress)
    assert isinstance(wait, int)
    assert 1 <= wait <= 1 + max(LATE_SECONDS, FARTHEST * age, history.usual or 0, max(history.seconds, default=0))


@given(st.floats(LATE_SECONDS, 10**6), histories)
def test_any_gap(age: float, history: History) -> None:
    """Once a job can end at any moment, no gap is longer than its end may go unnoticed, not by a second."""
    if age >= max([history.usual or 0, *history.seconds]):
        assert next_poll(age, history=history) <= max(LATENESS * age, LATE_SECONDS)


@given(ages, histories, shares)
def test_any_expectation(age: float, history: History, progress: float | None) -> None:
    """No job is expected to have ended already; nothing is expected where nothing is known."""
    length = expected_length(age, history=history, progress=progress)
    if length is not None:
        assert length >= age
    elif progress is not None:
        assert progress < 0.02
    assert (length is None) <= (history.usual is None)


def test_expectations() -> None:
    """Progress says more than history; the median is what is usual; what is late is late by a little more."""
    history = History((90.0, 100.0, 110.0, 100.0, 5000.0))
    assert expected_length(30, history=history) == 100
    assert expected_length(30, history=history, progress=0.1) == pytest.approx(300)
    assert expected_length(30, history=history, progress=0.001) == 100
    assert expected_length(200, history=history) == pytest.approx(210)
    assert expected_length(200, history=UNKNOWN) is None


@given(st.lists(st.floats(0.001, 10**6), max_size=3 * MEMORY))
def test_a_history(seconds: list[float]) -> None:
    """The last 30 jobs are remembered, in order; from five on it is known what is usual."""
    history = UNKNOWN
    for each in seconds:
        history = history.with_one(each)
    assert list(history.seconds) == seconds[-MEMORY:]
    assert (history.usual is not None) == (len(seconds) >= LEAST_SAMPLES)
    if history.usual is not None:
        assert min(history.seconds) <= history.usual <= max(history.seconds)
    assert history.least <= min(history.seconds, default=0)
