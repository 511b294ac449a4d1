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
def jobs(environment: dict[str, str], dynamodb: Any, jobs_table: str) -> JobStore:
    return JobStore(dynamodb, jobs_table)


@pytest.fixture
def subscriptions(environment: dict[str, str], dynamodb: Any, jobs_table: str) -> Subscriptions:
    return Subscriptions(dynamodb, jobs_table)


@pytest.fixture
def job_id(jobs: JobStore) -> str:
    return submitted(jobs)


def submitted(jobs: JobStore, **facts: Any) -> str:
    return jobs.submit(DOCUMENT, job(at=NOW, link_key=links.make_key(), **facts)).job.job_id


def token(jobs: JobStore, job_id: str, *, hours: int = 1, now: float = NOW) -> str:
    return links.make_token(jobs.get(job_id), now=now, hours=hours)


def arrive(query: dict[str, str] | None, connection_id: str = "c=") -> int:
    """A handshake; returns its status."""
    context = {"eventType": "CONNECT", "routeKey": "$connect", "connectionId": connection_id}
    given = {} if query is None else {"queryStringParameters": query}
    status: int = handler({"requestContext": context, "isBase64Encoded": False, **given}, None)["statusCode"]
    return status


def leave(connection_id: str = "c=") -> None:
    context = {"eventType": "DISCONNECT", "routeKey": "$disconnect", "connectionId": connection_id}
    assert handler({"requestContext": context}, None) == {"statusCode": 200}


def send(message: Any, connection_id: str = "c=") -> None:
    """A client's message, a text as it is or anything else as JSON. It is always taken."""
    body = message if isinstance(message, str) else json.dumps(message)
    context = {"eventType": "MESSAGE", "routeKey": "$default", "connectionId": connection_id}
    assert handler({"requestContext": context, "body": body}, None) == {"statusCode": 200}


def subscribe(job_id: str, connection_id: str = "c=", **facts: Any) -> None:
    send({"action": "subscribe", "job_id": job_id, **facts}, connection_id)


@pytest.fixture
def guest(subscriptions: Subscriptions) -> str:
    """Ana's connection, by ticket."""
    assert arrive({"ticket": subscriptions.issue_ticket("ana")[0]}) == 200
    return "c="


def error(gateway: Gateway, code: str, connection_id: str = "c=") -> dict[str, Any]:
    """The one message to the connection, which is an error of this code."""
    (message,) = gateway.heard(connection_id)
    assert (message["type"], message["code"]) == ("error", code), message
    assert message["message"]
    assert set(message) <= {"type", "code", "message", "job_id"}
    found: dict[str, Any] = message
    return found


def asking(subscriptions: Subscriptions, job_id: str) -> list[tuple[str, int]]:
    return [(one.connection_id, one.after) for one in subscriptions.subscribers(job_id).asking]


# ── handshakes ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("query", "after"), [({}, 0), ({"after": "7"}, 7), ({"after": "999999"}, MAX_SEQUENCE)])
def test_a_link_lets_in(
    jobs: JobStore, subscriptions: Subscriptions, gateway: Gateway, job_id: str, query: dict[str, str], after: int
) -> None:
    """Who has a job's link asks for that job by connecting, and is sent nothing before the handshake is over."""
    assert arrive({"token": token(jobs, job_id), **query}) == 200
    assert asking(subscriptions, job_id) == [("c=", after)]
    connection = subscriptions.connection("c=")
    assert connection is not None
    assert (connection.owner, connection.job_id) == ("ana", job_id)
    assert gateway.sent == {}


def test_a_link_lets_in_often(jobs: JobStore, subscriptions: Subscriptions, job_id: str) -> None:
    """A link is for as many connections as like."""
    text = token(jobs, job_id)
    assert {arrive({"token": text}, f"c{number}=") for number in range(5)} == {200}
    assert len(subscriptions.subscribers(job_id).asking) == 5


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
def test_a_wrong_token(
    jobs: JobStore, subscriptions: Subscriptions, job_id: str, wrong: Callable[[JobStore, str], str]
) -> None:
    """What is no token of this job, or no more, is refused with 403, and nothing is remembered."""
    assert arrive({"token": wrong(jobs, job_id)}) == 403
    assert subscriptions.connection("c=") is None
    assert subscriptions.subscribers(job_id).subscriptions == []


