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
from core.live.subscriptions import MAX_SUBSCRIPTIONS, TICKET_SECONDS, Subscription, Subscriptions
from kinds.document.kind import DOCUMENT
from live.on_message.handler import MAX_SEQUENCE, _parsed, handler
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import DAY, job
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


def disconnect(connection_id: str = "c=") -> None:
    context = {"eventType": "DISCONNECT", "routeKey": "$disconnect", "connectionId": connection_id}
    assert handler({"requestContext": context}, None) == {"statusCode": 200}


def send(message: Any, connection_id: str = "c=") -> None:
    """Sends a client's message: text as it is, or anything else as JSON. The status is always 200."""
    body = message if isinstance(message, str) else json.dumps(message)
    context = {"eventType": "MESSAGE", "routeKey": "$default", "connectionId": connection_id}
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


def test_link_for_several_connections(jobs: JobStore, subscriptions: Subscriptions, job_id: str) -> None:
    """A link can open several connections."""
    text = token(jobs, job_id)
    assert {connect({"token": text}, f"c{number}=") for number in range(5)} == {200}
    assert len(subscriptions.subscribers(job_id).requested) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        lambda jobs, job_id: "",
        lambda jobs, job_id: "x",
        lambda jobs, job_id: "ñ\0",
        lambda jobs, job_id: job_id,
        lambda jobs, job_id: token(jobs, job_id)[:-1] + ("A" if token(jobs, job_id)[-1] != "A" else "B"),
        lambda jobs, job_id: token(jobs, job_id) + "x",
        lambda jobs, job_id: token(jobs, job_id, now=NOW - 3 * 3600),
        lambda jobs, job_id: _of_other(jobs, job_id),
        lambda jobs, job_id: ids.ulid_of(ids.new("job")) + token(jobs, job_id)[26:],
        lambda jobs, job_id: _expired(jobs),
    ],
)
def test_invalid_tokens(
    jobs: JobStore, subscriptions: Subscriptions, job_id: str, wrong: Callable[[JobStore, str], str]
) -> None:
    """An invalid token is refused with 403, and nothing is stored."""
    assert connect({"token": wrong(jobs, job_id)}) == 403
    assert subscriptions.connection("c=") is None
    assert subscriptions.subscribers(job_id).subscriptions == []


def _of_other(jobs: JobStore, job_id: str) -> str:
    """The signature of another job with this job's id."""
    return ids.ulid_of(job_id) + token(jobs, submitted(jobs))[26:]


def _expired(jobs: JobStore) -> str:
    """A valid token of an expired job."""
    expired = job(at=NOW, link_key=links.make_key(), expires_at=int(NOW) - 1)
    jobs.submit(DOCUMENT, expired)
    return links.make_token(expired, now=NOW, hours=1)


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


def test_ticket_is_valid_once(subscriptions: Subscriptions) -> None:
    """A ticket opens one connection, and is refused afterwards."""
    ticket, _ = subscriptions.issue_ticket("ana")
    assert connect({"ticket": ticket}, "a=") == 200
    connection = subscriptions.connection("a=")
    assert connection is not None
    assert (connection.owner, connection.job_id) == ("ana", None)
    assert connect({"ticket": ticket}, "b=") == 403
    assert subscriptions.connection("b=") is None


def test_expired_ticket(dynamodb: Any, jobs_table: str, subscriptions: Subscriptions) -> None:
    """A ticket is refused after a minute, even if its item exists longer."""
    ticket, _ = Subscriptions(dynamodb, jobs_table, clock=lambda: NOW - TICKET_SECONDS - 1).issue_ticket("ana")
    assert connect({"ticket": ticket}) == 403


@pytest.mark.parametrize(
    "query", [None, {}, {"ticket": ""}, {"ticket": "x"}, {"ticket": "\0" * 5000}, {"tickets": "x"}]
)
def test_invalid_tickets(subscriptions: Subscriptions, query: dict[str, str] | None) -> None:
    """Other texts are refused."""
    assert connect(query) == 403
    assert subscriptions.connection("c=") is None


def test_token_and_ticket_are_different(jobs: JobStore, subscriptions: Subscriptions, job_id: str) -> None:
    """A token is not a ticket and vice versa."""
    assert connect({"ticket": token(jobs, job_id)}) == 403
    assert connect({"token": subscriptions.issue_ticket("ana")[0]}) == 403


def test_disconnect(subscriptions: Subscriptions, by_ticket: str, job_id: str) -> None:
    """A connection is deleted with its subscriptions. Unknown connections are ignored."""
    subscribe(job_id)
    send({"action": "follow", "kind": "document"})
    disconnect()
    disconnect("nobody")
    assert subscriptions.connection(by_ticket) is None
    assert subscriptions.subscribers(job_id).subscriptions == []
    assert subscriptions.followers("ana", "document") == []


