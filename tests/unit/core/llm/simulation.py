"""Workers of a queue that ask a rate limiter for their jobs, in virtual time.

Queues delay by whole seconds, more or less exactly, and give messages to workers in the order in which they are
visible. A worker that gets a slot sleeps until then, calls, and takes the next message.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.jobs.kind import Wait
from core.llm.catalog import Model
from core.llm.rate_limit import RateLimiter, Slot
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.examples import NOW, FakeClock


@dataclass(frozen=True, slots=True)
class Arrival:
    """Jobs that are submitted together, `at` seconds after the start."""

    owner: str
    jobs: int
    at: float = 0.0


@dataclass
class Outcome:
    """Seconds after the start at which calls started, by owner, and how often the limiter was asked."""

    starts: dict[str, list[float]] = field(default_factory=dict)
    asks: int = 0

    @property
    def all_starts(self) -> list[float]:
        return sorted(itertools.chain(*self.starts.values()))

    def most_in(self, seconds: float) -> int:
        """The most starts in any half-open window."""
        starts, first, most = self.all_starts, 0, 0
        for last, at in enumerate(starts):
            while at - starts[first] >= seconds - 1e-9:
                first += 1
            most = max(most, last - first + 1)
        return most


def simulate(
    model: Model,
    arrivals: Sequence[Arrival],
    *,
    workers: int = 8,
    tokens: int = 0,
    used: int = 0,
    ask_seconds: float = 0.02,
    seed: int = 0,
    table: MemoryTable | None = None,
) -> Outcome:
    """`tokens`, `used`: of each call. `ask_seconds`: until a worker has an answer and has acted on it."""
    chance, clock, outcome = random.Random(seed), FakeClock(), Outcome()
    limiter = RateLimiter(table or MemoryTable(), "jobs", clock=clock)
    queue = [(each.at, chance.random(), each.owner, False) for each in arrivals for _ in range(each.jobs)]
    calls: list[tuple[float, Slot]] = []
    free = [0.0] * workers
    heapq.heapify(queue)
    while queue:
        visible, order, owner, waited = heapq.heappop(queue)
        at = max(visible, heapq.heappop(free))
        while calls and calls[0][0] <= at:
            ended, slot = heapq.heappop(calls)
            clock.now = NOW + ended
            limiter.settle(model, slot, reserved=tokens, used=used)
        clock.now = NOW + at
        outcome.asks += 1
        answer = limiter.reserve(model, owner=owner, tokens=tokens, waited=waited)
        at += ask_seconds
        if isinstance(answer, Wait):
            heapq.heappush(queue, (at + answer.seconds + chance.uniform(-0.1, 0.1), order, owner, True))
            heapq.heappush(free, at)
        else:
            start = answer.at / 1e6 - NOW
            end = max(start, at) + chance.uniform(0.3, 0.6)
            outcome.starts.setdefault(owner, []).append(start)
            heapq.heappush(free, end)
            heapq.heappush(calls, (end, answer))
    return outcome