def _of_other(jobs: JobStore, job_id: str) -> str:
    """Another job's signature below this job's id."""
    return ids.ulid_of(job_id) + token(jobs, submitted(jobs))[26:]


def _expired(jobs: JobStore) -> str:
    """A token that holds, of a job that is kept no longer."""
    gone = job(at=NOW, link_key=links.make_key(), expires_at=int(NOW) - 1)
    jobs.submit(DOCUMENT, gone)
    return links.make_token(gone, now=NOW, hours=1)


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
def test_a_wrong_number(jobs: JobStore, subscriptions: Subscriptions, job_id: str, after: str) -> None:
    """What is no sequence of an event is refused, however it is written, and nothing is remembered."""
    assert arrive({"token": token(jobs, job_id), "after": after}) == 422
    assert subscriptions.connection("c=") is None


def test_a_ticket_lets_in_once(subscriptions: Subscriptions) -> None:
    """A ticket lets its owner in, and is refused from then on."""
    ticket, _ = subscriptions.issue_ticket("ana")
    assert arrive({"ticket": ticket}, "a=") == 200
    connection = subscriptions.connection("a=")
    assert connection is not None
    assert (connection.owner, connection.job_id) == ("ana", None)
    assert arrive({"ticket": ticket}, "b=") == 403
    assert subscriptions.connection("b=") is None


def test_a_ticket_that_has_expired(dynamodb: Any, jobs_table: str, subscriptions: Subscriptions) -> None:
    """After a minute a ticket is refused, though its row may still be there."""
    ticket, _ = Subscriptions(dynamodb, jobs_table, clock=lambda: NOW - TICKET_SECONDS - 1).issue_ticket("ana")
    assert arrive({"ticket": ticket}) == 403


@pytest.mark.parametrize(
    "query", [None, {}, {"ticket": ""}, {"ticket": "x"}, {"ticket": "\0" * 5000}, {"tickets": "x"}]
)
def test_no_ticket(subscriptions: Subscriptions, query: dict[str, str] | None) -> None:
    """Whoever comes with nothing that holds is refused."""
    assert arrive(query) == 403
    assert subscriptions.connection("c=") is None


def test_a_token_is_no_ticket(jobs: JobStore, subscriptions: Subscriptions, job_id: str) -> None:
    """Neither passes for the other."""
    assert arrive({"ticket": token(jobs, job_id)}) == 403
    assert arrive({"token": subscriptions.issue_ticket("ana")[0]}) == 403


def test_leaving(subscriptions: Subscriptions, guest: str, job_id: str) -> None:
    """Who leaves is forgotten with all that it listened to; who is unknown may leave as well."""
    subscribe(job_id)
    send({"action": "follow", "kind": "document"})
    leave()
    leave("nobody")
    assert subscriptions.connection(guest) is None
    assert subscriptions.subscribers(job_id).subscriptions == []
    assert subscriptions.followers("ana", "document") == []


def test_asking_after_the_end(subscriptions: Subscriptions, gateway: Gateway, guest: str, job_id: str) -> None:
    """A message that overtakes the end of its connection leaves nothing behind."""
    leave()
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
def test_a_wrong_message(
    gateway: Gateway, guest: str, logged: Callable[[], list[dict[str, Any]]], body: str, field: str
) -> None:
    """What is wrong with a message the client is told, by the field's name; it is no failure of ours."""
    send(body)
    assert error(gateway, "invalid_request")["message"].startswith(f"{field}: ")
    assert logged() == []


def test_no_body(gateway: Gateway, guest: str) -> None:
    """A message without a text is a wrong one."""
    context = {"eventType": "MESSAGE", "connectionId": guest}
    for event in ({}, {"body": None}):
        assert handler({"requestContext": context, **event}, None) == {"statusCode": 200}
        error(gateway, "invalid_request")


