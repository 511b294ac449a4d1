"""What each method of the clients requests, and what it returns."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from recado import AsyncRecado, Recado, errors, models
from recado._api import Operations
from recado._webhooks_api import WebhookOperations
from recado.errors import ApiError, BadAnswer
from recado.models import Job
from tests.unit.client.stub_http import (
    DELIVERY,
    DOCUMENT,
    HIT,
    JOB,
    KEY,
    UPLOAD,
    URL,
    WEBHOOK,
    Act,
    Caller,
    StubHttp,
)

CALLS: list[tuple[Act, Any, str, Any]] = [
    (lambda c: c.job("job_1"), JOB, "GET /v1/jobs/job_1", None),
    (lambda c: c.status("job_1"), JOB, "GET /v1/jobs/job_1/status", None),
    (lambda c: c.result("job_1"), JOB, "GET /v1/jobs/job_1", None),
    (lambda c: c.jobs(), {"jobs": [], "cursor": None}, "GET /v1/jobs?limit=100", None),
    (
        lambda c: c.jobs(status="failed", kind="document", limit=5),
        {"jobs": [], "cursor": None},
        "GET /v1/jobs?status=failed&kind=document&limit=5",
        None,
    ),
    (lambda c: c.events("job_1", after=3), {"events": []}, "GET /v1/jobs/job_1/events?after=3", None),
    (lambda c: c.cancel("job_1"), JOB, "POST /v1/jobs/job_1/cancel", None),
    (lambda c: c.retry("job_1"), JOB | {"retry_of": "job_1"}, "POST /v1/jobs/job_1/retry", None),
    (
        lambda c: c.submit(text="Hi", document_id="notes", metadata={"a": "b"}, webhook_url="https://me/"),
        JOB,
        "POST /v1/jobs",
        {
            "kind": "document",
            "input": {"text": "Hi", "document_id": "notes"},
            "metadata": {"a": "b"},
            "webhook_url": "https://me/",
        },
    ),
    (
        lambda c: c.submit(input={"prompt": "Why?"}, kind="completion"),
        JOB,
        "POST /v1/jobs",
        {"kind": "completion", "input": {"prompt": "Why?"}},
    ),
    (
        lambda c: c.submit(input={"style": "bullets"}, kind="summary", document_id="notes"),
        JOB,
        "POST /v1/jobs",
        {"kind": "summary", "input": {"style": "bullets", "document_id": "notes"}},
    ),
    (
        lambda c: c.live_ticket(),
        (201, {"ticket": "t", "url": "wss://live?ticket=t", "expires_at": "2026-11-29T08:01:00Z"}, {}),
        "POST /v1/live/tickets",
        None,
    ),
    (
        lambda c: c.live_ticket(ask=True),
        (201, {"ticket": "t", "url": "wss://live?ticket=t", "expires_at": "2026-11-29T08:01:00Z"}, {}),
        "POST /v1/live/tickets",
        {"ask": True},
    ),
    (lambda c: c.delete_job("job_1"), (202, "", {}), "DELETE /v1/jobs/job_1", None),
    (lambda c: c.delete_job("a/b"), (204, "", {}), "DELETE /v1/jobs/a%2Fb", None),
    (lambda c: c.end_links("job_1"), (204, "", {}), "DELETE /v1/jobs/job_1/links", None),
    (lambda c: c.documents(), {"documents": [DOCUMENT]}, "GET /v1/documents", None),
    (lambda c: c.document("a/b"), DOCUMENT | {"document_id": "a/b"}, "GET /v1/documents/a%2Fb", None),
    (lambda c: c.delete_document("a/b"), (204, "", {}), "DELETE /v1/documents/a%2Fb", None),
    (lambda c: c.search("Why?"), {"hits": [HIT]}, "POST /v1/search", {"query": "Why?", "top_k": 10}),
    (
        lambda c: c.search("Why?", top_k=2, document_ids=["a/b"], metadata={"a": "b"}),
        {"hits": []},
        "POST /v1/search",
        {"query": "Why?", "top_k": 2, "filter": {"document_ids": ["a/b"], "metadata": {"a": "b"}}},
    ),
    (
        lambda c: c.webhooks.add("https://me/", ["document.*"], ordered=True),
        WEBHOOK,
        "POST /v1/webhooks",
        {"url": "https://me/", "events": ["document.*"], "ordered": True},
    ),
    (lambda c: c.webhooks.list(), {"webhooks": [WEBHOOK]}, "GET /v1/webhooks", None),
    (lambda c: c.webhooks.get("wh_1"), WEBHOOK, "GET /v1/webhooks/wh_1", None),
    (
        lambda c: c.webhooks.change("wh_1", enabled=False, filter=None),
        WEBHOOK,
        "PATCH /v1/webhooks/wh_1",
        {"enabled": False, "filter": None},
    ),
    (lambda c: c.webhooks.delete("wh_1"), (204, "", {}), "DELETE /v1/webhooks/wh_1", None),
    (lambda c: c.webhooks.rotate("wh_1"), WEBHOOK, "POST /v1/webhooks/wh_1/rotate-secret", {}),
    (
        lambda c: c.webhooks.rotate("wh_1", grace_seconds=0),
        WEBHOOK,
        "POST /v1/webhooks/wh_1/rotate-secret",
        {"grace_seconds": 0},
    ),
    (lambda c: c.webhooks.test("wh_1"), DELIVERY, "POST /v1/webhooks/wh_1/test", None),
    (
        lambda c: c.webhooks.deliveries(
            "wh_1", status="failed", event="ping", since="2026-11-29T08:00:00Z", limit=3
        ),
        {"deliveries": [DELIVERY], "cursor": None},
        "GET /v1/webhooks/wh_1/deliveries?status=failed&event=ping&since=2026-11-29T08%3A00%3A00Z&limit=3",
        None,
    ),
    (lambda c: c.webhooks.delivery("dlv_1"), DELIVERY, "GET /v1/deliveries/dlv_1", None),
    (lambda c: c.webhooks.redeliver("dlv_1"), DELIVERY, "POST /v1/deliveries/dlv_1/redeliver", None),
    (
        lambda c: c.webhooks.recover("wh_1", since="2026-11-29T08:00:00Z", status=["failed"]),
        JOB,
        "POST /v1/webhooks/wh_1/recover",
        {"since": "2026-11-29T08:00:00Z", "status": ["failed"]},
    ),
    (
        lambda c: c.webhooks.replay("wh_1", since="2026-11-29T08:00:00Z", until="2026-11-29T09:00:00Z"),
        JOB,
        "POST /v1/webhooks/wh_1/replay",
        {"since": "2026-11-29T08:00:00Z", "until": "2026-11-29T09:00:00Z"},
    ),
]


@pytest.mark.parametrize(("act", "response", "line", "body"), CALLS, ids=[case[2] for case in CALLS])
def test_each_method_sends_one_request(
    call: Caller, http: StubHttp, act: Act, response: Any, line: str, body: Any
) -> None:
    """Every method sends one request in the form of the API, with the key."""
    http.responses = [response]
    call(act)
    assert http.lines == [line]
    assert http.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert (http.body() if body is not None else http.requests[0].read()) == (body if body is not None else b"")


@pytest.mark.parametrize(("status", "removed"), [(202, False), (204, True)])
def test_deletion_of_a_job(call: Caller, http: StubHttp, status: int, removed: bool) -> None:
    """The result says whether the data of the deleted job is removed."""
    http.responses = [(status, "", {})]
    assert call(lambda c: c.delete_job("job_1")) is removed


def test_deleted_job(call: Caller, http: StubHttp) -> None:
    """A 410 is Gone, which is a NotFound: who handles missing jobs handles deleted ones."""
    http.responses = [(410, {"title": "job deleted", "detail": "This job was deleted."}, {})]
    with pytest.raises(errors.Gone, match="was deleted"):
        call(lambda c: c.job("job_1"))
    assert issubclass(errors.Gone, errors.NotFound)


def test_every_method_is_tested() -> None:
    """No method is missing from this module, except those that wait for events."""
    source = Path(__file__).read_text(encoding="utf-8")
    elsewhere = {"wait", "watch", "follow"}
    for operations, prefix in ((Operations, "c"), (WebhookOperations, r"c\.webhooks")):
        names = {name for name, value in vars(operations).items() if hasattr(value, "function")} - elsewhere
        assert {name for name in names if not re.search(rf"{prefix}\.{name}\(", source)} == set()


def test_both_clients_have_the_same_methods() -> None:
    """A method has the same parameters and docstring on both clients."""
    blocking, asynchronous = Recado(URL, KEY), AsyncRecado(URL, KEY)
    assert inspect.signature(blocking.submit) == inspect.signature(asynchronous.submit)
    assert "self" not in inspect.signature(blocking.submit).parameters
    assert blocking.submit.__doc__ == asynchronous.submit.__doc__ == Recado.submit.__doc__
    blocking.close()
    asyncio.run(asynchronous.close())


# ── responses ────────────────────────────────────────────────────────────────────────────────────────────


def test_nested_objects_are_parsed(call: Caller, http: StubHttp) -> None:
    """Objects inside objects are records too, and unknown fields are in `raw`."""
    http.responses = [{**JOB, "mood": "fine", "error": {"code": "c", "message": "m", "stage": "s"}}]
    job = call(lambda c: c.job("job_1"))
    assert isinstance(job, Job)
    assert (job.progress.done, job.error.code, job.raw["mood"], job.is_final) == (2, "c", "fine", False)


@pytest.mark.parametrize("response", ["<html>", [], {"job_id": "job_1"}, "null"], ids=str)
def test_invalid_responses_are_errors(call: Caller, http: StubHttp, response: Any) -> None:
    """HTML instead of JSON, a list instead of an object, or a missing field raises BadAnswer."""
    http.responses = [response]
    with pytest.raises(BadAnswer):
        call(lambda c: c.job("job_1"))


def test_a_list_without_its_field_is_an_error(call: Caller, http: StubHttp) -> None:
    """A response without the expected list raises BadAnswer."""
    http.responses = [{"documents": None}]
    with pytest.raises(BadAnswer, match="no documents"):
        call(lambda c: c.documents())


def test_pages_are_requested_when_needed(call: Caller, http: StubHttp) -> None:
    """All pages are one sequence, and no page beyond the limit is requested."""
    http.responses = [{"jobs": [JOB, JOB], "cursor": "next"}, {"jobs": [JOB], "cursor": "more"}]
    assert len(call(lambda c: c.jobs(limit=3))) == 3
    assert http.lines == ["GET /v1/jobs?limit=3", "GET /v1/jobs?cursor=next&limit=1"]


# ── submissions and uploads ──────────────────────────────────────────────────────────────────────────────


def test_a_file_is_uploaded_and_submitted(call: Caller, http: StubHttp, tmp_path: Path) -> None:
    """The file's name, type and size are sent first, then its bytes to the presigned URL, without the key."""
    file = tmp_path / "report.pdf"
    file.write_bytes(b"%PDF" * 50_000)
    http.responses = [UPLOAD, (200, "", {}), JOB]
    progress: list[tuple[int, int]] = []
    call(lambda c: c.submit(file, document_id="r", on_progress=lambda *both: progress.append(both)))
    _, put, submitted = http.requests
    assert http.lines == ["POST /v1/uploads", "PUT /x?sig=1", "POST /v1/jobs"]
    assert http.body() == {"filename": "report.pdf", "content_type": "application/pdf", "size": 200_000}
    assert put.read() == file.read_bytes()
    assert (put.headers["content-length"], put.headers["if-none-match"]) == ("200000", "*")
    assert "authorization" not in put.headers
    assert "transfer-encoding" not in put.headers
    assert json.loads(submitted.read())["input"] == {"s3_key": "uploads/me/x", "document_id": "r"}
    assert progress == [(65536, 200_000), (131072, 200_000), (196608, 200_000), (200_000, 200_000)]


