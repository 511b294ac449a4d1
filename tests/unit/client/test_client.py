"""What the clients send, and what they make of the answers: both of them, in the same words."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from recado import AsyncRecado, Recado, _calls, _io, errors, models
from recado._api import Operations, WebhookOperations
from recado.errors import ApiError, BadAnswer, ConnectionFailed, InvalidRequest, ServerError
from recado.models import Delivery, Job, Pending

URL, KEY = "https://host/v1", "rk_key_secret"
JOB = {
    "job_id": "job_1",
    "kind": "document",
    "status": "running",
    "stage": "embed",
    "progress": {"done": 2, "total": 8},
    "attempts": 1,
    "sequence": 3,
    "created_at": "2026-11-29T08:00:00.000Z",
    "links": {"status": "https://host/v1/follow/t/status"},
}
HOOK = {"webhook_id": "wh_1", "url": "https://me/hook", "events": ["*"], "enabled": True, "secret": "whsec_x"}
SENT = {
    "delivery_id": "dlv_1",
    "webhook_id": "wh_1",
    "event": "ping",
    "event_id": "evt_1",
    "status": "delivered",
    "attempt_count": 1,
    "created_at": "2026-11-29T08:00:00.000Z",
    "attempts": [{"number": 1, "at": "2026-11-29T08:00:00.000Z", "trigger": "first", "duration_ms": 12}],
}
DOCUMENT = {
    "document_id": "a/b",
    "version": "v",
    "job_id": "job_1",
    "chunks": 3,
    "characters": 99,
    "media_type": "text/plain",
    "indexed_at": "2026-11-29T08:00:00.000Z",
}
HIT = {
    "document_id": "a/b",
    "version": "v",
    "chunk": 0,
    "score": 0.5,
    "text": "…",
    "start": 0,
    "end": 1,
    "heading": "",
}
SLOT = {"s3_key": "uploads/me/x", "url": "https://store/x?sig=1", "headers": {"If-None-Match": "*"}}


@dataclass
class Said:
    """What a service has heard, and what it will say: (status, body, headers), an exception, or plain JSON."""

    answers: list[Any] = field(default_factory=list)
    requests: list[httpx2.Request] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, body, headers = answer if isinstance(answer, tuple) else (200, answer, {})
        if isinstance(body, str):
            return httpx2.Response(status, text=body, headers=headers)
        return httpx2.Response(status, json=body, headers=headers)

    @property
    def lines(self) -> list[str]:
        return [f"{each.method} {each.url.raw_path.decode()}" for each in self.requests]

    def body(self, number: int = 0) -> Any:
        return json.loads(self.requests[number].read())


class Driver:
    """Does on either client what a test says, and lists what is iterated over."""

    def __init__(self, said: Said, *, asynchronous: bool) -> None:
        self.said, self.asynchronous = said, asynchronous

    def __call__(self, act: Callable[[Any], Any], **options: Any) -> Any:
        return asyncio.run(self._await(act, options)) if self.asynchronous else self._call(act, options)

    def _call(self, act: Callable[[Any], Any], options: Any) -> Any:
        http = httpx2.Client(transport=httpx2.MockTransport(self.said))
        with http, Recado(URL, KEY, http=http, **options) as client:
            result = act(client)
            return list(result) if inspect.isgenerator(result) else result

    async def _await(self, act: Callable[[Any], Any], options: Any) -> Any:
        async def heard(request: httpx2.Request) -> httpx2.Response:
            await request.aread()
            return self.said(request)

        http = httpx2.AsyncClient(transport=httpx2.MockTransport(heard))
        async with http, AsyncRecado(URL, KEY, http=http, **options) as client:
            result = act(client)
            return [each async for each in result] if inspect.isasyncgen(result) else await result


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture(params=[False, True], ids=["blocking", "asyncio"])
def on_client(request: pytest.FixtureRequest, said: Said) -> Driver:
    return Driver(said, asynchronous=request.param)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that clients made, none of which took any time."""
    pauses: list[float] = []

    async def sleep(_: Any, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(_io.BlockingIO, "sleep", sleep)
    monkeypatch.setattr(_io.AsyncIO, "sleep", sleep)
    return pauses


Act = Callable[[Any], Any]
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
    (lambda c: c.retry("job_1"), JOB, "POST /v1/jobs/job_1/retry", None),
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
        lambda c: c.submit(input={"style": "dry"}, kind="summary", document_id="notes"),
        JOB,
        "POST /v1/jobs",
        {"kind": "summary", "input": {"style": "dry", "document_id": "notes"}},
    ),
    (
        lambda c: c.live_ticket(),
        (201, {"ticket": "t", "url": "wss://live?ticket=t", "expires_at": "2026-11-29T08:01:00Z"}, {}),
        "POST /v1/live/tickets",
        None,
    ),
    (lambda c: c.documents(), {"documents": [DOCUMENT]}, "GET /v1/documents", None),
    (lambda c: c.document("a/b"), DOCUMENT, "GET /v1/documents/a%2Fb", None),
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
        HOOK,
        "POST /v1/webhooks",
        {"url": "https://me/", "events": ["document.*"], "ordered": True},
    ),
    (lambda c: c.webhooks.list(), {"webhooks": [HOOK]}, "GET /v1/webhooks", None),
    (lambda c: c.webhooks.get("wh_1"), HOOK, "GET /v1/webhooks/wh_1", None),
    (
        lambda c: c.webhooks.change("wh_1", enabled=False, filter=None),
        HOOK,
        "PATCH /v1/webhooks/wh_1",
        {"enabled": False, "filter": None},
    ),
    (lambda c: c.webhooks.delete("wh_1"), (204, "", {}), "DELETE /v1/webhooks/wh_1", None),
    (lambda c: c.webhooks.rotate("wh_1"), HOOK, "POST /v1/webhooks/wh_1/rotate-secret", {}),
    (
        lambda c: c.webhooks.rotate("wh_1", grace_seconds=0),
        HOOK,
        "POST /v1/webhooks/wh_1/rotate-secret",
        {"grace_seconds": 0},
    ),
    (lambda c: c.webhooks.test("wh_1"), SENT, "POST /v1/webhooks/wh_1/test", None),
    (
        lambda c: c.webhooks.deliveries(
            "wh_1", status="failed", event="ping", since="2026-11-29T08:00:00Z", limit=3
        ),
        {"deliveries": [SENT], "cursor": None},
        "GET /v1/webhooks/wh_1/deliveries?status=failed&event=ping&since=2026-11-29T08%3A00%3A00Z&limit=3",
        None,
    ),
    (lambda c: c.webhooks.delivery("dlv_1"), SENT, "GET /v1/deliveries/dlv_1", None),
    (lambda c: c.webhooks.redeliver("dlv_1"), SENT, "POST /v1/deliveries/dlv_1/redeliver", None),
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