@pytest.mark.parametrize(
    "body", ['{"action":"%s"}', '{"action":"ping","%s":1}', '{"action":"follow","kind":"%s"}']
)
def test_complaints_are_short(gateway: Gateway, guest: str, body: str) -> None:
    """However long a message is, what is quoted of it is not."""
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
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever text comes, it is a message or wrong by the name of a field."""
    try:
        message = _parsed(text)
    except InvalidRequest as refusal:
        named = bool(refusal.field) and str(refusal).startswith(refusal.field[:100])
    else:
        named = json.loads(text)["action"] == type(message).__name__.lower()
    assert named


def test_ping(gateway: Gateway, guest: str) -> None:
    """A ping is answered."""
    send({"action": "ping"})
    assert gateway.heard(guest) == [{"type": "pong"}]


def test_subscribing(subscriptions: Subscriptions, gateway: Gateway, guest: str, job_id: str) -> None:
    """What is asked for is noted; the answer comes from who replays what was missed."""
    subscribe(job_id)
    assert asking(subscriptions, job_id) == [("c=", 0)]
    subscribe(job_id, after=4)
    assert asking(subscriptions, job_id) == [("c=", 4)]
    assert gateway.sent == {}


def test_unsubscribing(subscriptions: Subscriptions, gateway: Gateway, guest: str, job_id: str) -> None:
    """The end of a subscription is confirmed, also where there was none."""
    subscribe(job_id)
    for _ in range(2):
        send({"action": "unsubscribe", "job_id": job_id})
        assert gateway.heard(guest) == [{"type": "unsubscribed", "job_id": job_id}]
    assert subscriptions.subscribers(job_id).subscriptions == []


def test_following(subscriptions: Subscriptions, gateway: Gateway, guest: str) -> None:
    """Following and its end are confirmed."""
    send({"action": "follow", "kind": "replay"})
    assert gateway.heard(guest) == [{"type": "following", "kind": "replay"}]
    assert subscriptions.followers("ana", "replay") == ["c="]
    send({"action": "unfollow", "kind": "replay"})
    assert gateway.heard(guest) == [{"type": "unfollowed", "kind": "replay"}]
    assert subscriptions.followers("ana", "replay") == []


@pytest.mark.parametrize("message", [{"action": "follow", "kind": "document"}, {"action": "subscribe"}])
def test_an_unknown_connection(gateway: Gateway, job_id: str, message: dict[str, Any]) -> None:
    """A connection that is not known, or no more, is to connect again."""
    send(message | ({"job_id": job_id} if message["action"] == "subscribe" else {}), "unknown=")
    assert "again" in error(gateway, "forbidden", "unknown=")["message"]


@pytest.mark.parametrize(
    "name", [lambda: ids.new("job"), lambda: "x", lambda: "", lambda: "META", lambda: ids.new("job").lower()]
)
def test_an_unknown_job(
    subscriptions: Subscriptions, gateway: Gateway, guest: str, name: Callable[[], str]
) -> None:
    """A job that is not there is not found, by the name that was given."""
    unknown = name()
    subscribe(unknown)
    assert error(gateway, "not_found")["job_id"] == unknown
    assert subscriptions.subscribers(unknown).subscriptions == []


def test_somebody_elses_job(jobs: JobStore, subscriptions: Subscriptions, gateway: Gateway, guest: str) -> None:
    """Another owner's job is answered like one that does not exist."""
    foreign, unknown = submitted(jobs, owner="ben"), ids.new("job")
    subscribe(foreign)
    subscribe(unknown)
    said = [{**message, "job_id": ""} for message in gateway.heard(guest)]
    assert said[0] == said[1]
    assert said[0]["code"] == "not_found"
    assert subscriptions.subscribers(foreign).subscriptions == []


def test_an_expired_job(jobs: JobStore, gateway: Gateway, guest: str) -> None:
    """A job that is kept no longer is not found, though its row may still be there."""
    subscribe(submitted(jobs, expires_at=int(NOW) - 1))
    error(gateway, "not_found")


# ── links ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def linked(jobs: JobStore, job_id: str) -> str:
    """A connection by the job's link."""
    assert arrive({"token": token(jobs, job_id)}) == 200
    return "c="


def test_a_link_is_for_one_job(
    jobs: JobStore, subscriptions: Subscriptions, gateway: Gateway, linked: str, job_id: str
) -> None:
    """By a link one may ask for its job anew, for no other one of the owner's, and follow nothing."""
    other = submitted(jobs)
    subscribe(job_id, after=3)
    assert asking(subscriptions, job_id) == [("c=", 3)]
    for unknown in (other, ids.new("job"), "x"):
        subscribe(unknown)
        assert error(gateway, "forbidden")["job_id"] == unknown
    send({"action": "follow", "kind": "document"})
    error(gateway, "forbidden")
    assert subscriptions.subscribers(other).subscriptions == []
    assert subscriptions.followers("ana", "document") == []