def test_a_failed_upload_is_retried(call: Caller, http: StubHttp, delays: list[float]) -> None:
    """All bytes are sent again. Then 412 means that the first try was stored."""
    http.responses = [UPLOAD, httpx2.WriteError("cut"), (412, "<Error/>", {})]
    assert call(lambda c: c.upload(b"bytes")) == "uploads/me/x"
    assert [request.read() for request in http.requests[1:]] == [b"bytes", b"bytes"]


def test_412_at_the_first_try_is_an_error(call: Caller, http: StubHttp) -> None:
    """The stored file is not the client's then."""
    http.responses = [UPLOAD, (412, "<Error/>", {})]
    with pytest.raises(ApiError):
        call(lambda c: c.upload(b"bytes"))


def test_long_texts_are_uploaded(call: Caller, http: StubHttp) -> None:
    """A text that is too long for the request is uploaded as a file."""
    http.responses = [UPLOAD, (200, "", {}), JOB]
    call(lambda c: c.submit(text="é" * 200_000))
    assert http.body()["content_type"] == "text/plain; charset=utf-8"
    assert len(http.requests[1].read()) == 400_000


def test_a_file_is_combined_with_other_fields(call: Caller, http: StubHttp) -> None:
    """For any kind, the key of the upload becomes the field `s3_key` beside the other fields."""
    http.responses = [UPLOAD, (200, "", {}), JOB]
    given = {"target": "price", "options": {"rows": 9}}
    call(lambda c: c.submit(b"a,b", filename="a.csv", kind="dataset", input=given))
    assert http.body(2) == {"kind": "dataset", "input": {**given, "s3_key": "uploads/me/x"}}
    assert http.body(0)["kind"] == "dataset"  # each kind has its own limit of uploads
    assert given == {"target": "price", "options": {"rows": 9}}


