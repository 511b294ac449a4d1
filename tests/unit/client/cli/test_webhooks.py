"""Commands for webhooks."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection, RemoteDisconnected
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from standardwebhooks.webhooks import Webhook

from recado._cli import receiver, webhooks
from tests.unit.client.cli.conftest import Run
from tests.unit.client.stub_http import DELIVERY, WEBHOOK
from tests.unit.client.stub_service import StubService, payload

pytestmark = pytest.mark.enable_socket
SECRET = str(WEBHOOK["secret"])


def test_add_prints_the_secret(run: Run, service: StubService) -> None:
    """The secret follows the id on standard output. The options are sent."""
    service.responses["POST /webhooks"] = (201, WEBHOOK)
    assert run("webhooks", "add", "https://me/", "--event", "document.*", "--ordered")[1] == f"wh_1\t{SECRET}\n"
    assert json.loads(service.bodies[0]) == {"url": "https://me/", "events": ["document.*"], "ordered": True}


def test_add_prints_the_secret_for_people(run: Run, service: StubService, for_people: None) -> None:
    """A note says that the secret is not shown again."""
    service.responses["POST /webhooks"] = (201, WEBHOOK)
    _, out, err = run("webhooks", "add", "https://me/")
    assert (f"secret: {SECRET}" in out, "not shown again" in err) == (True, True)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "enabled"),
        ({"circuit": {"state": "open"}}, "held"),
        ({"enabled": False, "disabled_reason": "failing"}, "disabled failing"),
    ],
)
def test_ls_prints_endpoints(run: Run, service: StubService, fields: dict[str, Any], state: str) -> None:
    """An endpoint is enabled, held by its circuit breaker, or disabled."""
    service.responses["GET /webhooks"] = (200, {"webhooks": [WEBHOOK | fields]})
    assert run("webhooks", "ls")[1] == f"wh_1\t{state}\thttps://me/\t*\t\n"


def test_rotate_prints_the_new_secret(run: Run, service: StubService) -> None:
    """The grace period is sent in seconds."""
    service.responses["POST /webhooks/wh_1/rotate-secret"] = (200, WEBHOOK)
    assert run("webhooks", "rotate", "wh_1", "--grace", "1h")[1] == f"wh_1\t{SECRET}\n"
    assert json.loads(service.bodies[0]) == {"grace_seconds": 3600}


def test_rm_deletes_an_endpoint(run: Run, service: StubService) -> None:
    """Nothing is printed on standard output."""
    service.responses["DELETE /webhooks/wh_1"] = (200, None)
    assert run("webhooks", "rm", "wh_1")[:2] == (0, "")


def test_deliveries_are_listed(run: Run, service: StubService) -> None:
    """A delivery has the status of its last response."""
    service.responses["GET /webhooks/wh_1/deliveries"] = (200, {"deliveries": [DELIVERY], "cursor": None})
    line = "dlv_1\tfailed\tdocument.indexed\t2\t503\t2026-11-29T08:00:00.000Z\n"
    assert run("webhooks", "deliveries", "wh_1", "--status", "failed")[1] == line


def test_redeliver(run: Run, service: StubService) -> None:
    """The status of the delivery is printed."""
    service.responses["POST /deliveries/dlv_1/redeliver"] = (202, DELIVERY)
    assert run("webhooks", "redeliver", "dlv_1")[:2] == (0, "dlv_1\tfailed\n")


@pytest.mark.parametrize(
    ("result", "code", "line"),
    [
        (DELIVERY, 1, "dlv_1\tfailed\t503 after 31 ms\n"),
        (DELIVERY | {"status": "delivered"}, 0, "dlv_1\tdelivered\t503 after 31 ms\n"),
        ({"delivery_id": "dlv_1"}, 5, ""),
    ],
    ids=["failed", "delivered", "pending"],
)
def test_test_has_the_exit_code_of_the_ping(
    run: Run, service: StubService, result: dict[str, Any], code: int, line: str
) -> None:
    """The exit code is 0 for a delivered, 1 for a failed, and 5 for a pending ping."""
    service.responses["POST /webhooks/wh_1/test"] = (200, result)
    assert run("webhooks", "test", "wh_1")[:2] == (code, line)


def test_test_prints_the_response_for_people(run: Run, service: StubService, for_people: None) -> None:
    """A cross marks a failure."""
    service.responses["POST /webhooks/wh_1/test"] = (200, DELIVERY)
    assert run("webhooks", "test", "wh_1")[1].startswith("✗ failed  503 after 31 ms")


# ── listen ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs of `listen`. It ends after four requests."""
    urls: list[str] = []
    serve = receiver.serve

    @contextmanager
    def serve_on_any_port(handle: Any, *, port: int) -> Iterator[str]:
        with serve(handle, port=0) as url:
            urls.append(url)
            yield url

    monkeypatch.setattr(receiver, "serve", serve_on_any_port)
    monkeypatch.setattr(webhooks, "_wait_for_interrupt", lambda: send_webhooks(urls[0]))
    return urls


