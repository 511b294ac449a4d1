"""One client in several processes, event loops and threads: nobody gets the answer to another's question."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import isasyncgen
from pathlib import Path
from typing import Any

import httpx2
import pytest

import recado
from recado import AsyncRecado, BadAnswer, ClientUnusable, Recado, _io
from recado.models import Job
from tests.attacks.echo_service import EchoService, echoing, write_certificate
from tests.unit.client.stub_http import DELIVERY, DOCUMENT, JOB, KEY, URL, WEBHOOK, Act, call_client
from tests.unit.client.stub_service import StubService, payload, payloads, running

CLIENT = Path(recado.__file__).parents[1]
pytestmark = pytest.mark.enable_socket


@pytest.fixture
def echo() -> Iterator[EchoService]:
    with echoing() as service:
        yield service


@pytest.fixture
def service() -> Iterator[StubService]:
    with running() as service:
        yield service


@pytest.fixture(params=[False, True], ids=["blocking", "asyncio"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def run(program: str, url: str, **environment: str) -> None:
    """Run a program of `forking.py`. It must exit with 0 within a minute."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("forking.py")), program, url],
        env={**os.environ, "PYTHONPATH": str(CLIENT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def askers(service: EchoService) -> list[set[str]]:
    """For each connection, who asked: the second word of the ids."""
    return [{job_id.split("_")[1] for job_id in jobs} for jobs in service.connections if jobs]


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("program", ["blocking", "asynchronous"])
def test_parent_and_child_have_connections_of_their_own(echo: EchoService, program: str) -> None:
    """After a fork each gets its own answers, and the parent keeps its connection."""
    run(program, echo.url)
    parent, child = askers(echo)
    assert len(child) == 1
    assert "before" in parent
    assert not parent & child


def test_tls_connections_are_not_shared(tmp_path: Path) -> None:
    """The two processes would encrypt with the same numbers, and the server would end the connection."""
    certificate = write_certificate(tmp_path / "certificate.pem")
    with echoing(certificate) as service:
        run("blocking", service.url, SSL_CERT_FILE=str(certificate))
    assert len(askers(service)) == 2


def test_a_child_that_closes_does_not_close_the_parents_connection(echo: EchoService) -> None:
    """The parent's next request is on the same connection."""
    run("closing", echo.url)
    assert echo.connections == [["job_before", "job_after"]]


def test_an_http_client_of_the_caller_is_refused_in_the_child(echo: EchoService) -> None:
    """It cannot be made anew. The error says so."""
    run("own_http", echo.url)
    assert echo.connections == [["job_before", "job_after"]]


@pytest.mark.parametrize("program", ["watch", "watch_asynchronous", "watch_in_two_loops"])
@pytest.mark.parametrize("transport", ["websocket", "sse"])
def test_a_watch_continues_in_another_place(service: StubService, program: str, transport: str) -> None:
    """A watch that began before the fork, or in another event loop, continues on a connection of its own."""
    *before, last = payloads(8)
    service.reset(before, hold_seconds=5)
    with service.append_later(2, last):
        run(program, service.url, TRANSPORT=transport)
    assert len([line for line in service.requests if line == "WS" or "/events" in line]) == 2


# ── event loops and threads ──────────────────────────────────────────────────────────────────────────────


def test_each_event_loop_has_connections_of_its_own(echo: EchoService) -> None:
    """One after the other, or at the same time in threads."""
    run("loops", echo.url)
    assert sorted(map(sorted, askers(echo))) == [["a"], ["b"], ["c"], ["one"], ["two"]]


def test_an_http_client_of_the_caller_is_refused_in_a_second_loop(echo: EchoService) -> None:
    """Its connections belong to the first loop. The error says so."""
    run("loops_with_own_http", echo.url)
    assert echo.connections == [["job_before"]]


def test_threads_share_a_client(echo: EchoService) -> None:
    """Each gets the answers to its own questions, and connections are used again."""
    names = [f"job_{thread}_{number}" for thread in range(8) for number in range(20)]
    with Recado(echo.url, KEY, retries=0) as client, ThreadPoolExecutor(8) as pool:
        assert [job.job_id for job in pool.map(client.job, names)] == names
    assert len(echo.connections) <= 8


# ── after close ──────────────────────────────────────────────────────────────────────────────────────────

CALLS: list[Act] = [
    lambda c: c.job("job_1"),
    lambda c: c.watch("job_1", transport="sse"),
    lambda c: c.follow(),
    lambda c: c.webhooks.list(),
    lambda c: c.upload(b"x"),
]


def refuse(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError("a request was sent")


def call_closed(act: Act, http: httpx2.Client | None) -> None:
    client = Recado(URL, KEY, http=http)
    client.close()
    client.close()
    next(act(client))


async def call_closed_async(act: Act, http: httpx2.AsyncClient | None) -> None:
    client = AsyncRecado(URL, KEY, http=http)
    await client.close()
    await client.close()
    result = act(client)
    await (anext(result) if isasyncgen(result) else result)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("act", CALLS, ids=["job", "watch", "follow", "webhooks", "upload"])
def test_a_closed_client_says_so(act: Act, own: bool) -> None:
    """ClientUnusable, at once and without a request, also with an httpx2 client of the caller."""
    transport = httpx2.MockTransport(refuse)
    with pytest.raises(ClientUnusable, match="closed"):
        call_closed(act, httpx2.Client(transport=transport) if own else None)
    with pytest.raises(ClientUnusable, match="closed"):
        asyncio.run(call_closed_async(act, httpx2.AsyncClient(transport=transport) if own else None))


def test_a_websocket_is_not_opened_after_close(service: StubService) -> None:
    """The client was closed while it watched."""
    service.reset(payloads(8)[:1])
    client = Recado(service.url, "rk_test")
    found = client.job("job_01JTEST")
    client.close()
    with pytest.raises(ClientUnusable):
        next(client.watch(found, transport="websocket"))
    assert "WS" not in service.requests


# ── the answer to another question ───────────────────────────────────────────────────────────────────────

EVENTS = {"events": [payload(1, "uploaded", "job_1")]}
ENDED = JOB | {"status": "completed", "sequence": 1, "result": {}}


@pytest.mark.parametrize(
    ("act", "answer"),
    [
        (lambda c: c.job("job_2"), JOB),
        (lambda c: c.status("job_2"), JOB),
        (lambda c: c.result("job_2"), ENDED),
        (lambda c: c.events("job_2"), EVENTS),
        (lambda c: c.cancel("job_2"), JOB),
        (lambda c: c.retry("job_2"), JOB | {"retry_of": "job_1"}),
        (lambda c: c.retry("job_2"), JOB),
        (lambda c: c.wait("job_2"), ENDED),
        (lambda c: c.watch("job_2"), ENDED),
        (lambda c: c.document("b.md"), DOCUMENT),
        (lambda c: c.webhooks.get("wh_2"), WEBHOOK),
        (lambda c: c.webhooks.change("wh_2", enabled=False), WEBHOOK),
        (lambda c: c.webhooks.rotate("wh_2"), WEBHOOK),
        (lambda c: c.webhooks.test("wh_2"), DELIVERY),
        (lambda c: c.webhooks.deliveries("wh_2"), {"deliveries": [DELIVERY]}),
        (lambda c: c.webhooks.delivery("dlv_2"), DELIVERY),
        (lambda c: c.webhooks.redeliver("dlv_2"), DELIVERY),
    ],
)
def test_an_answer_about_another_object_is_an_error(act: Act, answer: Any, asynchronous: bool) -> None:
    """Every call that names an object checks that the answer is about it."""
    with pytest.raises(BadAnswer, match="was asked for"):
        call_client(lambda _: httpx2.Response(200, json=answer), act, asynchronous=asynchronous)


@pytest.mark.parametrize(
    ("transport", "wrong"),
    [("sse", "stream"), ("long_poll", "status"), ("long_poll", "events"), ("poll", "status"), ("poll", "events")],
)
def test_no_transport_yields_events_of_another_job(
    transport: Any, wrong: str, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads are repeated, and then it is an error."""

    async def sleep(*_: object) -> None: ...

    monkeypatch.setattr(_io.BlockingIO, "sleep", sleep)
    monkeypatch.setattr(_io.AsyncIO, "sleep", sleep)
    status = JOB | {"job_id": "job_1" if wrong == "status" else "job_2", "sequence": 1}
    event = payload(1, "started", "job_1" if wrong != "status" else "job_2")

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.headers["accept"] == "text/event-stream":
            headers = {"content-type": "text/event-stream"}
            return httpx2.Response(200, text=f"data: {json.dumps(event)}\n\n", headers=headers)
        asks_for_events = request.url.path.endswith("/events")
        return httpx2.Response(200, json={"events": [event]} if asks_for_events else status)

    job = Job.of(JOB | {"job_id": "job_2"})
    with pytest.raises(BadAnswer):
        call_client(handle, lambda c: c.watch(job, transport=transport), asynchronous=asynchronous)
