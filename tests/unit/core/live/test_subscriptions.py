"""Connections, subscriptions and tickets (core.live.subscriptions)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core import ids
from core.errors import Contended, Forbidden
from core.live.subscriptions import (
    CONNECTION_SECONDS,
    EXPIRY_MARGIN_SECONDS,
    HANDSHAKE_SECONDS,
    OFFSET_SECONDS,
    TICKET_SECONDS,
    Connection,
    Subscribers,
    Subscription,
    Subscriptions,
    Ticket,
)
from tests.unit.examples import FakeClock

JOB, OTHER = ids.new("job"), ids.new("job")
ITEM_SECONDS = CONNECTION_SECONDS + EXPIRY_MARGIN_SECONDS
ANA = Ticket(owner="ana", epoch=0, may_ask=False)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def subscriptions(dynamodb: Any, jobs_table: str, clock: FakeClock) -> Subscriptions:
    return Subscriptions(dynamodb, jobs_table, clock=clock)


@pytest.fixture
def rows(dynamodb: Any, jobs_table: str) -> Callable[[], list[dict[str, Any]]]:
    """All items of the table."""
    return lambda: dynamodb.scan(TableName=jobs_table)["Items"]


@pytest.fixture
def ana(subscriptions: Subscriptions) -> Connection:
    return subscriptions.connect("ana=", owner="ana")


def only(subscriptions: Any) -> Subscription:
    (one,) = subscriptions
    found: Subscription = one
    return found


# ── tickets ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_ticket_is_valid_once(subscriptions: Subscriptions) -> None:
    """A ticket returns its owner once."""
    ticket, _ = subscriptions.issue_ticket("ana")
    assert subscriptions.redeem_ticket(ticket) == ANA
    with pytest.raises(Forbidden):
        subscriptions.redeem_ticket(ticket)


@pytest.mark.parametrize(("seconds", "valid"), [(-1, True), (0, False)])
def test_ticket_expires(subscriptions: Subscriptions, clock: FakeClock, seconds: float, valid: bool) -> None:
    """A ticket is valid for a minute, even if its item exists longer. An expired ticket is deleted, too."""
    ticket, expires_at = subscriptions.issue_ticket("ana")
    assert expires_at == clock.now + TICKET_SECONDS
    clock.now = expires_at + seconds
    if valid:
        assert subscriptions.redeem_ticket(ticket) == ANA
    else:
        for moment in (clock.now, clock.now - 1):
            clock.now = moment
            with pytest.raises(Forbidden):
                subscriptions.redeem_ticket(ticket)


@pytest.mark.parametrize("text", ["", "x", "ñ", "x" * 9000, "TICKET", "\0"])
def test_invalid_tickets(subscriptions: Subscriptions, ana: Connection, text: str) -> None:
    """Other texts are refused."""
    subscriptions.issue_ticket("ana")
    with pytest.raises(Forbidden):
        subscriptions.redeem_ticket(text)


def test_concurrent_redemption(dynamodb: Any, subscriptions: Subscriptions) -> None:
    """Of two requests with the same ticket at once, one succeeds."""

    class Slow:
        """A client that runs `rival` before each deletion."""

        def __getattr__(self, name: str) -> Any:
            if name != "get_item":
                rivals.append(subscriptions.redeem_ticket(ticket).owner)
            return getattr(dynamodb, name)

    ticket, _ = subscriptions.issue_ticket("ana")
    rivals: list[str] = []
    with pytest.raises(Forbidden):
        Subscriptions(Slow(), "jobs", clock=FakeClock()).redeem_ticket(ticket)
    assert rivals == ["ana"]


def test_tickets_are_hashed(subscriptions: Subscriptions, rows: Callable[[], list[dict[str, Any]]]) -> None:
    """Tickets are random, stored as hashes, and expire."""
    tickets = {subscriptions.issue_ticket("ana")[0] for _ in range(20)}
    assert len(tickets) == 20
    assert min(len(ticket) for ticket in tickets) >= 32
    text = str(rows())
    assert not any(ticket in text for ticket in tickets)
    assert all(row["expires_at"] > 0 for row in rows())


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────


def test_connection(subscriptions: Subscriptions, ana: Connection, clock: FakeClock) -> None:
    """A connection is read as it was stored; an unknown one is None."""
    linked = subscriptions.connect("link=", owner="ben", job_id=JOB)
    assert subscriptions.connection("ana=") == ana
    assert subscriptions.connection("link=") == linked
    assert (linked.owner, linked.job_id, linked.connected_at, ana.job_id) == ("ben", JOB, int(clock.now), None)
    assert subscriptions.connection("other") is None


def test_items_expire(
    subscriptions: Subscriptions, ana: Connection, clock: FakeClock, rows: Callable[[], list[dict[str, Any]]]
) -> None:
    """All items of a connection expire some time after it, whenever they were written."""
    clock.now += 600
    subscriptions.subscribe(ana, JOB)
    subscriptions.follow(ana, "document")
    assert {row["expires_at"] for row in rows()} == {int(clock.now) - 600 + ITEM_SECONDS}
    subscriptions.save_offset(JOB, 3, was=0)
    assert {row["expires_at"] for row in rows() if row["entity"] == "subscribers"} == {
        int(clock.now) + OFFSET_SECONDS
    }


def test_delete_connection(
    subscriptions: Subscriptions, ana: Connection, rows: Callable[[], list[dict[str, Any]]]
) -> None:
    """A connection is deleted with all its subscriptions, and nothing else is."""
    ben = subscriptions.connect("ben=", owner="ana")
    for one in (ana, ben):
        subscriptions.follow(one, "document")
        for _ in range(40):
            subscriptions.subscribe(one, ids.new("job"))
        subscriptions.subscribe(one, JOB)
    subscriptions.delete_connection("ana=")
    assert {row["sk"].rpartition("#")[2] for row in rows() if row["entity"] != "connection"} == {"ben="}
    assert [row["pk"] for row in rows() if row["entity"] == "connection"] == ["LIVE#ben="]
    assert (subscriptions.count("ana="), subscriptions.count("ben=")) == (0, 42)
    subscriptions.delete_connection("ana=")
    subscriptions.delete_connection("nobody")
    assert subscriptions.followers("ana", "document") == ["ben="]


def test_connections(subscriptions: Subscriptions, clock: FakeClock) -> None:
    """All connections are listed, except deleted ones and those whose handshake may not be over."""
    all_ids = {f"c{number}=" for number in range(30)}
    for connection_id in all_ids | {"gone="}:
        subscriptions.connect(connection_id, owner="ana")
    subscriptions.delete_connection("gone=")
    clock.now += HANDSHAKE_SECONDS
    subscriptions.connect("new=", owner="ana")
    assert list(subscriptions.connections()) == []
    clock.now += 1
    assert {one.connection_id for one in subscriptions.connections()} == all_ids


def test_connections_only(subscriptions: Subscriptions, ana: Connection, clock: FakeClock) -> None:
    """Subscriptions and followers are not listed as connections."""
    subscriptions.subscribe(ana, JOB)
    subscriptions.follow(ana, "document")
    clock.now += HANDSHAKE_SECONDS + 1
    assert list(subscriptions.connections()) == [ana]


# ── subscriptions ──────────────────────────────────────────────────────────────────────────────────────────────


def send(subscriptions: Subscriptions, subscription: Subscription, offset: int) -> None:
    """What `push` does after sending."""
    subscriptions.save_offset(JOB, offset, was=subscriptions.subscribers(JOB).offset)
    subscriptions.activate(subscription, offset=offset)


def test_concurrent_push(subscriptions: Subscriptions, ana: Connection) -> None:
    """Of two functions with the same subscribers, the second gets Contended, and a subscriber that lacks an
    event is not activated.
    """
    subscriptions.subscribe(ana, JOB)
    requested = only(subscriptions.subscribers(JOB).requested)
    subscriptions.save_offset(JOB, 5, was=0)
    with pytest.raises(Contended):
        subscriptions.save_offset(JOB, 6, was=0)
    subscriptions.save_offset(JOB, 6, was=5)
    with pytest.raises(Contended):
        subscriptions.activate(requested, offset=5)
    assert subscriptions.subscribers(JOB).active == []


def test_expired_offset(subscriptions: Subscriptions, ana: Connection, clock: FakeClock) -> None:
    """An expired offset that is not deleted yet is ignored."""
    subscriptions.save_offset(JOB, 5, was=0)
    clock.now += OFFSET_SECONDS
    subscriptions.save_offset(JOB, 7, was=subscriptions.subscribers(JOB).offset)
    assert subscriptions.subscribers(JOB).offset == 7


def test_request_and_activation(subscriptions: Subscriptions, ana: Connection) -> None:
    """A requested subscription has its own `after`, an active one has the offset of the job."""
    subscriptions.subscribe(ana, JOB, after=3)
    requested = only(subscriptions.subscribers(JOB).requested)
    assert (requested.connection_id, requested.job_id, requested.after, requested.tries) == ("ana=", JOB, 3, 0)
    assert requested.connected_at == ana.connected_at
    assert subscriptions.subscribers(JOB).active == []
    send(subscriptions, requested, 7)
    subscribers = subscriptions.subscribers(JOB)
    assert (subscribers.offset, subscribers.requested) == (7, [])
    assert only(subscribers.active).after == 7
    assert subscriptions.subscribers(OTHER) == Subscribers(0, [])


def test_request_during_activation(subscriptions: Subscriptions, ana: Connection) -> None:
    """A subscription that is requested again while events are sent is not activated."""
    subscriptions.subscribe(ana, JOB, after=5)
    requested = only(subscriptions.subscribers(JOB).requested)
    subscriptions.subscribe(ana, JOB, after=0)
    send(subscriptions, requested, 5)
    now = only(subscriptions.subscribers(JOB).requested)
    assert (now.after, now.active) == (0, False)
    assert now.request_id != requested.request_id
    send(subscriptions, now, 5)
    assert only(subscriptions.subscribers(JOB).active).request_id == now.request_id


def test_request_of_active_subscription(subscriptions: Subscriptions, ana: Connection) -> None:
    """An active subscription can be requested again with another `after`."""
    subscriptions.subscribe(ana, JOB)
    send(subscriptions, only(subscriptions.subscribers(JOB).requested), 9)
    subscriptions.subscribe(ana, JOB, after=2)
    assert only(subscriptions.subscribers(JOB).subscriptions).after == 2
    assert subscriptions.subscribers(JOB).active == []


@pytest.mark.parametrize("joined", [False, True])
def test_request_again(subscriptions: Subscriptions, ana: Connection, joined: bool) -> None:
    """A failed subscription is requested again from where it was, and the attempt is counted."""
    subscriptions.subscribe(ana, JOB, after=2)
    subscriptions.save_offset(JOB, 4, was=0)
    if joined:
        send(subscriptions, only(subscriptions.subscribers(JOB).requested), 4)
    seen = only(subscriptions.subscribers(JOB).subscriptions)
    subscriptions.request_again(seen)
    again = only(subscriptions.subscribers(JOB).requested)
    assert (again.after, again.tries) == (4 if joined else 2, 1)
    assert again.request_id != seen.request_id


def test_tries_are_counted(subscriptions: Subscriptions, ana: Connection) -> None:
    """Each further request counts as a try, until the subscription is active."""
    subscriptions.subscribe(ana, JOB)
    for tries in range(1, 4):
        subscriptions.request_again(only(subscriptions.subscribers(JOB).requested))
        assert only(subscriptions.subscribers(JOB).requested).tries == tries
    send(subscriptions, only(subscriptions.subscribers(JOB).requested), 0)
    assert only(subscriptions.subscribers(JOB).active).tries == 0


@pytest.mark.parametrize("end", ["unsubscribe", "forget"])
@pytest.mark.parametrize("operation", ["activate", "request_again"])
def test_deleted_subscription(
    subscriptions: Subscriptions,
    ana: Connection,
    rows: Callable[[], list[dict[str, Any]]],
    end: str,
    operation: str,
) -> None:
    """A deleted subscription is neither activated nor requested again."""
    subscriptions.subscribe(ana, JOB)
    seen = only(subscriptions.subscribers(JOB).requested)
    ends: dict[str, Callable[[], None]] = {
        "unsubscribe": lambda: subscriptions.unsubscribe("ana=", JOB),
        "forget": lambda: subscriptions.delete_connection("ana="),
    }
    ends[end]()
    operations: dict[str, Callable[[], object]] = {
        "activate": lambda: send(subscriptions, seen, 3),
        "request_again": lambda: subscriptions.request_again(seen),
    }
    operations[operation]()
    assert subscriptions.subscribers(JOB).subscriptions == []
    assert not [row for row in rows() if row["entity"] == "subscription"]


def test_request_again_after_new_request(subscriptions: Subscriptions, ana: Connection) -> None:
    """Requesting again does not replace a client's newer request."""
    subscriptions.subscribe(ana, JOB, after=5)
    seen = only(subscriptions.subscribers(JOB).requested)
    subscriptions.subscribe(ana, JOB, after=1)
    subscriptions.request_again(seen)
    assert (
        only(subscriptions.subscribers(JOB).requested).after,
        only(subscriptions.subscribers(JOB).requested).tries,
    ) == (1, 0)