def test_message_after_disconnect(
    subscriptions: Subscriptions, gateway: Gateway, by_ticket: str, job_id: str
) -> None:
    """A message that arrives after the end of its connection stores nothing."""
    disconnect()
    subscribe(job_id)
    error(gateway, "forbidden")
    send({"action": "follow", "kind": "document"})
    error(gateway, "forbidden")
    assert subscriptions.subscribers(job_id).subscriptions == []
    assert subscriptions.followers("ana", "document") == []


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
    context = {"eventType": "MESSAGE", "connectionId": by_ticket}
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
        message = _parsed(text)
    except InvalidRequest as refusal:
        named = bool(refusal.field) and str(refusal).startswith(refusal.field[:100])
    else:
        named = json.loads(text)["action"] == type(message).__name__.lower()
    assert named


def test_ping(gateway: Gateway, by_ticket: str) -> None:
    """A ping is answered with pong."""
    send({"action": "ping"})
    assert gateway.received(by_ticket) == [{"type": "pong"}]


def test_subscribe(subscriptions: Subscriptions, gateway: Gateway, by_ticket: str, job_id: str) -> None:
    """The request is stored and not answered: `push` answers it."""
    subscribe(job_id)
    assert requested(subscriptions, job_id) == [("c=", 0)]
    subscribe(job_id, after=4)
    assert requested(subscriptions, job_id) == [("c=", 4)]
    assert gateway.sent == {}


def test_unsubscribe(subscriptions: Subscriptions, gateway: Gateway, by_ticket: str, job_id: str) -> None:
    """The end of a subscription is confirmed, even if there was none."""
    subscribe(job_id)
    for _ in range(2):
        send({"action": "unsubscribe", "job_id": job_id})
        assert gateway.received(by_ticket) == [{"type": "unsubscribed", "job_id": job_id}]
    assert subscriptions.subscribers(job_id).subscriptions == []


def test_follow(subscriptions: Subscriptions, gateway: Gateway, by_ticket: str) -> None:
    """Following a kind and its end are confirmed."""
    send({"action": "follow", "kind": "replay"})
    assert gateway.received(by_ticket) == [{"type": "following", "kind": "replay"}]
    assert subscriptions.followers("ana", "replay") == ["c="]
    send({"action": "unfollow", "kind": "replay"})
    assert gateway.received(by_ticket) == [{"type": "unfollowed", "kind": "replay"}]
    assert subscriptions.followers("ana", "replay") == []


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


def test_job_of_other_owner(
    jobs: JobStore, subscriptions: Subscriptions, gateway: Gateway, by_ticket: str
) -> None:
    """The error is the same as for an unknown job."""
    foreign, unknown = submitted(jobs, owner="ben"), ids.new("job")
    subscribe(foreign)
    subscribe(unknown)
    messages = [{**message, "job_id": ""} for message in gateway.received(by_ticket)]
    assert messages[0] == messages[1]
    assert messages[0]["code"] == "not_found"
    assert subscriptions.subscribers(foreign).subscriptions == []


def test_expired_job(jobs: JobStore, gateway: Gateway, by_ticket: str) -> None:
    """An expired job is not found, even if its item exists longer."""
    subscribe(submitted(jobs, expires_at=int(NOW) - 1))
    error(gateway, "not_found")


# ── links ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def by_link(jobs: JobStore, job_id: str) -> str:
    """A connection opened with the job's link."""
    assert connect({"token": token(jobs, job_id)}) == 200
    return "c="


def test_link_is_for_one_job(
    jobs: JobStore, subscriptions: Subscriptions, gateway: Gateway, by_link: str, job_id: str
) -> None:
    """A connection by link can subscribe to its job again, but not to other jobs or kinds."""
    other = submitted(jobs)
    subscribe(job_id, after=3)
    assert requested(subscriptions, job_id) == [("c=", 3)]
    for unknown in (other, ids.new("job"), "x"):
        subscribe(unknown)
        assert error(gateway, "forbidden")["job_id"] == unknown
    send({"action": "follow", "kind": "document"})
    error(gateway, "forbidden")
    assert subscriptions.subscribers(other).subscriptions == []
    assert subscriptions.followers("ana", "document") == []


def test_link_can_subscribe_again(
    subscriptions: Subscriptions, gateway: Gateway, by_link: str, job_id: str
) -> None:
    """A connection by link can unsubscribe and subscribe again."""
    send({"action": "unsubscribe", "job_id": job_id})
    assert gateway.received(by_link) == [{"type": "unsubscribed", "job_id": job_id}]
    subscribe(job_id)
    assert requested(subscriptions, job_id) == [("c=", 0)]


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


def test_limit_is_per_connection(
    subscriptions: Subscriptions, gateway: Gateway, at_limit: list[str], job_id: str
) -> None:
    """Each connection has its own limit."""
    assert connect({"ticket": subscriptions.issue_ticket("ana")[0]}, "d=") == 200
    subscribe(job_id, "d=")
    assert gateway.sent == {}


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


def test_expired_connection(
    subscriptions: Subscriptions, by_ticket: str, job_id: str, dynamodb: Any, jobs_table: str
) -> None:
    """The items of a connection are ignored after a day."""
    subscribe(job_id)
    tomorrow = Subscriptions(dynamodb, jobs_table, clock=lambda: NOW + DAY)
    found: list[Subscription] = list(tomorrow.subscribers(job_id).subscriptions)
    assert found == []
