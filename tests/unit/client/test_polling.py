"""The polling loop with exponential backoff."""

from __future__ import annotations

import email.message
import io
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from recado import polling
from recado.errors import InsecureUrl
from recado.polling import PollFailed, poll_with_backoff

RUNNING, DONE = {"status": "running"}, {"status": "completed", "job_id": "job_1"}
URL = "https://host/v1/follow/secret/status"

Responses = Callable[..., list[urllib.request.Request]]


@pytest.fixture
def responses(monkeypatch: pytest.MonkeyPatch) -> Responses:
    """Sets the next responses: JSON, (status, headers), or an exception. Returns the list of requests."""

    def prepare(*responses: Any) -> list[urllib.request.Request]:
        requests: list[urllib.request.Request] = []
        remaining: Iterator[Any] = iter(responses)

        def urlopen(request: urllib.request.Request, timeout: float) -> Any:
            requests.append(request)
            match next(remaining):
                case int(status), headers:
                    message = email.message.Message()
                    for name, value in headers.items():
                        message[name] = value
                    raise urllib.error.HTTPError(request.full_url, status, "", message, io.BytesIO())
                case Exception() as error:
                    raise error
                case data:
                    return io.BytesIO(json.dumps(data).encode())

        monkeypatch.setattr(polling, "opener", lambda _: SimpleNamespace(open=urlopen))
        return requests

    return prepare


def test_delays_follow_the_backoff(responses: Responses) -> None:
    """They double up to the cap, and the last response is returned."""
    responses(*[RUNNING] * 8, DONE)
    delays: list[float] = []
    assert poll_with_backoff(URL, base=1, cap=60, sleep=delays.append) == DONE
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]


def test_jitter_shortens_delays(responses: Responses) -> None:
    """Each delay is a random part of the delay without jitter."""
    responses(*[RUNNING] * 8, DONE)
    delays: list[float] = []
    poll_with_backoff(URL, jitter=True, sleep=delays.append)
    full = [1, 2, 4, 8, 16, 32, 60, 60]
    assert all(0 <= delay <= most for delay, most in zip(delays, full, strict=True))
    assert delays != full


@pytest.mark.parametrize("status", ["failed", "canceled"])
def test_a_failed_job_is_an_error(responses: Responses, status: str) -> None:
    """The error contains the last response."""
    responses(RUNNING, {"status": status, "error": {"code": "no_text"}})
    with pytest.raises(PollFailed, match="no_text") as caught:
        poll_with_backoff(URL, sleep=lambda _: None)
    assert caught.value.data["status"] == status


def test_the_number_of_attempts_is_limited(responses: Responses) -> None:
    """The TimeoutError does not contain the URL, which contains a token."""
    requests = responses(*[RUNNING] * 5)
    with pytest.raises(TimeoutError) as caught:
        poll_with_backoff(URL, max_attempts=5, sleep=lambda _: None)
    assert len(requests) == 5
    assert "secret" not in str(caught.value)


def test_temporary_errors_are_retried(responses: Responses) -> None:
    """Failed connections, 5xx and invalid JSON count as attempts, and Retry-After is honored up to the cap."""
    responses(
        ConnectionResetError(), (503, {}), (429, {"Retry-After": "30"}), (429, {"Retry-After": "900"}), [], DONE
    )
    delays: list[float] = []
    assert poll_with_backoff(URL, sleep=delays.append) == DONE
    assert delays == [1, 2, 30, 60, 16]


def test_permanent_errors_are_raised(responses: Responses) -> None:
    """An expired link is requested once."""
    requests = responses((403, {}))
    with pytest.raises(urllib.error.HTTPError):
        poll_with_backoff(URL)
    assert len(requests) == 1


def test_other_schemes_are_refused() -> None:
    """A file is not opened."""
    with pytest.raises(InsecureUrl, match="https"):
        poll_with_backoff("file:///etc/passwd")
