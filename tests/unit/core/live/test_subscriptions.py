from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core import ids
from core.errors import Contended, Forbidden
from core.live.subscriptions import (
    CONNECTING_SECONDS,
    CONNECTION_SECONDS,
    KEPT_SECONDS,
    SLACK_SECONDS,
    TICKET_SECONDS,
    Connection,
    Subscribers,
    Subscription,
    Subscriptions,
)
from tests.unit.examples import FakeClock

JOB, OTHER = ids.new("job"), ids.new("job")
LIFE_SECONDS = CONNECTION_SECONDS + SLACK_SECONDS


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def subscriptions(dynamodb: Any, jobs_table: str, clock: FakeClock) -> Subscriptions:
    return Subscriptions(dynamodb, jobs_table, clock=clock)


@pytest.fixture
def rows(dynamodb: Any, jobs_table: str) -> Callable[[], list[dict[str, Any]]]:
    """Everything in the table."""
    return lambda: dynamodb.scan(TableName=jobs_table)["Items"]


@pytest.fixture
def ana(subscriptions: Subscriptions) -> Connection:
    return subscriptions.connect("ana=", owner="ana")


def only(subscriptions: Any) -> Subscription:
    (one,) = subscriptions
    found: Subscription = one
    return found


# ── tickets ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_ticket_lets_in_once(subscriptions: Subscriptions) -> None:
    """A ticket names its owner the first time, and nobody after that."""
    ticket, _ = subscriptions.issue_ticket("ana")
    assert subscriptions.redeem_ticket(ticket) == "ana"
    with pytest.raises(Forbidden):
        subscriptions.redeem_ticket(ticket)


@pytest.mark.parametrize(("late", "holds"), [(-1, True), (0, False)])
def test_a_ticket_ends(subscriptions: Subscriptions, clock: FakeClock, late: float, holds: bool) -> None:
    """A ticket holds for a minute, also where its row is still there; used too late it is used all the same."""
    ticket, expires_at = subscriptions.issue_ticket("ana")
    assert expires_at == clock.now + TICKET_SECONDS
    clock.now = expires_at + late
    if holds:
        assert subscriptions.redeem_ticket(ticket) == "ana"
    else:
        for moment in (clock.now, clock.now - 1):
            clock.now = moment
            with pytest.raises(Forbidden):
                subscriptions.redeem_ticket(ticket)


@pytest.mark.parametrize("text", ["", "x", "ñ", "x" * 9000, "TICKET", "\0"])
def test_no_ticket(subscriptions: Subscriptions, ana: Connection, text: str) -> None:
    """Whatever else is shown lets nobody in."""
    subscriptions.issue_ticket("ana")
    with pytest.raises(Forbidden):
        subscriptions.redeem_ticket(text)


def test_two_at_once(dynamodb: Any, subscriptions: Subscriptions) -> None:
    """Of two who show the same ticket at the same moment one gets in: nothing comes between look and use."""

    class Slow:
        """Before each write of this client, the rival is through."""

        def __getattr__(self, name: str) -> Any:
            if name != "get_item":
                rivals.append(subscriptions.redeem_ticket(ticket))
            return getattr(dynamodb, name)

    ticket, _ = subscriptions.issue_ticket("ana")
    rivals: list[str] = []
    with pytest.raises(Forbidden):
        Subscriptions(Slow(), "jobs", clock=FakeClock()).redeem_ticket(ticket)
    assert rivals == ["ana"]


def test_tickets_are_not_to_be_read(
    subscriptions: Subscriptions, rows: Callable[[], list[dict[str, Any]]]
) -> None:
    """Whoever can read the table cannot get in; tickets differ, and their rows go by themselves."""
    tickets = {subscriptions.issue_ticket("ana")[0] for _ in range(20)}
    assert len(tickets) == 20
    assert min(len(ticket) for ticket in tickets) >= 32
    text = str(rows())
    assert not any(ticket in text for ticket in tickets)
    assert all(row["expires_at"] > 0 for row in rows())