def test_expired_subscriptions(subscriptions: Subscriptions, ana: Connection, clock: FakeClock) -> None:
    """Expired items that are not deleted yet are ignored."""
    subscriptions.subscribe(ana, JOB)
    subscriptions.follow(ana, "document")
    clock.now += ITEM_SECONDS - 1
    assert (
        len(subscriptions.subscribers(JOB).subscriptions) == len(subscriptions.followers("ana", "document")) == 1
    )
    subscriptions.save_offset(JOB, 5, was=0)
    clock.now += 1
    assert subscriptions.subscribers(JOB) == Subscribers(5, [])
    assert subscriptions.followers("ana", "document") == []
    clock.now += OFFSET_SECONDS
    assert subscriptions.subscribers(JOB) == Subscribers(0, [])


def test_many_subscribers(subscriptions: Subscriptions, clock: FakeClock) -> None:
    """Subscribers are read over several pages."""
    for number in range(500):
        connection_id = f"{number}".zfill(1000)
        subscriptions.subscribe(
            Connection(connection_id=connection_id, owner="ana", connected_at=int(clock.now)), JOB
        )
    assert len(subscriptions.subscribers(JOB).subscriptions) == 500


def test_is_subscribed(subscriptions: Subscriptions, ana: Connection) -> None:
    """It is true for this connection and job only."""
    ben = subscriptions.connect("ben=", owner="ana")
    subscriptions.subscribe(ana, JOB)
    subscriptions.subscribe(ben, OTHER)
    assert subscriptions.is_subscribed("ana=", JOB)
    assert not subscriptions.is_subscribed("ana=", OTHER)
    subscriptions.unsubscribe("ana=", JOB)
    assert not subscriptions.is_subscribed("ana=", JOB)


