"""The routes of the WebSocket API (live.on_message)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import ids
from core.errors import InvalidRequest
from core.jobs import JobStore, links
from core.live.subscriptions import MAX_SUBSCRIPTIONS, Subscriptions
from kinds.document.kind import DOCUMENT
from live.on_message.client_messages import MAX_SEQUENCE, parse
from live.on_message.handler import handler
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import job
from tests.unit.gateway import GONE, THROTTLED, Gateway

NOW = time.time()


@pytest.fixture
def jobs(environment: dict[str, str], dynamodb: Any, jobs_table: str, keys_table: str) -> JobStore:
    return JobStore(dynamodb, jobs_table)


@pytest.fixture
def subscriptions(environment: dict[str, str], dynamodb: Any, jobs_table: str, keys_table: str) -> Subscriptions:
    return Subscriptions(dynamodb, jobs_table)


@pytest.fixture
def job_id(jobs: JobStore) -> str:
    return submitted(jobs)


def submitted(jobs: JobStore, **facts: Any) -> str:
    return jobs.submit(DOCUMENT, job(at=NOW, link_key=links.make_key(), **facts)).job.job_id


def token(jobs: JobStore, job_id: str, *, hours: int = 1, now: float = NOW) -> str:
    return links.make_token(jobs.get(job_id), now=now, hours=hours)


def connect(query: dict[str, str] | None, connection_id: str = "c=") -> int:
    """Opens a connection; returns the status."""
    context = {"eventType": "CONNECT", "routeKey": "$connect", "connectionId": connection_id}
    given = {} if query is None else {"queryStringParameters": query}
    status: int = handler({"requestContext": context, "isBase64Encoded": False, **given}, None)["statusCode"]
    return status


def send(message: Any, connection_id: str = "c=") -> None:
    """Sends a client's message: text as it is, or anything else as JSON. The status is always 200."""
    body = message if isinstance(message, str) else json.dumps(message)
    context = {"eventType": "MESSAGE", "routeKey": "$default", "connectionId": connection_id}
    context["messageId"] = ids.new("msg")
    assert handler({"requestContext": context, "body": body}, None) == {"statusCode": 200}


def subscribe(job_id: str, connection_id: str = "c=", **facts: Any) -> None:
    send({"action": "subscribe", "job_id": job_id, **facts}, connection_id)


@pytest.fixture
def by_ticket(subscriptions: Subscriptions) -> str:
    """Ana's connection, opened with a ticket."""
    assert connect({"ticket": subscriptions.issue_ticket("ana")[0]}) == 200
    return "c="


def error(gateway: Gateway, code: str, connection_id: str = "c=") -> dict[str, Any]:
    """The only message to the connection, which is an error with this code."""
    (message,) = gateway.received(connection_id)
    assert (message["type"], message["code"]) == ("error", code), message
    assert message["message"]
    assert set(message) <= {"type", "code", "message", "job_id"}
    found: dict[str, Any] = message
    return found


def requested(subscriptions: Subscriptions, job_id: str) -> list[tuple[str, int]]:
    return [(one.connection_id, one.after) for one in subscriptions.subscribers(job_id).requested]


# ── handshakes ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("query", "after"), [({}, 0), ({"after": "7"}, 7), ({"after": "999999"}, MAX_SEQUENCE)])
def test_link(
    jobs: JobStore, subscriptions: Subscriptions, gateway: Gateway, job_id: str, query: dict[str, str], after: int
) -> None:
    """A connection by link requests the job's events, and receives no message during its handshake."""
    assert connect({"token": token(jobs, job_id), **query}) == 200
    assert requested(subscriptions, job_id) == [("c=", after)]
    connection = subscriptions.connection("c=")
    assert connection is not None
    assert (connection.owner, connection.job_id) == ("ana", job_id)
    assert gateway.sent == {}