# ── coming and going ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_connection_is_remembered(subscriptions: Subscriptions, ana: Connection, clock: FakeClock) -> None:
    """Who it is and what it may listen to is read back; unknown ones are None."""
    linked = subscriptions.connect("link=", owner="ben", job_id=JOB)
    assert subscriptions.connection("ana=") == ana
    assert subscriptions.connection("link=") == linked
    assert (linked.owner, linked.job_id, linked.connected_at, ana.job_id) == ("ben", JOB, int(clock.now), None)
    assert subscriptions.connection("other") is None


def test_every_row_goes_by_itself(
    subscriptions: Subscriptions, ana: Connection, clock: FakeClock, rows: Callable[[], list[dict[str, Any]]]
) -> None:
    """What nobody removes expires: some time after the connection has, however late it was written."""
    clock.now += 600
    subscriptions.subscribe(ana, JOB)
    subscriptions.follow(ana, "document")
    assert {row["expires_at"] for row in rows()} == {int(clock.now) - 600 + LIFE_SECONDS}
    subscriptions.save_offset(JOB, 3, was=0)
    assert {row["expires_at"] for row in rows() if row["entity"] == "subscribers"} == {
        int(clock.now) + KEPT_SECONDS
    }


def test_forgotten(
    subscriptions: Subscriptions, ana: Connection, rows: Callable[[], list[dict[str, Any]]]
) -> None:
    """All that a connection listens to goes with it, however much that is, and nothing of others."""
    ben = subscriptions.connect("ben=", owner="ana")
    for one in (ana, ben):
        subscriptions.follow(one, "document")
        for _ in range(40):
            subscriptions.subscribe(one, ids.new("job"))
        subscriptions.subscribe(one, JOB)
    subscriptions.forget("ana=")
    assert {row["sk"].rpartition("#")[2] for row in rows() if row["entity"] != "connection"} == {"ben="}
    assert [row["pk"] for row in rows() if row["entity"] == "connection"] == ["LIVE#ben="]
    assert (subscriptions.count("ana="), subscriptions.count("ben=")) == (0, 42)
    subscriptions.forget("ana=")
    subscriptions.forget("nobody")
    assert subscriptions.followers("ana", "document") == ["ben="]


def test_connections_there_are(subscriptions: Subscriptions, clock: FakeClock) -> None:
    """All are found, but for those whose handshake may not be over; those that have gone are not."""
    everybody = {f"c{number}=" for number in range(30)}
    for connection_id in everybody | {"gone="}:
        subscriptions.connect(connection_id, owner="ana")
    subscriptions.forget("gone=")
    clock.now += CONNECTING_SECONDS
    subscriptions.connect("new=", owner="ana")
    assert list(subscriptions.connections()) == []
    clock.now += 1
    assert set(subscriptions.connections()) == everybody


def test_jobs_are_no_connections(subscriptions: Subscriptions, ana: Connection, clock: FakeClock) -> None:
    """Subscriptions and followers are not among the connections."""
    subscriptions.subscribe(ana, JOB)
    subscriptions.follow(ana, "document")
    clock.now += CONNECTING_SECONDS + 1
    assert list(subscriptions.connections()) == ["ana="]


# ── one job ──────────────────────────────────────────────────────────────────────────────────────────────────


def tell(subscriptions: Subscriptions, subscription: Subscription, offset: int) -> None:
    """As whoever speaks to a job's listeners does it."""
    subscriptions.save_offset(JOB, offset, was=subscriptions.subscribers(JOB).offset)
    subscriptions.join(subscription, offset=offset)


def test_two_that_tell_at_once(subscriptions: Subscriptions, ana: Connection) -> None:
    """Of two that read the same subscribers the second begins again, and who would lack an event does not join."""
    subscriptions.subscribe(ana, JOB)
    asked = only(subscriptions.subscribers(JOB).asking)
    subscriptions.save_offset(JOB, 5, was=0)
    with pytest.raises(Contended):
        subscriptions.save_offset(JOB, 6, was=0)
    subscriptions.save_offset(JOB, 6, was=5)
    with pytest.raises(Contended):
        subscriptions.join(asked, offset=5)
    assert subscriptions.subscribers(JOB).joined == []