@pytest.mark.parametrize(("act", "answer", "line", "body"), CALLS, ids=[call[2] for call in CALLS])
def test_calls_are_what_the_api_asks_for(
    on_client: Driver, said: Said, act: Act, answer: Any, line: str, body: Any
) -> None:
    """Every method sends one request, with the key, of the form that the API has."""
    said.answers = [answer]
    on_client(act)
    assert said.lines == [line]
    assert said.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert (said.body() if body is not None else said.requests[0].read()) == (body if body is not None else b"")


def test_every_operation_is_tried() -> None:
    """No method of the clients is missing from the tests above, or from those of waiting and uploading."""
    source = Path(__file__).read_text(encoding="utf-8")
    elsewhere = {"wait", "watch", "follow"}
    for group, prefix in ((Operations, "c"), (WebhookOperations, r"c\.webhooks")):
        names = {name for name, value in vars(group).items() if hasattr(value, "flow")} - elsewhere
        assert {name for name in names if not re.search(rf"{prefix}\.{name}\(", source)} == set()


def test_both_clients_speak_alike() -> None:
    """A method has the same parameters on both, without `self`, and its explanation."""
    blocking, awaiting = Recado(URL, KEY), AsyncRecado(URL, KEY)
    assert inspect.signature(blocking.submit) == inspect.signature(awaiting.submit)
    assert "self" not in inspect.signature(blocking.submit).parameters
    assert blocking.submit.__doc__ == awaiting.submit.__doc__ == Recado.submit.__doc__
    blocking.close()
    asyncio.run(awaiting.close())


# ── what comes back ──────────────────────────────────────────────────────────────────────────────────────


def test_objects_are_read_whole(on_client: Driver, said: Said) -> None:
    """Objects inside objects are objects too; what this client does not know is kept in `raw`."""
    said.answers = [{**JOB, "mood": "fine", "error": {"code": "c", "message": "m", "stage": "s"}}]
    job = on_client(lambda c: c.job("job_1"))
    assert isinstance(job, Job)
    assert (job.progress.done, job.error.code, job.raw["mood"], job.is_final) == (2, "c", "fine", False)