@pytest.mark.parametrize(
    "after",
    [
        "",
        "-1",
        "x",
        "1.5",
        "+1",
        " 1",
        "1\n",
        "²",
        "٣",
        "1000000",
        "9" * 5000,
        "0" * 9 + "9" * 9,
        "0" * 9 + "9" * 5000,
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_invalid_sequences(jobs: JobStore, subscriptions: Subscriptions, job_id: str, after: str) -> None:
    """An invalid sequence is refused, and nothing is stored."""
    assert connect({"token": token(jobs, job_id), "after": after}) == 422
    assert subscriptions.connection("c=") is None


@pytest.mark.parametrize(
    "query", [None, {}, {"ticket": ""}, {"ticket": "x"}, {"ticket": "\0" * 5000}, {"tickets": "x"}]
)
def test_invalid_tickets(subscriptions: Subscriptions, query: dict[str, str] | None) -> None:
    """A missing or malformed ticket is refused with 403."""
    assert connect(query) == 403
    assert subscriptions.connection("c=") is None


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────

WRONG = {
    "": "message",
    "{": "message",
    "[]": "message",
    "3": "message",
    "null": "message",
    '"ping"': "message",
    "ping": "message",
    "[" * 5000: "message",
    '{"action":"subscribe","job_id":"\\ud800"}': "message",
    "{}": "action",
    '{"action":1}': "action",
    '{"action":null}': "action",
    '{"action":"x"}': "action",
    '{"action":"Ping"}': "action",
    '{"action":["ping"]}': "action",
    '{"type":"ping"}': "action",
    '{"action":"ping","ping":1}': "ping",
    '{"action":"ping","job_id":"x"}': "job_id",
    '{"action":"subscribe"}': "job_id",
    '{"action":"subscribe","job_id":1}': "job_id",
    '{"action":"subscribe","job_id":null}': "job_id",
    '{"action":"unsubscribe","job_id":["x"]}': "job_id",
    '{"action":"unsubscribe"}': "job_id",
    f'{{"action":"unsubscribe","job_id":"{"x" * 3000}"}}': "job_id",
    '{"action":"subscribe","job_id":"x","after":-1}': "after",
    '{"action":"subscribe","job_id":"x","after":1.5}': "after",
    '{"action":"subscribe","job_id":"x","after":"1"}': "after",
    '{"action":"subscribe","job_id":"x","after":true}': "after",
    '{"action":"subscribe","job_id":"x","after":null}': "after",
    '{"action":"subscribe","job_id":"x","after":1000000}': "after",
    f'{{"action":"subscribe","job_id":"x","after":{"9" * 100}}}': "after",
    '{"action":"follow"}': "kind",
    '{"action":"follow","kind":1}': "kind",
    '{"action":"follow","kind":"documents"}': "kind",
    '{"action":"follow","kind":""}': "kind",
    '{"action":"unfollow"}': "kind",
    f'{{"action":"unfollow","kind":"{"x" * 2000}"}}': "kind",
    '{"action":"unsubscribe","job_id":"x","after":1}': "after",
}


@pytest.mark.parametrize(("body", "field"), WRONG.items(), ids=[ascii(body[:40]) for body in WRONG])
def test_invalid_messages(
    gateway: Gateway, by_ticket: str, logged: Callable[[], list[dict[str, Any]]], body: str, field: str
) -> None:
    """The error for an invalid message names the field, and is not logged."""
    send(body)
    assert error(gateway, "invalid_request")["message"].startswith(f"{field}: ")
    assert logged() == []


def test_no_body(gateway: Gateway, by_ticket: str) -> None:
    """A message without a body is invalid."""
    context = {"eventType": "MESSAGE", "connectionId": by_ticket, "messageId": "m="}
    for event in ({}, {"body": None}):
        assert handler({"requestContext": context, **event}, None) == {"statusCode": 200}
        error(gateway, "invalid_request")


@pytest.mark.parametrize(
    "body", ['{"action":"%s"}', '{"action":"ping","%s":1}', '{"action":"follow","kind":"%s"}']
)
def test_length_of_errors(gateway: Gateway, by_ticket: str, body: str) -> None:
    """Errors are short, however long the message is."""
    send(body % ("ñ" * 60_000))
    assert len(json.dumps(error(gateway, "invalid_request"))) < 4000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["subscribe", "unsubscribe", "follow", "unfollow", "ping"]) | json_values,
        "job_id": json_values,
        "kind": json_values,
        "after": json_values,
    },
)


@settings(max_examples=300)
@given(st.text(st.characters(exclude_categories=())) | st.builds(json.dumps, fields | json_values))
def test_any_text(text: str) -> None:
    """Any text is a valid message, or the error names a field."""
    try:
        message = parse(text)
    except InvalidRequest as refusal:
        named = bool(refusal.field) and str(refusal).startswith(refusal.field[:100])
    else:
        named = json.loads(text)["action"] == type(message).__name__.lower()
    assert named