def test_a_room_long_forgotten(subscriptions: Subscriptions, ana: Connection, clock: FakeClock) -> None:
    """What was sent a day ago, and has not been removed yet, is no obstacle."""
    subscriptions.save_offset(JOB, 5, was=0)
    clock.now += KEPT_SECONDS
    subscriptions.save_offset(JOB, 7, was=subscriptions.subscribers(JOB).offset)
    assert subscriptions.subscribers(JOB).offset == 7


def test_an_empty_room(subscriptions: Subscriptions) -> None:
    """Where nobody ever listened nobody has been sent anything."""
    assert subscriptions.subscribers(JOB) == Subscribers(0, [])


def test_asking_and_joining(subscriptions: Subscriptions, ana: Connection) -> None:
    """Who asks is after a number of its own; who has joined has been sent what the subscribers has been sent."""
    subscriptions.subscribe(ana, JOB, after=3)
    asked = only(subscriptions.subscribers(JOB).asking)
    assert (asked.connection_id, asked.job_id, asked.after, asked.tries) == ("ana=", JOB, 3, 0)
    assert asked.connected_at == ana.connected_at
    assert subscriptions.subscribers(JOB).joined == []
    tell(subscriptions, asked, 7)
    subscribers = subscriptions.subscribers(JOB)
    assert (subscribers.offset, subscribers.asking) == (7, [])
    assert only(subscribers.joined).after == 7
    assert subscriptions.subscribers(OTHER) == Subscribers(0, [])


def test_asked_anew_while_being_joined(subscriptions: Subscriptions, ana: Connection) -> None:
    """A subscription that asks anew while it is answered is not joined: it has not been sent what it asks now."""
    subscriptions.subscribe(ana, JOB, after=5)
    asked = only(subscriptions.subscribers(JOB).asking)
    subscriptions.subscribe(ana, JOB, after=0)
    tell(subscriptions, asked, 5)
    now = only(subscriptions.subscribers(JOB).asking)
    assert (now.after, now.joined) == (0, False)
    assert now.asking != asked.asking
    tell(subscriptions, now, 5)
    assert only(subscriptions.subscribers(JOB).joined).asking == now.asking


def test_who_has_joined_may_ask_anew(subscriptions: Subscriptions, ana: Connection) -> None:
    """Asking again at any time begins again, after the number that is asked for."""
    subscriptions.subscribe(ana, JOB)
    tell(subscriptions, only(subscriptions.subscribers(JOB).asking), 9)
    subscriptions.subscribe(ana, JOB, after=2)
    assert only(subscriptions.subscribers(JOB).subscriptions).after == 2
    assert subscriptions.subscribers(JOB).joined == []


@pytest.mark.parametrize("joined", [False, True])
def test_asked_for_again(subscriptions: Subscriptions, ana: Connection, joined: bool) -> None:
    """What could not be sent is asked for again, after what had been sent until then, and counted."""
    subscriptions.subscribe(ana, JOB, after=2)
    subscriptions.save_offset(JOB, 4, was=0)
    if joined:
        tell(subscriptions, only(subscriptions.subscribers(JOB).asking), 4)
    seen = only(subscriptions.subscribers(JOB).subscriptions)
    subscriptions.ask_again(seen)
    again = only(subscriptions.subscribers(JOB).asking)
    assert (again.after, again.tries) == (4 if joined else 2, 1)
    assert again.asking != seen.asking


def test_tries_are_counted(subscriptions: Subscriptions, ana: Connection) -> None:
    """Each time that it must be asked for again counts; having joined, the count begins anew."""
    subscriptions.subscribe(ana, JOB)
    for tries in range(1, 4):
        subscriptions.ask_again(only(subscriptions.subscribers(JOB).asking))
        assert only(subscriptions.subscribers(JOB).asking).tries == tries
    tell(subscriptions, only(subscriptions.subscribers(JOB).asking), 0)
    assert only(subscriptions.subscribers(JOB).joined).tries == 0