def test_count(subscriptions: Subscriptions, ana: Connection) -> None:
    """Each job and kind is counted once."""
    assert subscriptions.count("ana=") == 0
    for _ in range(2):
        subscriptions.subscribe(ana, JOB)
        subscriptions.subscribe(ana, OTHER)
        subscriptions.follow(ana, "document")
    assert subscriptions.count("ana=") == 3
    subscriptions.unsubscribe("ana=", JOB)
    subscriptions.unfollow(ana, "document")
    assert subscriptions.count("ana=") == 1


# ── followers ────────────────────────────────────────────────────────────────────────────────────────────────


def test_followers(subscriptions: Subscriptions, ana: Connection) -> None:
    """The followers of an owner's kind are those of no other kind and owner."""
    second, ben = subscriptions.connect("b=", owner="ana"), subscriptions.connect("c=", owner="ben")
    subscriptions.follow(ana, "document")
    subscriptions.follow(second, "document")
    subscriptions.follow(second, "replay")
    subscriptions.follow(ben, "document")
    assert subscriptions.followers("ana", "document") == ["ana=", "b="]
    assert subscriptions.followers("ana", "replay") == ["b="]
    assert subscriptions.followers("ben", "document") == ["c="]
    assert subscriptions.followers("an", "document") == subscriptions.followers("ana", "doc") == []
    subscriptions.unfollow(second, "document")
    assert subscriptions.followers("ana", "document") == ["ana="]