def test_unsubscribe(subscriptions: Subscriptions, gateway: Gateway, by_ticket: str, job_id: str) -> None:
    """The end of a subscription is confirmed, even if there was none."""
    subscribe(job_id)
    for _ in range(2):
        send({"action": "unsubscribe", "job_id": job_id})
        assert gateway.received(by_ticket) == [{"type": "unsubscribed", "job_id": job_id}]
    assert subscriptions.subscribers(job_id).subscriptions == []


@pytest.mark.parametrize("message", [{"action": "follow", "kind": "document"}, {"action": "subscribe"}])
def test_unknown_connection(gateway: Gateway, job_id: str, message: dict[str, Any]) -> None:
    """The error for an unknown or deleted connection says to connect again."""
    send(message | ({"job_id": job_id} if message["action"] == "subscribe" else {}), "unknown=")
    assert "again" in error(gateway, "forbidden", "unknown=")["message"]


@pytest.mark.parametrize(
    "name", [lambda: ids.new("job"), lambda: "x", lambda: "", lambda: "META", lambda: ids.new("job").lower()]
)
def test_unknown_job(
    subscriptions: Subscriptions, gateway: Gateway, by_ticket: str, name: Callable[[], str]
) -> None:
    """The error for an unknown job contains the job's id."""
    unknown = name()
    subscribe(unknown)
    assert error(gateway, "not_found")["job_id"] == unknown
    assert subscriptions.subscribers(unknown).subscriptions == []


# ── limits and errors ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def at_limit(jobs: JobStore, subscriptions: Subscriptions, by_ticket: str) -> list[str]:
    """Jobs and kinds to which Ana subscribes, as many as allowed."""
    connection = subscriptions.connection(by_ticket)
    assert connection is not None
    found = [submitted(jobs) for _ in range(MAX_SUBSCRIPTIONS)]
    for one in found:
        subscriptions.subscribe(connection, one)
    return found


def test_limit(subscriptions: Subscriptions, gateway: Gateway, at_limit: list[str], job_id: str) -> None:
    """A hundred jobs and kinds are allowed. After an unsubscription there is place for another."""
    subscribe(job_id)
    assert error(gateway, "too_many_subscriptions")["job_id"] == job_id
    send({"action": "follow", "kind": "document"})
    error(gateway, "too_many_subscriptions")
    assert subscriptions.subscribers(job_id).subscriptions == []
    send({"action": "unsubscribe", "job_id": at_limit[0]})
    gateway.received("c=")
    subscribe(job_id)
    assert gateway.sent == {}
    assert requested(subscriptions, job_id) == [("c=", 0)]


def test_subscribing_again_at_limit(subscriptions: Subscriptions, gateway: Gateway, at_limit: list[str]) -> None:
    """At the limit, existing subscriptions can be requested again."""
    subscribe(at_limit[7], after=2)
    assert gateway.sent == {}
    assert requested(subscriptions, at_limit[7]) == [("c=", 2)]


@pytest.mark.parametrize("error", [GONE, THROTTLED, "ForbiddenException"])
def test_failed_reply(gateway: Gateway, by_ticket: str, error: str) -> None:
    """If the reply cannot be sent, the message has been handled all the same."""
    gateway.errors[by_ticket] = error
    send({"action": "ping"})
    send("?")
    assert gateway.sent == {}


def test_internal_error(
    gateway: Gateway, by_ticket: str, job_id: str, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """An internal error is sent with the job's id and without details, and logged."""
    calls = Calls(Clock())
    calls.fail("dynamodb", "PutItem", "InternalServerError")
    with calls.intercepted():
        subscribe(job_id)
    message = error(gateway, "internal")
    assert message["job_id"] == job_id
    assert "InternalServerError" not in message["message"]
    assert [line["level"] for line in logged()] == ["ERROR"]


def test_secrets_are_not_logged(
    jobs: JobStore, subscriptions: Subscriptions, job_id: str, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """Tokens, tickets and messages are not logged."""
    text, (ticket, _) = token(jobs, job_id), subscriptions.issue_ticket("ana")
    connect({"token": text})
    connect({"token": text + "x"})
    connect({"ticket": ticket})
    connect({"ticket": ticket})
    send("secret")
    assert logged() == []
