"""How many requests it takes to wait for a job, and which strategy fits. Standard library only.

A request is useful if it brings something new: the POST that creates the job, and the request that learns of its
end. All others are wasted. All times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from recado.polling import PollFailed, backoff, poll_with_backoff

__all__ = ["Advice", "Cost", "PollFailed", "Strategy", "advise", "compare", "poll_with_backoff", "polling_cost"]

Strategy = Literal["short_polling", "backoff", "server_guided", "long_polling", "sse", "websocket", "webhook"]

HOLD_SECONDS = 25.0
"""The service holds a long poll or an event stream open for so long."""

PUSH_DELAY_SECONDS = 1.0
"""The service reports a change on an open request or connection within so many seconds."""

# The service's Retry-After for a job whose kind has a usual duration: the first poll is early, to report jobs
# that fail at once, the second at 80 % of the usual duration. After that the job is polled whenever it is 5 %
# older, but not within 30 s.
GUIDED_EARLY, GUIDED_FIRST, GUIDED_STEP, GUIDED_MIN_SECONDS = 0.01, 0.8, 0.05, 30.0


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Cost:
    """What it costs to wait for one job.

    `polls`: requests after the POST. `delay`: from the job's end until it is known, for a job of exactly this
    duration. `delay_max`: the maximum for any job that ends in the same interval.
    """

    strategy: Strategy
    duration: float
    polls: int
    delay: float
    delay_max: float

    @property
    def requests(self) -> int:
        """Including the POST."""
        return self.polls + 1

    @property
    def useful(self) -> int:
        """The POST, and the request that learns of the end. A webhook needs no such request."""
        return min(self.requests, 2)

    @property
    def wasted(self) -> int:
        return self.requests - self.useful

    @property
    def percent(self) -> float:
        """The wasted share of all requests, with one decimal place."""
        return round(100 * self.wasted / self.requests, 1)


def polling_cost(
    duration: float,
    interval: float | None = None,
    base: float | None = None,
    cap: float | None = None,
    *,
    strategy: Strategy | None = None,
    usual: float | None = None,
    hold: float = HOLD_SECONDS,
) -> Cost:
    """The cost of waiting for a job of `duration`.

    With `interval`: polling at a fixed interval. With `base` and `cap`: exponential backoff, the n-th poll
    min(base × 2^n, cap) after the one before. Other strategies by name: `long_polling` and `sse`, each request
    held open for `hold`; `websocket`; `webhook`; and `server_guided`, a model of the service's Retry-After for a
    kind of job that usually takes `usual`: the first poll at 80 % of that, then one every 5 % or 30 s, whichever
    is more.

    A WebSocket counts as one request. The service pays for it by the minute and by the message: API Gateway
    charges $0.25 for a million connection minutes and $1.00 for a million messages of up to 32 KB in either
    direction (us-east-1, list price). No Lambda function runs in between.

    The first poll is one interval after the POST, whose response already contains the status. Raises ValueError
    for invalid numbers and combinations.
    """
    _check(duration=duration, interval=interval, base=base, cap=cap, usual=usual, hold=hold)
    match strategy or _implied_strategy(interval, base, cap):
        case "short_polling":
            every = interval or 60.0
            polls = _count(duration, every)
            return Cost("short_polling", duration, polls, _rounded(polls * every - duration), every)
        case "backoff":
            return _cost_of("backoff", duration, backoff(base or 1.0, cap or 60.0))
        case "server_guided":
            return _cost_of("server_guided", duration, _guided_intervals(usual or duration))
        case "long_polling":
            polls = _count(duration, hold)
            return Cost("long_polling", duration, polls, PUSH_DELAY_SECONDS, PUSH_DELAY_SECONDS)
        case "sse":
            return Cost("sse", duration, _count(duration, hold), PUSH_DELAY_SECONDS, PUSH_DELAY_SECONDS)
        case "websocket":
            return Cost("websocket", duration, 1, 0.0, PUSH_DELAY_SECONDS)
        case "webhook":
            return Cost("webhook", duration, 0, 0.0, PUSH_DELAY_SECONDS)
        case other:
            raise ValueError(f"There is no strategy {other!r}.")


def compare(
    duration: float, *, interval: float = 60.0, base: float = 1.0, cap: float = 60.0, usual: float | None = None
) -> list[Cost]:
    """The costs of all strategies for a job of `duration`, the most expensive first."""
    costs = [
        polling_cost(duration, interval),
        polling_cost(duration, base=base, cap=cap),
        polling_cost(duration, strategy="server_guided", usual=usual),
        polling_cost(duration, strategy="long_polling"),
        polling_cost(duration, strategy="sse"),
        polling_cost(duration, strategy="websocket"),
        polling_cost(duration, strategy="webhook"),
    ]
    return sorted(costs, key=lambda cost: -cost.requests)


def _implied_strategy(interval: float | None, base: float | None, cap: float | None) -> Strategy:
    if interval is not None and (base is not None or cap is not None):
        raise ValueError("Give either interval, or base and cap.")
    return "backoff" if interval is None and (base is not None or cap is not None) else "short_polling"


def _cost_of(strategy: Strategy, duration: float, intervals: Iterator[float]) -> Cost:
    polls, now = 0, 0.0
    for interval in intervals:
        polls, now = polls + 1, now + interval
        if _rounded(now - duration) >= 0:
            return Cost(strategy, duration, polls, _rounded(now - duration), interval)
    raise AssertionError("intervals have no end")


def _guided_intervals(usual: float) -> Iterator[float]:
    early = max(1.0, GUIDED_EARLY * usual)
    yield early
    age = max(early + 1.0, GUIDED_FIRST * usual)
    yield age - early
    while True:
        wait = max(GUIDED_STEP * age, min(GUIDED_MIN_SECONDS, usual / 4))
        yield wait
        age += wait


def _count(duration: float, length: float) -> int:
    """How many intervals of this length the duration takes. Rounded first: 2.1 / 0.3 is 7, not 8."""
    return max(1, math.ceil(_rounded(duration / length)))


def _rounded(number: float) -> float:
    return round(number, 6)


def _check(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and (not math.isfinite(number) or number <= 0):
            raise ValueError(f"{name} must be a positive number of seconds.")


# ── advice ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Advice:
    """`cost`: of the recommended strategy for this job. `naive`: of polling once a minute."""

    method: Literal["webhook", "backoff", "sse", "websocket"]
    reason: str
    how: str
    cost: Cost
    naive: Cost


def advise(
    can_receive_http: bool = False,
    needs_updates: bool = False,
    bidirectional: bool = False,
    duration: float = 7200.0,
) -> Advice:
    """The strategy that fits, with a reason and its cost.

    `can_receive_http`: the service can reach a URL of yours. `needs_updates`: you need progress, not only the
    end. `bidirectional`: you also send messages while the job runs. Backoff is capped at 5 % of the duration,
    but at least at a minute: a backoff that is capped at a minute polls a job of hours as often as a loop once a
    minute.
    """
    cap = max(60.0, float(round(GUIDED_STEP * duration)))
    method, reason, how = _choose(can_receive_http, needs_updates, bidirectional, cap)
    cost = polling_cost(duration, base=1.0, cap=cap, strategy=method)
    return Advice(method, reason, how, cost, polling_cost(duration, 60.0))


def _choose(
    can_receive_http: bool, needs_updates: bool, bidirectional: bool, cap: float
) -> tuple[Literal["webhook", "backoff", "sse", "websocket"], str, str]:
    if bidirectional:
        return (
            "websocket",
            "Both sides send messages while the job runs, and one connection carries both directions",
            "connect to job.links['live'], or client.watch(job, transport='websocket')",
        )
    if needs_updates:
        return (
            "sse",
            "Updates flow from the service to you only, and an event stream reconnects by itself",
            "new EventSource(job.links['events']), or client.watch(job, transport='sse')",
        )
    if can_receive_http:
        return (
            "webhook",
            "The service can reach you, so it calls you when the job has ended and you need no polling",
            "submit with webhook_url, or recado webhooks add URL; verify with recado.verify",
        )
    return (
        "backoff",
        "The service cannot reach you and you only need the end, so poll rarely and at increasing intervals",
        f"client.wait(job), or poll_with_backoff(job.links['status'], cap={cap:.0f})",
    )
