"""A request with everything that makes it arrive: the key, retries with full jitter, errors that speak."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

from recado import errors
from recado._io import IO, Answer, Request
from recado.cost import RETRYABLE
from recado.errors import ApiError, BadAnswer, ConnectionFailed, RecadoError, TimeUp

BASE_SECONDS, CAP_SECONDS = 0.5, 30.0
RETRY_AFTER_MAX_SECONDS = 60.0
NOT_BEGUN = frozenset({429})
"""Answers after which nothing has happened for sure, so that even what must not be done twice can be repeated."""

BY_STATUS: Mapping[int, type[ApiError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.PayloadTooLarge,
    422: errors.InvalidRequest,
    429: errors.TooManyRequests,
}


@dataclass(frozen=True, slots=True)
class Calls:
    """The service at `url` (no slash at its end), called with `key`.

    `timeout`: seconds without a byte after which an answer is given up. `retries`: how many more times than once.
    """

    io: IO
    url: str
    key: str
    timeout: float
    retries: int

    async def json(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        repeatable: bool = True,
        gone: int | None = None,
    ) -> Any:
        """The answer's JSON."""
        headers = {"Idempotency-Key": idempotency_key}
        request = self.request(method, path, body=body, query=query, headers=headers, timeout=timeout)
        return parsed(await self.call(request, repeatable=repeatable, gone=gone))

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Of this API, with the key. What is None in `query` or `headers` is left out."""
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        said = {name: value for name, value in (headers or {}).items() if value is not None}
        said |= {"Authorization": f"Bearer {self.key}", "Accept": said.get("Accept", "application/json")}
        if body is not None:
            said["Content-Type"] = "application/json"
        return Request(
            method,
            f"{self.url}{path}" + (f"?{urlencode(asked)}" if asked else ""),
            said,
            None if body is None else json.dumps(body).encode(),
            timeout or self.timeout,
        )

    def log(self, job_id: str, after: int, *, timeout: float | None = None) -> Request:
        """For a job's events after this number."""
        path = f"/jobs/{quote(job_id, safe='')}/events"
        return self.request("GET", path, query={"after": after}, timeout=timeout)

    async def call(
        self, request: Request, *, repeatable: bool = True, retries: int | None = None, gone: int | None = None
    ) -> Answer:
        """Send it until it has been answered for good; raises ApiError or ConnectionFailed.

        `repeatable`: False for what must not happen twice; then it is sent again only if it surely was not begun.
        `gone`: the status that a repetition gets when an earlier try did it and its answer was lost.
        """
        retries, tries = self.retries if retries is None else retries, 0
        while True:
            outcome = await self._try(request)
            if isinstance(outcome, Answer) and (outcome.status < 400 or (tries and outcome.status == gone)):
                return outcome
            error = outcome if isinstance(outcome, ConnectionFailed) else api_error(outcome)
            if tries == retries or not _may_repeat(error, repeatable):
                raise error
            await self.io.sleep(pause(tries, error))
            tries += 1

    async def _try(self, request: Request) -> Answer | ConnectionFailed:
        try:
            return await self.io.send(request)
        except ConnectionFailed as error:
            return error


@dataclass(frozen=True, slots=True)
class Timer:
    """What is left of the time. `deadline`: by the clock of `io`, None for never. `regret`: what TimeUp says."""

    io: IO
    deadline: float | None
    regret: str

    @classmethod
    def of(cls, io: IO, timeout: float | None, regret: str) -> Timer:
        """Up in so many seconds, never if that is None."""
        return cls(io, None if timeout is None else io.clock() + timeout, regret)

    def left(self, seconds: float) -> float:
        """So long, but not past the deadline. Raises TimeUp after it."""
        if self.deadline is None:
            return seconds
        left = self.deadline - self.io.clock()
        if left <= 0:
            raise TimeUp(self.regret)
        return min(seconds, left)

    async def rest(self, seconds: float) -> None:
        await self.io.sleep(self.left(seconds))


def pause(tries: int, error: Exception | None = None) -> float:
    """Full jitter (a random part of base × 2^tries, capped) on top of what Retry-After asks for, bounded."""
    jitter = random.uniform(0, min(CAP_SECONDS, BASE_SECONDS * 2 ** min(tries, 16)))  # noqa: S311 spreads load
    asked = getattr(error, "retry_after", None) or 0.0
    return jitter + min(asked, RETRY_AFTER_MAX_SECONDS)


def parsed(answer: Answer) -> Any:
    """The answer's JSON, None if it is empty."""
    if not answer.body:
        return None
    try:
        return json.loads(answer.body)
    except ValueError:
        kind = answer.headers.get("content-type", "no type")
        raise BadAnswer(f"not JSON but {kind}: is this the URL of the service?") from None


def api_error(answer: Answer) -> ApiError:
    """The problem document (RFC 9457) in an answer, or what can be said without one."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = None
    told = document if isinstance(document, dict) else {}
    kind = BY_STATUS.get(answer.status, errors.ServerError if answer.status >= 500 else ApiError)
    return kind(
        status=answer.status,
        type=str(told.get("type", "about:blank")),
        title=str(told.get("title", "")),
        detail=str(told.get("detail") or told.get("message") or _as_text(answer)),
        field=told.get("field"),
        retry_after=retry_after(answer),
    )


def retry_after(answer: Answer) -> float | None:
    """Seconds, from a number or a date (RFC 9110, section 10.2.3)."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _may_repeat(error: RecadoError, repeatable: bool) -> bool:
    if isinstance(error, ConnectionFailed):
        return repeatable or not error.sent
    return isinstance(error, ApiError) and error.status in (RETRYABLE if repeatable else NOT_BEGUN)


def _as_text(answer: Answer) -> str:
    """The beginning of what is no JSON, such as the XML of a store of files."""
    return " ".join(answer.body[:300].decode(errors="replace").split())
