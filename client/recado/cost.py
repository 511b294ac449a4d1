"""What waiting costs, which way of waiting fits, and the one polling loop that is all right.

Standard library only.

A request is useful if it says something new: the POST that makes the job, and the one that learns of its end. All
others are wasted. Times are in seconds.
"""

from __future__ import annotations

import http.client
import json
import math
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, Literal

Strategy = Literal["short_polling", "backoff", "server_guided", "long_polling", "sse", "websocket", "webhook"]

HOLD_SECONDS = 25.0
"""How long the service holds a long poll or a stream of events open."""

NOTICE_SECONDS = 1.0
"""At most so long after a change the service answers a request that it holds open."""

GUIDED_EARLY, GUIDED_FIRST, GUIDED_STEP, GUIDED_LEAST_SECONDS = 0.01, 0.8, 0.05, 30.0
"""As the service asks for looks at a job of a known kind: one early on, to see what fails at once, one at 80 % of
the usual length, and from then on whenever it is 5 % older, though not within 30 s."""

RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Cost:
    """What one job costs the one who waits for it.

    `polls` are the requests after the POST. `delay` is from the job's end until it is known, for a job of exactly
    this length; `delay_max` the most it can be for one that ends in the same gap.
    """

    strategy: Strategy
    duration: float
    polls: int
    delay: float
    delay_max: float

    @property
    def requests(self) -> int:
        """With the POST."""
        return self.polls + 1

    @property
    def useful(self) -> int:
        """The POST, and the request that learns of the end; a webhook needs no such request."""
        return min(self.requests, 2)

    @property
    def wasted(self) -> int:
        return self.requests - self.useful

    @property
    def percent(self) -> float:
        """How much of all requests was wasted, with one decimal."""
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
    """What it costs to wait for a job of `duration`.

    With `interval`: asking again and again at that interval. With `base` and `cap`: backing off, the n-th look
    min(base × 2^n, cap) after the one before. Other ways by name: `long_polling` and `sse`, each request held open
    for `hold`; `websocket`; `webhook`; and `server_guided`, a model of what Retry-After asks for where jobs of
    the kind `usual`ly take so long: the first look at 80 % of that, then one each 5 % or 30 s, whichever is more.

    A WebSocket counts as one request. What it costs the service is by the minute and by the message: API Gateway
    takes $0.25 for a million minutes of connection and $1.00 for a million messages of up to 32 KB, either way
    (us-east-1, list price), and holds no function meanwhile.

    The first look comes one interval after the POST, whose answer has just said that the job is queued. Raises
    ValueError for what makes no sense.
    """
    _check(duration=duration, interval=interval, base=base, cap=cap, usual=usual, hold=hold)
    match strategy or _implied(interval, base, cap):
        case "short_polling":
            every = interval or 60.0
            polls = _rounds(duration, every)
            return Cost("short_polling", duration, polls, _rounded(polls * every - duration), every)
        case "backoff":
            return _counted("backoff", duration, backoff(base or 1.0, cap or 60.0))
        case "server_guided":
            return _counted("server_guided", duration, _guided(usual or duration))
        case "long_polling":
            return Cost("long_polling", duration, _rounds(duration, hold), NOTICE_SECONDS, NOTICE_SECONDS)
        case "sse":
            return Cost("sse", duration, _rounds(duration, hold), NOTICE_SECONDS, NOTICE_SECONDS)
        case "websocket":
            return Cost("websocket", duration, 1, 0.0, NOTICE_SECONDS)
        case "webhook":
            return Cost("webhook", duration, 0, 0.0, NOTICE_SECONDS)
        case other:
            raise ValueError(f"there is no way of waiting called {other}")


def compare(
    duration: float, *, interval: float = 60.0, base: float = 1.0, cap: float = 60.0, usual: float | None = None
) -> list[Cost]:
    """Every way of waiting for a job of `duration`, the most wasteful first."""
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


def backoff(base: float = 1.0, cap: float = 60.0) -> Iterator[float]:
    """The intervals min(base × 2^n, cap), without end."""
    interval = base
    while True:
        yield min(interval, cap)
        interval = min(interval * 2, cap)


def look_times(base: float = 1.0, cap: float = 60.0, *, count: int) -> list[float]:
    """When the first `count` looks of a backoff happen, counted from the POST."""
    return list(accumulate(islice(backoff(base, cap), count)))


def _implied(interval: float | None, base: float | None, cap: float | None) -> Strategy:
    if interval is not None and (base is not None or cap is not None):
        raise ValueError("give either interval, or base and cap")
    return "backoff" if interval is None and (base is not None or cap is not None) else "short_polling"


def _counted(strategy: Strategy, duration: float, intervals: Iterator[float]) -> Cost:
    polls, now = 0, 0.0
    for interval in intervals:
        polls, now = polls + 1, now + interval
        if _rounded(now - duration) >= 0:
            return Cost(strategy, duration, polls, _rounded(now - duration), interval)
    raise AssertionError("intervals have no end")


