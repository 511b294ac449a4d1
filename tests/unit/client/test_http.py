"""Retries, and the errors that responses become."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from recado import _http, errors
from recado.errors import ApiError, BadAnswer, ConnectionFailed, InvalidRequest, ServerError, TooManyRequests
from tests.unit.client.stub_http import JOB, WEBHOOK, Act, Caller, StubHttp


@pytest.mark.parametrize(
    ("status", "error_type"),
    [(400, ApiError), *_http.ERRORS_BY_STATUS.items(), (500, ServerError), (504, ServerError)],
)
def test_problem_documents_become_errors(
    call: Caller, http: StubHttp, status: int, error_type: type[ApiError]
) -> None:
    """Each status has an error class, with all fields of the problem document."""
    problem = {"type": "urn:recado:problem:x", "title": "x", "status": status, "detail": "Do y.", "field": "z"}
    http.responses = [(status, problem, {"Retry-After": "7"})]
    with pytest.raises(ApiError, match="Do y") as caught:
        call(lambda c: c.job("job_1"), retries=0)
    error = caught.value
    assert type(error) is error_type
    assert (error.status, error.type, error.detail, error.field) == (status, "urn:recado:problem:x", "Do y.", "z")
    assert error.retry_after == 7


def test_errors_without_a_problem_document_quote_the_body(call: Caller, http: StubHttp) -> None:
    """The HTML of a proxy is part of the message."""
    http.responses = [(502, "<h1>Bad\n gateway</h1>", {})]
    with pytest.raises(ServerError, match="<h1>Bad gateway</h1>"):
        call(lambda c: c.job("job_1"), retries=0)


@pytest.mark.parametrize(
    "failure", [(503, {}, {}), (429, {}, {}), httpx2.ReadError("cut"), httpx2.ConnectError("no")]
)
def test_temporary_failures_are_retried(call: Caller, http: StubHttp, delays: list[float], failure: Any) -> None:
    """The delays are random, and their maximum doubles."""
    http.responses = [failure, failure, failure, JOB]
    assert call(lambda c: c.job("job_1")).job_id == "job_1"
    assert len(delays) == 3
    assert all(0 <= delay <= most for delay, most in zip(delays, [0.5, 1, 2], strict=True))


def test_retry_after_is_honored_up_to_a_minute(call: Caller, http: StubHttp, delays: list[float]) -> None:
    """Retry-After is a number of seconds or a date, and is added to the delay."""
    past = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
    http.responses = [(429, {}, {"Retry-After": "9"}), (503, {}, {"Retry-After": "3600"}), (503, {}, past), JOB]
    call(lambda c: c.job("job_1"))
    assert 9 <= delays[0] <= 9.5
    assert 60 <= delays[1] <= 61
    assert delays[2] <= 2


def test_a_quota_that_is_used_up_for_long_is_not_retried(
    call: Caller, http: StubHttp, delays: list[float]
) -> None:
    """A 429 with a Retry-After of more than a minute is raised at once, with it."""
    http.responses = [(429, {"detail": "You have made 3 uploads today."}, {"Retry-After": "61"})]
    with pytest.raises(TooManyRequests) as caught:
        call(lambda c: c.job("job_1"))
    assert (caught.value.retry_after, delays) == (61, [])


def test_the_last_error_is_raised_after_all_retries(call: Caller, http: StubHttp, delays: list[float]) -> None:
    """`retries` limits the number of repetitions."""
    http.responses = [(503, {}, {})] * 3
    with pytest.raises(ServerError):
        call(lambda c: c.job("job_1"), retries=2)
    assert len(delays) == 2


def test_permanent_errors_are_not_retried(call: Caller, http: StubHttp, delays: list[float]) -> None:
    """An invalid request is sent once."""
    http.responses = [(422, {"type": "t", "detail": "d", "field": "top_k"}, {})]
    with pytest.raises(InvalidRequest):
        call(lambda c: c.search("Why?", top_k=0))
    assert delays == []


@pytest.mark.parametrize(
    "act", [lambda c: c.submit(text="Hi"), lambda c: c.retry("job_1")], ids=["submit", "retry"]
)
def test_retries_have_the_same_idempotency_key(
    call: Caller, http: StubHttp, delays: list[float], act: Act
) -> None:
    """A repetition has the same key and body, so that it creates no second job. Another call has another key."""
    job = JOB | {"retry_of": "job_1"}
    http.responses = [httpx2.ReadTimeout("lost"), job, job]
    call(act)
    call(act)
    keys = [request.headers["idempotency-key"] for request in http.requests]
    assert keys[0] == keys[1] != keys[2]
    assert http.requests[0].read() == http.requests[1].read()


def test_the_callers_idempotency_key_is_used(call: Caller, http: StubHttp) -> None:
    """A key that is passed is sent unchanged."""
    http.responses = [JOB]
    call(lambda c: c.submit(text="Hi", idempotency_key="mine"))
    assert http.requests[0].headers["idempotency-key"] == "mine"


@pytest.mark.parametrize(
    ("failure", "requests"),
    [(httpx2.ReadError("cut"), 1), ((503, {}, {}), 1), (httpx2.ConnectError("no"), 2), ((429, {}, {}), 2)],
    ids=["cut", "503", "no connection", "429"],
)
def test_requests_that_are_not_idempotent_are_not_processed_twice(
    call: Caller, http: StubHttp, delays: list[float], failure: Any, requests: int
) -> None:
    """Adding an endpoint is retried only if the first request was certainly not processed."""
    http.responses = [failure, WEBHOOK]
    try:
        call(lambda c: c.webhooks.add("https://me/"))
    except (ApiError, ConnectionFailed):
        assert requests == 1
    assert len(http.requests) == requests


def test_404_after_a_retried_deletion_is_a_success(call: Caller, http: StubHttp, delays: list[float]) -> None:
    """After a lost response the first try was processed. 404 at the first try is an error."""
    missing = (404, {"detail": "none"}, {})
    http.responses = [httpx2.ReadError("cut"), missing, missing]
    assert call(lambda c: c.webhooks.delete("wh_1")) is None
    with pytest.raises(errors.NotFound):
        call(lambda c: c.webhooks.delete("wh_1"))


def test_redirects_are_not_followed(call: Caller, http: StubHttp) -> None:
    """The key is not sent to the target of a redirect."""
    http.responses = [(307, "", {"Location": "https://elsewhere/"})]
    with pytest.raises(BadAnswer):
        call(lambda c: c.job("job_1"))
    assert len(http.requests) == 1
