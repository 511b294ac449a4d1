"""Requests to the HTTP API: authentication, retries, and errors from problem documents."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

from recado import errors
from recado._io import IO, Request, Response
from recado._retry import may_retry, retry_delay
from recado.errors import ApiError, BadAnswer, ConnectionFailed

ERRORS_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    413: errors.PayloadTooLarge,
    422: errors.InvalidRequest,
    429: errors.TooManyRequests,
}


@dataclass(frozen=True, slots=True)
class HttpApi:
    """The API at `url` (without a trailing slash), called with `key`.

    `timeout`: seconds without a byte after which a request fails. `retries`: how often a failed request is
    repeated.
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
        idempotent: bool = True,
        already_done_status: int | None = None,
    ) -> Any:
        """Send a request with retries; returns the response's JSON."""
        headers = {"Idempotency-Key": idempotency_key}
        request = self.build_request(method, path, body=body, query=query, headers=headers, timeout=timeout)
        response = await self.send(request, idempotent=idempotent, already_done_status=already_done_status)
        return response_json(response)

    def build_request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
    ) -> Request:
        """A request to this API with the key. Entries of `query` and `headers` that are None are left out."""
        parameters, sent_headers = without_none(query or {}), without_none(headers or {})
        sent_headers = {"Accept": "application/json"} | sent_headers | {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            sent_headers["Content-Type"] = "application/json"
        return Request(
            method,
            f"{self.url}{path}" + (f"?{urlencode(parameters)}" if parameters else ""),
            sent_headers,
            None if body is None else json.dumps(body).encode(),
            timeout or self.timeout,
        )

    def events_request(self, job_id: str, after: int, *, timeout: float | None = None) -> Request:
        """For a job's events after number `after`."""
        path = f"/jobs/{quote(job_id, safe='')}/events"
        return self.build_request("GET", path, query={"after": after}, timeout=timeout)

    async def send(
        self,
        request: Request,
        *,
        idempotent: bool = True,
        retries: int | None = None,
        already_done_status: int | None = None,
    ) -> Response:
        """Send the request and repeat it after failures. Raises ApiError or ConnectionFailed.

        `idempotent`: False for requests that must not be processed twice; see `may_retry`.
        `already_done_status`: the status that a repetition gets if an earlier try was processed and its response
        was lost. It is a success then.
        """
        retries, attempt = self.retries if retries is None else retries, 0
        while True:
            outcome = await self._try(request)
            if isinstance(outcome, Response):
                if outcome.status < 400 or (attempt and outcome.status == already_done_status):
                    return outcome
                outcome = api_error(outcome)
            if attempt == retries or not may_retry(outcome, idempotent=idempotent):
                raise outcome
            await self.io.sleep(retry_delay(attempt, outcome))
            attempt += 1

    async def _try(self, request: Request) -> Response | ApiError | ConnectionFailed:
        try:
            return await self.io.send(request)
        except ConnectionFailed as error:
            return error


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def as_list(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else list(values)


def new_idempotency_key(given: str | None) -> str:
    """The caller's key, or a random one."""
    return given or str(uuid.uuid4())


def response_json(response: Response) -> Any:
    """The response's JSON, None if the body is empty. Raises BadAnswer for a body that is not JSON."""
    if not response.body:
        return None
    try:
        return json.loads(response.body)
    except ValueError:
        media_type = response.headers.get("content-type", "without a media type")
        raise BadAnswer(f"The response is not JSON ({media_type}). Check the URL of the service.") from None


def api_error(response: Response) -> ApiError:
    """The error for a problem document (RFC 9457), or for a response without one."""
    try:
        document = json.loads(response.body)
    except ValueError:
        document = None
    problem = document if isinstance(document, dict) else {}
    error = ERRORS_BY_STATUS.get(response.status, errors.ServerError if response.status >= 500 else ApiError)
    return error(
        status=response.status,
        type=str(problem.get("type", "about:blank")),
        title=str(problem.get("title", "")),
        detail=str(problem.get("detail") or problem.get("message") or _excerpt(response)),
        field=problem.get("field"),
        retry_after=retry_after(response),
    )


def retry_after(response: Response) -> float | None:
    """The Retry-After header in seconds: a number or a date (RFC 9110, section 10.2.3). None if there is none."""
    text = response.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _excerpt(response: Response) -> str:
    """The first 300 bytes of a body that is not JSON, such as the XML of S3."""
    return " ".join(response.body[:300].decode(errors="replace").split())