def test_a_link_may_end_and_begin_again(
    subscriptions: Subscriptions, gateway: Gateway, linked: str, job_id: str
) -> None:
    """Who came by a link may unsubscribe and ask again."""
    send({"action": "unsubscribe", "job_id": job_id})
    assert gateway.heard(linked) == [{"type": "unsubscribed", "job_id": job_id}]
    subscribe(job_id)
    assert asking(subscriptions, job_id) == [("c=", 0)]


# ── limits and trouble ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def full(jobs: JobStore, subscriptions: Subscriptions, guest: str) -> list[str]:
    """Ana listens to as much as she may."""
    connection = subscriptions.connection(guest)
    assert connection is not None
    found = [submitted(jobs) for _ in range(MAX_SUBSCRIPTIONS)]
    for one in found:
        subscriptions.subscribe(connection, one)
    return found


def test_too_many(subscriptions: Subscriptions, gateway: Gateway, full: list[str], job_id: str) -> None:
    """A hundred jobs and kinds are enough; one less makes subscribers for another."""
    subscribe(job_id)
    assert error(gateway, "too_many_subscriptions")["job_id"] == job_id
    send({"action": "follow", "kind": "document"})
    error(gateway, "too_many_subscriptions")
    assert subscriptions.subscribers(job_id).subscriptions == []
    send({"action": "unsubscribe", "job_id": full[0]})
    gateway.heard("c=")
    subscribe(job_id)
    assert gateway.sent == {}
    assert asking(subscriptions, job_id) == [("c=", 0)]


def test_asking_anew_needs_no_room(subscriptions: Subscriptions, gateway: Gateway, full: list[str]) -> None:
    """Who listens to as much as it may can still ask anew for any of it."""
    subscribe(full[7], after=2)
    assert gateway.sent == {}
    assert asking(subscriptions, full[7]) == [("c=", 2)]


def test_others_are_not_counted(
    subscriptions: Subscriptions, gateway: Gateway, full: list[str], job_id: str
) -> None:
    """Each connection has a limit of its own."""
    assert arrive({"ticket": subscriptions.issue_ticket("ana")[0]}, "d=") == 200
    subscribe(job_id, "d=")
    assert gateway.sent == {}


@pytest.mark.parametrize("trouble", [GONE, THROTTLED, "ForbiddenException"])
def test_an_answer_that_does_not_arrive(gateway: Gateway, guest: str, trouble: str) -> None:
    """Where the answer cannot be sent the message has been taken all the same."""
    gateway.troubles[guest] = trouble
    send({"action": "ping"})
    send("?")
    assert gateway.sent == {}


def test_trouble_with_the_table(
    gateway: Gateway, guest: str, job_id: str, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """What fails on our side is said to be our fault, about which job, and without the reason; that is logged."""
    calls = Calls(Clock())
    calls.fail("dynamodb", "PutItem", "InternalServerError")
    with calls.intercepted():
        subscribe(job_id)
    message = error(gateway, "internal")
    assert message["job_id"] == job_id
    assert "InternalServerError" not in message["message"]
    assert [line["level"] for line in logged()] == ["ERROR"]


def test_no_secret_is_logged(
    jobs: JobStore, subscriptions: Subscriptions, job_id: str, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """Neither tokens nor tickets nor messages are written to the log."""
    text, (ticket, _) = token(jobs, job_id), subscriptions.issue_ticket("ana")
    arrive({"token": text})
    arrive({"token": text + "x"})
    arrive({"ticket": ticket})
    arrive({"ticket": ticket})
    send("secret")
    assert logged() == []


def test_a_day_later(
    subscriptions: Subscriptions, guest: str, job_id: str, dynamodb: Any, jobs_table: str
) -> None:
    """What a connection has left behind is gone after a day, whoever looks."""
    subscribe(job_id)
    tomorrow = Subscriptions(dynamodb, jobs_table, clock=lambda: NOW + DAY)
    found: list[Subscription] = list(tomorrow.subscribers(job_id).subscriptions)
    assert found == []