def test_a_submission_needs_an_input(call: Caller, http: StubHttp) -> None:
    """A kind alone raises ValueError. An empty input is allowed, because some kinds accept it."""
    with pytest.raises(ValueError, match="Nothing to submit"):
        call(lambda c: c.submit(kind="errand"))
    http.responses = [JOB]
    call(lambda c: c.submit(kind="errand", input={}))
    assert http.body() == {"kind": "errand", "input": {}}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"file": b"a", "s3_key": "b"}, "s3_key"),
        ({"file": b"a", "input": {"s3_key": "b"}}, "s3_key"),
        ({"text": "a", "input": {"text": "b"}}, "text"),
        ({"document_id": "a", "input": {"document_id": "a"}}, "document_id"),
        ({"text": "a" * 300_000, "s3_key": "b"}, "s3_key"),
    ],
)
def test_a_field_is_given_once(call: Caller, http: StubHttp, given: dict[str, Any], field: str) -> None:
    """The same field from two places raises ValueError before anything is sent."""
    with pytest.raises(ValueError, match=f"{field} is given twice"):
        call(lambda c: c.submit(**given))
    assert http.requests == []


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────

LINK = "https://store/result?X-Amz-Signature=1"
DONE = {**JOB, "status": "completed", "result": {"text": "Because."}}
LARGE = {**DONE, "result": None, "result_truncated": True, "links": {"result": LINK}}
LARGE_WITH_NEW_LINK = {**LARGE, "links": {"result": "https://store/result?X-Amz-Signature=2"}}