def test_a_test_tells_what_was_answered(on_client: Driver, said: Said) -> None:
    """A ping that ended is a delivery with its attempts, one that did not is pending."""
    said.answers = [SENT, (202, {"delivery_id": "dlv_2"}, {})]
    ended, pending = on_client(lambda c: c.webhooks.test("wh_1")), on_client(lambda c: c.webhooks.test("wh_1"))
    assert isinstance(ended, Delivery)
    assert ended.attempts[0].duration_ms == 12
    assert isinstance(pending, Pending)


@pytest.mark.parametrize("answer", ["<html>", [], {"job_id": "job_1"}, "null"], ids=str)
def test_what_is_no_answer_is_said(on_client: Driver, said: Said, answer: Any) -> None:
    """A page instead of JSON, a list instead of an object, a missing field: BadAnswer, not a KeyError."""
    said.answers = [answer]
    with pytest.raises(BadAnswer):
        on_client(lambda c: c.job("job_1"))


def test_pages_are_turned_as_one_reads(on_client: Driver, said: Said) -> None:
    """All pages are one sequence, and no page is fetched that is not wanted."""
    said.answers = [{"jobs": [JOB, JOB], "cursor": "next"}, {"jobs": [JOB], "cursor": "more"}]
    assert len(on_client(lambda c: c.jobs(limit=3))) == 3
    assert said.lines == ["GET /v1/jobs?limit=3", "GET /v1/jobs?cursor=next&limit=1"]


# ── trouble ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, ApiError), *_calls.BY_STATUS.items(), (500, ServerError), (504, ServerError)],
)
def test_problems_become_errors(on_client: Driver, said: Said, status: int, kind: type[ApiError]) -> None:
    """A problem document is an error of its own class, with all that it says."""
    problem = {"type": "urn:recado:problem:x", "title": "x", "status": status, "detail": "Do y.", "field": "z"}
    said.answers = [(status, problem, {"Retry-After": "7"})]
    with pytest.raises(ApiError, match="Do y") as caught:
        on_client(lambda c: c.job("job_1"), retries=0)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.type, error.detail, error.field) == (status, "urn:recado:problem:x", "Do y.", "z")
    assert error.retry_after == 7


def test_errors_without_a_problem_say_something(on_client: Driver, said: Said) -> None:
    """A page of a proxy is quoted."""
    said.answers = [(502, "<h1>Bad\n gateway</h1>", {})]
    with pytest.raises(ServerError, match="<h1>Bad gateway</h1>"):
        on_client(lambda c: c.job("job_1"), retries=0)


@pytest.mark.parametrize(
    "trouble", [(503, {}, {}), (429, {}, {}), httpx2.ReadError("cut"), httpx2.ConnectError("no")]
)
def test_trouble_is_tried_again(on_client: Driver, said: Said, slept: list[float], trouble: Any) -> None:
    """Busy services and broken connections are borne with, at growing and random pauses."""
    said.answers = [trouble, trouble, trouble, JOB]
    assert on_client(lambda c: c.job("job_1")).job_id == "job_1"
    assert len(slept) == 3
    assert all(0 <= pause <= most for pause, most in zip(slept, [0.5, 1, 2], strict=True))


