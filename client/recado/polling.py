"""A polling loop with exponential backoff. Standard library only."""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from recado._retry import RETRYABLE_STATUSES
from recado._urls import opener


class PollFailed(RuntimeError):
    """The job failed or was canceled. `data` is the last response."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        reason = data.get("error") or "the service gives no reason"
        super().__init__(f"The job has the status {data.get('status')}: {reason}.")
        self.data = data


def backoff(base: float = 1.0, cap: float = 60.0) -> Iterator[float]:
    """The intervals min(base × 2^n, cap) in seconds, without an end."""
    interval = base
    while True:
        yield min(interval, cap)
        interval = min(interval * 2, cap)


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
    """GET `url`, the `status` link of a job, until the job has ended. Returns the last response.

    The first request is sent at once, the others after min(base × 2^attempt, cap) seconds. With `jitter` each
    delay is a random part of that, so that clients that started together do not send their requests together. A
    response with status 429 or 5xx, or a failed connection, counts as an attempt, and its Retry-After is honored
    up to `cap`.

    Raises PollFailed if the job failed or was canceled, TimeoutError after `max_attempts`, InsecureUrl for an
    `http://` URL of another machine, and urllib.error.HTTPError for a permanent error such as 403 or a redirect.
    """
    for interval in islice(backoff(base, cap), max_attempts):
        data, retry_after = _fetch(url, headers or {}, timeout)
        if data.get("status") == "completed":
            return data
        if data.get("status") in ("failed", "canceled"):
            raise PollFailed(data)
        delay = random.uniform(0, interval) if jitter else interval  # noqa: S311 spreads load, hides nothing
        sleep(max(delay, min(retry_after, cap)))
    raise TimeoutError(f"The job did not end within {max_attempts} polls.")


def _fetch(url: str, headers: Mapping[str, str], timeout: float) -> tuple[dict[str, Any], float]:
    """The response's JSON and its Retry-After in seconds. Empty and 0 after a temporary error."""
    connection = opener(url)
    request = urllib.request.Request(url, headers={"Accept": "application/json", **headers})  # noqa: S310 checked
    try:
        with connection.open(request, timeout=timeout) as response:
            data = json.load(response)
            return (data if isinstance(data, dict) else {}), 0.0
    except urllib.error.HTTPError as error:
        with error:
            if error.code not in RETRYABLE_STATUSES:
                raise
            retry_after = error.headers.get("Retry-After") or ""
            return {}, float(retry_after) if retry_after.isdecimal() else 0.0
    except (OSError, ValueError, http.client.HTTPException):
        return {}, 0.0