def test_a_result_in_the_job_costs_no_request(call: Caller, http: StubHttp) -> None:
    """The result of a job that has ended is returned without a request."""
    http.responses = [DONE]
    assert call(lambda c: c.result("job_1")) == {"text": "Because."}
    assert call(lambda c: c.result(Job.of(DONE))) == {"text": "Because."}
    assert len(http.requests) == 1


def test_a_large_result_is_downloaded(call: Caller, http: StubHttp) -> None:
    """It is downloaded from its link on another host, without the key."""
    http.responses = [LARGE, {"text": "x" * 40_000}]
    assert call(lambda c: c.result("job_1")) == {"text": "x" * 40_000}
    _, download = http.requests
    assert (download.method, str(download.url), download.read()) == ("GET", LINK, b"")
    assert "authorization" not in download.headers


def test_an_open_job_is_fetched_again(call: Caller, http: StubHttp) -> None:
    """A job object may be out of date, so its current result is returned, None if the job has not ended."""
    http.responses = [DONE, JOB]
    assert call(lambda c: c.result(Job.of(JOB))) == {"text": "Because."}
    assert call(lambda c: c.result(Job.of(JOB))) is None


@pytest.mark.parametrize("status", [400, 403])
def test_an_expired_result_link_is_renewed(call: Caller, http: StubHttp, status: int) -> None:
    """The job is fetched again for a new link, once."""
    refused = (status, "<Error><Code>AccessDenied</Code></Error>", {})
    http.responses = [refused, LARGE_WITH_NEW_LINK, {"text": "long"}]
    assert call(lambda c: c.result(Job.of(LARGE))) == {"text": "long"}
    assert http.lines == [
        "GET /result?X-Amz-Signature=1",
        "GET /v1/jobs/job_1",
        "GET /result?X-Amz-Signature=2",
    ]
    http.responses = [refused, LARGE_WITH_NEW_LINK, refused]
    with pytest.raises(ApiError) as caught:
        call(lambda c: c.result(Job.of(LARGE)))
    assert (caught.value.status, http.responses) == (status, [])


def test_other_errors_of_a_result_link_are_raised(call: Caller, http: StubHttp) -> None:
    """The job is not fetched again for an error that a new link does not solve."""
    http.responses = [(404, "<Error/>", {})]
    with pytest.raises(ApiError):
        call(lambda c: c.result(Job.of(LARGE)))
    assert len(http.requests) == 1


@pytest.mark.parametrize("response", ["<html>", [1], {**LARGE, "links": {}}], ids=["page", "list", "no link"])
def test_invalid_large_results_are_errors(call: Caller, http: StubHttp, response: Any) -> None:
    """A download that is not a JSON object, and a job without the link, raise BadAnswer."""
    has_no_link = isinstance(response, dict)
    http.responses = [] if has_no_link else [response]
    with pytest.raises(BadAnswer):
        call(lambda c: c.result(Job.of(response if has_no_link else LARGE)))


@pytest.mark.parametrize(("status", "error"), [("failed", models.JobFailed), ("canceled", models.JobCanceled)])
def test_a_job_that_did_not_complete_has_no_result(
    call: Caller, http: StubHttp, status: str, error: type[Exception]
) -> None:
    """The job's end is raised as an error."""
    http.responses = [{**JOB, "status": status}]
    with pytest.raises(error, match=f"job_1 (was )?{status}"):
        call(lambda c: c.result("job_1"))