def test_retry_after_is_honoured_within_bounds(on_client: Driver, said: Said, slept: list[float]) -> None:
    """It is waited at least so long, but not for an hour; a date will do as well."""
    past = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
    said.answers = [(429, {}, {"Retry-After": "9"}), (503, {}, {"Retry-After": "3600"}), (503, {}, past), JOB]
    on_client(lambda c: c.job("job_1"))
    assert [int(pause // 9) for pause in slept[:1]] == [1]
    assert 60 <= slept[1] <= 61
    assert slept[2] <= 2


def test_tries_have_an_end(on_client: Driver, said: Said, slept: list[float]) -> None:
    """After as many retries as wanted the last error is raised."""
    said.answers = [(503, {}, {})] * 3
    with pytest.raises(ServerError):
        on_client(lambda c: c.job("job_1"), retries=2)
    assert len(slept) == 2


def test_mistakes_are_not_repeated(on_client: Driver, said: Said, slept: list[float]) -> None:
    """What is wrong with a request will be wrong again."""
    said.answers = [(422, {"type": "t", "detail": "d", "field": "top_k"}, {})]
    with pytest.raises(InvalidRequest):
        on_client(lambda c: c.search("Why?", top_k=0))
    assert slept == []


@pytest.mark.parametrize(
    "act", [lambda c: c.submit(text="Hi"), lambda c: c.retry("job_1")], ids=["submit", "retry"]
)
def test_one_key_for_all_tries(on_client: Driver, said: Said, slept: list[float], act: Act) -> None:
    """A repeated submission has the same Idempotency-Key and body, so that it makes no second job."""
    said.answers = [httpx2.ReadTimeout("lost"), JOB, JOB]
    on_client(act)
    on_client(act)
    keys = [request.headers["idempotency-key"] for request in said.requests]
    assert keys[0] == keys[1] != keys[2]
    assert said.requests[0].read() == said.requests[1].read()


def test_ones_own_key_is_used(on_client: Driver, said: Said) -> None:
    """A key of the caller's own is sent as it is."""
    said.answers = [JOB]
    on_client(lambda c: c.submit(text="Hi", idempotency_key="mine"))
    assert said.requests[0].headers["idempotency-key"] == "mine"


@pytest.mark.parametrize(
    ("trouble", "tries"),
    [(httpx2.ReadError("cut"), 1), ((503, {}, {}), 1), (httpx2.ConnectError("no"), 2), ((429, {}, {}), 2)],
    ids=["cut", "503", "no connection", "429"],
)
def test_what_must_not_be_done_twice_is_not(
    on_client: Driver, said: Said, slept: list[float], trouble: Any, tries: int
) -> None:
    """An endpoint is added again only where it surely was not the first time."""
    said.answers = [trouble, HOOK]
    try:
        on_client(lambda c: c.webhooks.add("https://me/"))
    except (ApiError, ConnectionFailed):
        assert tries == 1
    assert len(said.requests) == tries


def test_a_deletion_that_was_done_is_done(on_client: Driver, said: Said, slept: list[float]) -> None:
    """404 after a lost answer means that the first try did it; at once it means that there was none."""
    missing = (404, {"detail": "none"}, {})
    said.answers = [httpx2.ReadError("cut"), missing, missing]
    assert on_client(lambda c: c.webhooks.delete("wh_1")) is None
    with pytest.raises(errors.NotFound):
        on_client(lambda c: c.webhooks.delete("wh_1"))


def test_redirects_do_not_take_the_key_along(on_client: Driver, said: Said) -> None:
    """A redirect is not followed."""
    said.answers = [(307, "", {"Location": "https://elsewhere/"})]
    with pytest.raises(BadAnswer):
        on_client(lambda c: c.job("job_1"))
    assert len(said.requests) == 1


# ── uploads ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_uploaded_and_submitted(on_client: Driver, said: Said, tmp_path: Path) -> None:
    """A path: name, type and size go ahead, the bytes to the place that is answered, without the key."""
    file = tmp_path / "report.pdf"
    file.write_bytes(b"%PDF" * 50_000)
    said.answers = [SLOT, (200, "", {}), JOB]
    seen: list[tuple[int, int]] = []
    on_client(lambda c: c.submit(file, document_id="r", on_progress=lambda *both: seen.append(both)))
    asked, put, submitted = said.requests
    assert said.lines == ["POST /v1/uploads", "PUT /x?sig=1", "POST /v1/jobs"]
    assert json.loads(asked.read()) == {
        "filename": "report.pdf",
        "content_type": "application/pdf",
        "size": 200_000,
    }
    assert put.read() == file.read_bytes()
    assert (put.headers["content-length"], put.headers["if-none-match"]) == ("200000", "*")
    assert "authorization" not in put.headers
    assert "transfer-encoding" not in put.headers
    assert json.loads(submitted.read())["input"] == {"s3_key": "uploads/me/x", "document_id": "r"}
    assert seen == [(65536, 200_000), (131072, 200_000), (196608, 200_000), (200_000, 200_000)]


def test_upload_gives_the_key(on_client: Driver, said: Said) -> None:
    """`upload` takes bytes and files from where they stand, and returns what can be submitted."""
    file = io.BytesIO(b"skip, keep")
    file.seek(6)
    said.answers = [SLOT, (200, "", {})]
    assert on_client(lambda c: c.upload(file, filename="a.md")) == "uploads/me/x"
    assert said.body() == {"filename": "a.md", "content_type": "text/markdown", "size": 4}
    assert said.requests[1].read() == b"keep"


def test_a_broken_upload_begins_again(on_client: Driver, said: Said, slept: list[float]) -> None:
    """After a cut all bytes are sent again; 412 then means that the first try had arrived."""
    said.answers = [SLOT, httpx2.WriteError("cut"), (412, "<Error/>", {})]
    assert on_client(lambda c: c.upload(b"bytes")) == "uploads/me/x"
    assert [request.read() for request in said.requests[1:]] == [b"bytes", b"bytes"]


def test_a_place_that_was_full_is_an_error(on_client: Driver, said: Said) -> None:
    """412 at the first try is somebody else's file."""
    said.answers = [SLOT, (412, "<Error/>", {})]
    with pytest.raises(ApiError):
        on_client(lambda c: c.upload(b"bytes"))


def test_long_texts_are_uploaded(on_client: Driver, said: Said) -> None:
    """A text that is too long for a POST goes the way of files."""
    said.answers = [SLOT, (200, "", {}), JOB]
    on_client(lambda c: c.submit(text="é" * 200_000))
    assert said.body()["content_type"] == "text/plain; charset=utf-8"
    assert len(said.requests[1].read()) == 400_000


def test_a_file_goes_with_other_fields(on_client: Driver, said: Said) -> None:
    """For any kind: the key of the upload is the field `s3_key`, beside what else the kind takes."""
    said.answers = [SLOT, (200, "", {}), JOB]
    given = {"target": "price", "options": {"rows": 9}}
    on_client(lambda c: c.submit(b"a,b", filename="a.csv", kind="dataset", input=given))
    assert said.body(2) == {"kind": "dataset", "input": {**given, "s3_key": "uploads/me/x"}}
    assert given == {"target": "price", "options": {"rows": 9}}


def test_nothing_is_not_submitted(on_client: Driver, said: Said) -> None:
    """A submission without anything is the caller's mistake; an input without fields is what a kind may take."""
    with pytest.raises(ValueError, match="nothing is submitted"):
        on_client(lambda c: c.submit(kind="errand"))
    said.answers = [JOB]
    on_client(lambda c: c.submit(kind="errand", input={}))
    assert said.body() == {"kind": "errand", "input": {}}


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
def test_a_field_is_given_once(on_client: Driver, said: Said, given: dict[str, Any], field: str) -> None:
    """The same field from two places is the caller's mistake, and nothing is sent, not even the file."""
    with pytest.raises(ValueError, match=f"{field} is given twice"):
        on_client(lambda c: c.submit(**given))
    assert said.requests == []


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────

LINK = "https://store/result?X-Amz-Signature=1"
DONE = {**JOB, "status": "completed", "result": {"text": "Because."}}
LARGE = {**DONE, "result": None, "result_truncated": True, "links": {"result": LINK}}
ANEW = {**LARGE, "links": {"result": "https://store/result?X-Amz-Signature=2"}}


def test_a_result_is_in_the_job(on_client: Driver, said: Said) -> None:
    """An ordinary result costs no further request where the job that has ended is in hand."""
    said.answers = [DONE]
    assert on_client(lambda c: c.result("job_1")) == {"text": "Because."}
    assert on_client(lambda c: c.result(Job.of(DONE))) == {"text": "Because."}
    assert len(said.requests) == 1


def test_a_large_result_is_fetched(on_client: Driver, said: Said) -> None:
    """It comes from its link, on another host, which is not told the key, nor which API it is."""
    said.answers = [LARGE, {"text": "x" * 40_000}]
    assert on_client(lambda c: c.result("job_1")) == {"text": "x" * 40_000}
    _, fetched = said.requests
    assert (fetched.method, str(fetched.url), fetched.read()) == ("GET", LINK, b"")
    assert "authorization" not in fetched.headers


def test_a_job_that_is_open_is_looked_at_again(on_client: Driver, said: Said) -> None:
    """A job in hand may be out of date: its result is that of now, None if it still goes on."""
    said.answers = [DONE, JOB]
    assert on_client(lambda c: c.result(Job.of(JOB))) == {"text": "Because."}
    assert on_client(lambda c: c.result(Job.of(JOB))) is None


@pytest.mark.parametrize("refusal", [400, 403])
def test_a_link_that_has_expired_is_made_anew(on_client: Driver, said: Said, refusal: int) -> None:
    """The store refuses an old link: the job is read again for a new one, once."""
    refused = (refusal, "<Error><Code>AccessDenied</Code></Error>", {})
    said.answers = [refused, ANEW, {"text": "long"}]
    assert on_client(lambda c: c.result(Job.of(LARGE))) == {"text": "long"}
    assert said.lines == [
        "GET /result?X-Amz-Signature=1",
        "GET /v1/jobs/job_1",
        "GET /result?X-Amz-Signature=2",
    ]
    said.answers = [refused, ANEW, refused]
    with pytest.raises(ApiError) as caught:
        on_client(lambda c: c.result(Job.of(LARGE)))
    assert (caught.value.status, said.answers) == (refusal, [])


@pytest.mark.parametrize("answer", ["<html>", [1], {**LARGE, "links": {}}], ids=["page", "list", "no link"])
def test_a_large_result_that_is_none(on_client: Driver, said: Said, answer: Any) -> None:
    """What is no result, and a job without the link, are BadAnswer."""
    no_link = isinstance(answer, dict)
    said.answers = [] if no_link else [answer]
    with pytest.raises(BadAnswer):
        on_client(lambda c: c.result(Job.of(answer if no_link else LARGE)))


@pytest.mark.parametrize(("status", "error"), [("failed", models.JobFailed), ("canceled", models.JobCanceled)])
def test_what_did_not_complete_has_no_result(
    on_client: Driver, said: Said, status: str, error: type[Exception]
) -> None:
    """The result of a job that failed or was canceled is its error."""
    said.answers = [{**JOB, "status": status}]
    with pytest.raises(error):
        on_client(lambda c: c.result("job_1"))


# ── what a job is about ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "own", "subject"),
    [
        ("document", {"document_id": "notes"}, ("document_id", "notes")),
        ("replay", {"webhook_id": "wh_1"}, ("webhook_id", "wh_1")),
        ("completion", {}, None),
        ("dataset", {"table": "sales"}, ("table", "sales")),
        ("document", {"region": "eu", "trace_id": "t", "document_id": "notes"}, ("document_id", "notes")),
        ("errand", {"region": "eu", "shop_id": "s"}, ("shop_id", "s")),
        ("completion", {"region_count": 3, "labels": {}}, None),
    ],
)
def test_what_a_job_is_about(kind: str, own: dict[str, Any], subject: Any) -> None:
    """It is the field that not every job has: the kind's own id before any other id, and that before the rest."""
    whole = {
        **JOB,
        "kind": kind,
        **own,
        "retry_of": "job_0",
        "waiting_for": "backoff",
        "webhook_secret": "whsec_…",
    }
    assert Job.of(whole).subject == subject
    listed = {name: JOB[name] for name in ("job_id", "kind", "status", "stage", "created_at", "links")}
    assert models.JobSummary.of({**listed, "kind": kind, **own}).subject == subject


def test_a_job_without_a_document_has_none() -> None:
    """`document_id` is there for jobs that are about a document, and None for all others."""
    assert Job.of({**JOB, "document_id": "notes"}).document_id == "notes"
    assert Job.of(JOB).document_id is None


def test_what_a_job_waits_for(on_client: Driver, said: Said) -> None:
    """A job that nobody works at says why and since when; one that does not wait has neither."""
    said.answers = [{**JOB, "waiting_for": "rate_limit", "waiting_since": "2026-11-29T08:00:00.000Z"}, JOB]
    waiting = on_client(lambda c: c.status("job_1"))
    assert (waiting.waiting_for, waiting.waiting_since) == ("rate_limit", "2026-11-29T08:00:00.000Z")
    running = on_client(lambda c: c.status("job_1"))
    assert (running.waiting_for, running.waiting_since) == (None, None)


# ── the package ──────────────────────────────────────────────────────────────────────────────────────────


def test_verifying_loads_no_http_client() -> None:
    """`import recado` brings what receivers need; clients are loaded when they are asked for."""
    program = (
        "import sys, recado; recado.verify; assert not {'httpx2', 'rich', 'websockets'} & set(sys.modules);"
        "recado.polling_cost(60, 1); assert 'httpx2' not in sys.modules;"
        "recado.Recado; assert 'httpx2' in sys.modules"
    )
    client = Path(_io.__file__).parents[1]
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(client)})


def test_every_error_is_in_the_tree() -> None:
    """The tree in the docstring of `errors` names every class, and every name in it can be imported."""
    drawn = re.findall(r"^[ │├└─]*?([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)[1:]
    modules = {**vars(models), **vars(errors)}
    classes = [name for name, value in modules.items() if inspect.isclass(value) and issubclass(value, Exception)]
    assert sorted(set(drawn) & set(classes)) == sorted(classes)


def test_all_is_importable() -> None:
    """What `__all__` names is there."""
    import recado

    for name in recado.__all__:
        assert getattr(recado, name)
    with pytest.raises(AttributeError):
        _ = recado.nonsense