def _guided(usual: float) -> Iterator[float]:
    early = max(1.0, GUIDED_EARLY * usual)
    yield early
    age = max(early + 1.0, GUIDED_FIRST * usual)
    yield age - early
    while True:
        wait = max(GUIDED_STEP * age, min(GUIDED_LEAST_SECONDS, usual / 4))
        yield wait
        age += wait


def _rounds(duration: float, length: float) -> int:
    """How many of that length it takes. Binary fractions must not add one: 2.1 / 0.3 is 7."""
    return max(1, math.ceil(_rounded(duration / length)))


def _rounded(number: float) -> float:
    return round(number, 6)


def _check(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and (not math.isfinite(number) or number <= 0):
            raise ValueError(f"{name} must be a number of seconds above 0")


# ── advice ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Advice:
    """`cost` is what it costs for this job, `naive` what a loop with `sleep(60)` would."""

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
    """How to learn of a job's end.

    `can_receive_http`: there is a URL that the service can reach. `needs_updates`: progress matters, not only the
    end. `bidirectional`: you also have something to say while it runs. Backoff is capped at 5 % of the duration,
    but not below a minute: capped at a minute, it asks for a job of hours as often as a loop once a minute.
    """
    cap = max(60.0, float(round(GUIDED_STEP * duration)))
    method, reason, how = _branch(can_receive_http, needs_updates, bidirectional, cap)
    known = polling_cost(duration, base=1.0, cap=cap, strategy=method)
    return Advice(method, reason, how, known, polling_cost(duration, 60.0))


def _branch(
    can_receive_http: bool, needs_updates: bool, bidirectional: bool, cap: float
) -> tuple[Literal["webhook", "backoff", "sse", "websocket"], str, str]:
    if bidirectional:
        return (
            "websocket",
            "both sides have something to say while the job runs: one connection carries both ways",
            "connect to job.links['live'], or client.watch(job, transport='websocket')",
        )
    if needs_updates:
        return (
            "sse",
            "updates flow one way, from the service to you: a stream of events comes back by itself when cut",
            "new EventSource(job.links['events']), or client.watch(job, transport='sse')",
        )
    if can_receive_http:
        return (
            "webhook",
            "the service can reach you, so nobody has to ask: you are called when it is over",
            "submit with webhook_url, or recado webhooks add URL; verify with recado.verify",
        )
    return (
        "backoff",
        "nothing can reach you and only the end matters: ask rarely, and at growing intervals",
        f"client.wait(job), or poll_with_backoff(job.links['status'], cap={cap:.0f})",
    )


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────


class PollFailed(RuntimeError):
    """The job failed or was canceled; `data` is the last answer."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(f"the job {data.get('status')}: {data.get('error') or 'no reason is given'}")
        self.data = data


def poll_with_backoff(
    url: str,
    base: float = 1,
    cap: float = 60,
    max_attempts: int = 200,
    *,
    jitter: bool = False,
    headers: Mapping[str, str] | None = None,
    timeout: float = 30,
    sleep: Callable[[float], object] = time.sleep,
) -> dict[str, Any]:
    """GET `url`, a job's `status` link, until the job has ended; returns the last answer.

    Looks at once, and then after min(base × 2^attempt, cap) seconds; with `jitter` after a random part of that, so
    that many who started together do not ask together. An answer 429 or 5xx, or none, counts as an attempt that
    said nothing, and its Retry-After is honoured up to `cap`.

    Raises PollFailed for a job that failed or was canceled, TimeoutError after `max_attempts`, and
    urllib.error.HTTPError for an answer that will not get better, such as 403.
    """
    for interval in islice(backoff(base, cap), max_attempts):
        data, at_least = _look(url, headers or {}, timeout)
        if data.get("status") == "completed":
            return data
        if data.get("status") in ("failed", "canceled"):
            raise PollFailed(data)
        pause = random.uniform(0, interval) if jitter else interval  # noqa: S311 spreads load, hides nothing
        sleep(max(pause, min(at_least, cap)))
    raise TimeoutError(f"the job was not over after {max_attempts} looks")


def _look(url: str, headers: Mapping[str, str], timeout: float) -> tuple[dict[str, Any], float]:
    """What the answer says, and how long not to ask again; nothing and 0 where there was none."""
    if not url.startswith(("https://", "http://")):
        raise ValueError("the URL must be http or https")
    request = urllib.request.Request(url, headers={"Accept": "application/json", **headers})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
            data = json.load(answer)
            return (data if isinstance(data, dict) else {}), 0.0
    except urllib.error.HTTPError as error:
        with error:
            if error.code not in RETRYABLE:
                raise
            asked = error.headers.get("Retry-After") or ""
            return {}, float(asked) if asked.isdecimal() else 0.0
    except (OSError, ValueError, http.client.HTTPException):
        return {}, 0.0