def send_webhooks(url: str) -> int:
    """A webhook, the same webhook again, and a forged one. A GET is refused."""
    body, now = json.dumps(payload(1, "uploaded")), int(time.time())
    signature = Webhook(SECRET).sign("evt_1", datetime.fromtimestamp(now, UTC), body)
    headers = {"webhook-id": "evt_1", "webhook-timestamp": str(now), "webhook-signature": signature}
    forged = {**headers, "webhook-id": "evt_2"}
    requests: list[Mapping[str, str]] = [headers, headers, forged]
    assert [httpx2.post(url, content=body, headers=each).status_code for each in requests] == [204, 204, 403]
    assert httpx2.get(url).status_code == 501
    return 0


def test_listen_verifies_and_prints(run: Run, listening: list[str]) -> None:
    """Every webhook is verified, answered and printed, and repeated events are marked."""
    code, out, err = run("webhooks", "listen", "--secret", SECRET, "--json")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["verified"], line["again"]) for line in lines] == [(True, False), (True, True), (False, False)]
    assert set(lines[0]) == {"verified", "event_id", "payload", "problem", "again"}
    assert lines[0]["payload"]["event"] == "document.uploaded"
    assert lines[2]["problem"].startswith("no_matching_signature")
    assert listening[0] in err


@pytest.mark.parametrize("secret", ["", "whsec_", "secret"])
def test_listen_refuses_an_invalid_secret(
    run: Run, service: StubService, listening: list[str], secret: str
) -> None:
    """An empty secret is not a missing one: no endpoint is created, and nothing is received."""
    code, _, err = run("webhooks", "listen", "--secret", secret)
    assert code == 1
    assert "secret" in err
    assert listening == service.requests == []


def test_the_receiver_accepts_no_plain_signature_and_no_repeated_header() -> None:
    """A request is verified by its id, time and body, and each of these headers comes once."""
    body, now = b"{}", int(time.time())
    signature = Webhook(SECRET).sign("evt_1", datetime.fromtimestamp(now, UTC), body.decode())
    signed = [("webhook-id", "evt_1"), ("webhook-timestamp", str(now)), ("webhook-signature", signature)]
    plain = [("x-signature", "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex())]
    received: list[str | None] = []
    verifier = receiver.WebhookVerifier([SECRET])

    def handle(headers: Any, body: bytes) -> int:
        received.append(verifier(headers, body).problem)
        return 204

    with receiver.serve(handle, port=0) as url:
        for headers in (signed, plain, [*plain, *signed[:2]], [("webhook-id", "evt_2"), *signed]):
            httpx2.post(url, content=body, headers=headers)
    problems = [str(problem).partition(":")[0] for problem in received]
    assert problems == ["None", "missing_header", "missing_header", "malformed_header"]


def test_listen_creates_and_deletes_an_endpoint(run: Run, service: StubService, listening: list[str]) -> None:
    """Without a secret, an endpoint exists while the command runs."""
    service.responses |= {"POST /webhooks": (201, WEBHOOK), "DELETE /webhooks/wh_1": (200, None)}
    code, out, _ = run("webhooks", "listen", "--event", "document.*")
    assert code == 0
    assert (out.count("✓ verified"), out.count("✗ not verified")) == (2, 1)
    assert [line.partition("?")[0] for line in service.requests] == [
        "POST /v1/webhooks",
        "DELETE /v1/webhooks/wh_1",
    ]
    assert json.loads(service.bodies[0])["url"] == listening[0]


def test_listen_says_what_to_do_if_the_url_is_refused(
    run: Run, service: StubService, listening: list[str]
) -> None:
    """A service that calls no local addresses needs a tunnel."""
    problem = {"type": "t", "title": "invalid request", "detail": "127.0.0.1 is private.", "field": "url"}
    service.responses["POST /webhooks"] = (422, problem)
    code, _, err = run("webhooks", "listen")
    assert (code, "--public-url" in err) == (1, True)


def test_listen_raises_other_errors(run: Run, service: StubService, listening: list[str]) -> None:
    """An error about another field is printed as it is."""
    problem = {"type": "t", "title": "invalid request", "detail": "Unknown event.", "field": "events"}
    service.responses["POST /webhooks"] = (422, problem)
    code, _, err = run("webhooks", "listen", "--event", "nothing")
    assert (code, "Unknown event." in err, "--public-url" in err) == (1, True, False)


@pytest.mark.parametrize(("headers", "status"), [({}, 411), ({"content-length": "2000000"}, 413)])
def test_the_receiver_checks_the_length(headers: dict[str, str], status: int) -> None:
    """A body without a length, or with one over 1 MiB, is not read."""
    with (
        receiver.serve(lambda *_: 204, port=0) as url,
        closing(HTTPConnection(urlsplit(url).netloc, timeout=10)) as connection,
    ):
        connection.putrequest("POST", "/webhooks")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == status


def test_the_receiver_keeps_the_connection_of_a_sender_that_does_well() -> None:
    """The next webhook comes on the same connection, until one is refused."""
    statuses = iter((204, 400))
    with (
        receiver.serve(lambda *_: next(statuses), port=0) as url,
        closing(HTTPConnection(urlsplit(url).netloc, timeout=10)) as connection,
    ):
        ports = []
        for _ in range(2):
            connection.request("POST", "/webhooks", body=b"{}")
            ports.append(connection.sock.getsockname())
            connection.getresponse().read()
        assert ports[0] == ports[1]
        with pytest.raises((RemoteDisconnected, ConnectionError)):  # whether writing or reading notices first
            ask(connection)


def ask(connection: HTTPConnection) -> None:
    connection.request("POST", "/webhooks", body=b"{}")
    connection.getresponse()