@pytest.mark.parametrize("end", ["unsubscribe", "forget"])
@pytest.mark.parametrize("late", ["join", "ask_again"])
def test_nothing_is_resurrected(
    subscriptions: Subscriptions, ana: Connection, rows: Callable[[], list[dict[str, Any]]], end: str, late: str
) -> None:
    """What has ended in the meantime is neither joined nor asked for again."""
    subscriptions.subscribe(ana, JOB)
    seen = only(subscriptions.subscribers(JOB).asking)
    ends: dict[str, Callable[[], None]] = {
        "unsubscribe": lambda: subscriptions.unsubscribe("ana=", JOB),
        "forget": lambda: subscriptions.forget("ana="),
    }
    ends[end]()
    lates: dict[str, Callable[[], object]] = {
        "join": lambda: tell(subscriptions, seen, 3),
        "ask_again": lambda: subscriptions.ask_again(seen),
    }
    lates[late]()
    assert subscriptions.subscribers(JOB).subscriptions == []
    assert not [row for row in rows() if row["entity"] == "subscription"]


def test_asked_anew_before_it_could_be_asked_again(subscriptions: Subscriptions, ana: Connection) -> None:
    """What a client asks for anew is not undone by a try for what it asked before."""
    subscriptions.subscribe(ana, JOB, after=5)
    seen = only(subscriptions.subscribers(JOB).asking)
    subscriptions.subscribe(ana, JOB, after=1)
    subscriptions.ask_again(seen)
    assert (
        only(subscriptions.subscribers(JOB).asking).after,
        only(subscriptions.subscribers(JOB).asking).tries,
    ) == (1, 0)


def test_expired_rows(subscriptions: Subscriptions, ana: Connection, clock: FakeClock) -> None:
    """A row that has expired and is still there counts for nothing."""
    subscriptions.subscribe(ana, JOB)
    subscriptions.follow(ana, "document")
    clock.now += LIFE_SECONDS - 1
    assert (
        len(subscriptions.subscribers(JOB).subscriptions) == len(subscriptions.followers("ana", "document")) == 1
    )
    subscriptions.save_offset(JOB, 5, was=0)
    clock.now += 1
    assert subscriptions.subscribers(JOB) == Subscribers(5, [])
    assert subscriptions.followers("ana", "document") == []
    clock.now += KEPT_SECONDS
    assert subscriptions.subscribers(JOB) == Subscribers(0, [])


def test_a_full_room(subscriptions: Subscriptions, clock: FakeClock) -> None:
    """Everybody is found, where that is more than a page of DynamoDB's."""
    for number in range(500):
        connection_id = f"{number}".zfill(1000)
        subscriptions.subscribe(
            Connection(connection_id=connection_id, owner="ana", connected_at=int(clock.now)), JOB
        )
    assert len(subscriptions.subscribers(JOB).subscriptions) == 500


def test_subscribed(subscriptions: Subscriptions, ana: Connection) -> None:
    """Whether a connection listens to a job, whatever others do."""
    ben = subscriptions.connect("ben=", owner="ana")
    subscriptions.subscribe(ana, JOB)
    subscriptions.subscribe(ben, OTHER)
    assert subscriptions.is_subscribed("ana=", JOB)
    assert not subscriptions.is_subscribed("ana=", OTHER)
    subscriptions.unsubscribe("ana=", JOB)
    assert not subscriptions.is_subscribed("ana=", JOB)


def test_count(subscriptions: Subscriptions, ana: Connection) -> None:
    """Jobs and kinds are counted, each once however often it is asked for."""
    assert subscriptions.count("ana=") == 0
    for _ in range(2):
        subscriptions.subscribe(ana, JOB)
        subscriptions.subscribe(ana, OTHER)
        subscriptions.follow(ana, "document")
    assert subscriptions.count("ana=") == 3
    subscriptions.unsubscribe("ana=", JOB)
    subscriptions.unfollow(ana, "document")
    assert subscriptions.count("ana=") == 1


# ── kinds ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_followers(subscriptions: Subscriptions, ana: Connection) -> None:
    """Who follows a kind of an owner's jobs: not another kind's, not another owner's."""
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
