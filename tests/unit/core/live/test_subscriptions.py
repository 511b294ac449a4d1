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
    Audience,
    Connection,
    Room,
    Subscription,
)
from tests.unit.examples import FakeClock

JOB, OTHER = ids.new("job"), ids.new("job")
LIFE_SECONDS = CONNECTION_SECONDS + SLACK_SECONDS


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def audience(dynamodb: Any, jobs_table: str, clock: FakeClock) -> Audience:
    return Audience(dynamodb, jobs_table, clock=clock)


@pytest.fixture
def rows(dynamodb: Any, jobs_table: str) -> Callable[[], list[dict[str, Any]]]:
    """Everything in the table."""
    return lambda: dynamodb.scan(TableName=jobs_table)["Items"]


@pytest.fixture
def ana(audience: Audience) -> Connection:
    return audience.connect("ana=", owner="ana")


def only(subscriptions: Any) -> Subscription:
    (one,) = subscriptions
    found: Subscription = one
    return found


# ── tickets ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_ticket_lets_in_once(audience: Audience) -> None:
    """A ticket names its owner the first time, and nobody after that."""
    ticket, _ = audience.issue_ticket("ana")
    assert audience.redeem_ticket(ticket) == "ana"
    with pytest.raises(Forbidden):
        audience.redeem_ticket(ticket)


@pytest.mark.parametrize(("late", "holds"), [(-1, True), (0, False)])
def test_a_ticket_ends(audience: Audience, clock: FakeClock, late: float, holds: bool) -> None:
    """A ticket holds for a minute, also where its row is still there; used too late it is used all the same."""
    ticket, expires_at = audience.issue_ticket("ana")
    assert expires_at == clock.now + TICKET_SECONDS
    clock.now = expires_at + late
    if holds:
        assert audience.redeem_ticket(ticket) == "ana"
    else:
        for moment in (clock.now, clock.now - 1):
            clock.now = moment
            with pytest.raises(Forbidden):
                audience.redeem_ticket(ticket)


@pytest.mark.parametrize("text", ["", "x", "ñ", "x" * 9000, "TICKET", "\0"])
def test_no_ticket(audience: Audience, ana: Connection, text: str) -> None:
    """Whatever else is shown lets nobody in."""
    audience.issue_ticket("ana")
    with pytest.raises(Forbidden):
        audience.redeem_ticket(text)


def test_two_at_once(dynamodb: Any, audience: Audience) -> None:
    """Of two who show the same ticket at the same moment one gets in: nothing comes between look and use."""

    class Slow:
        """Before each write of this client, the rival is through."""

        def __getattr__(self, name: str) -> Any:
            if name != "get_item":
                rivals.append(audience.redeem_ticket(ticket))
            return getattr(dynamodb, name)

    ticket, _ = audience.issue_ticket("ana")
    rivals: list[str] = []
    with pytest.raises(Forbidden):
        Audience(Slow(), "jobs", clock=FakeClock()).redeem_ticket(ticket)
    assert rivals == ["ana"]


def test_tickets_are_not_to_be_read(audience: Audience, rows: Callable[[], list[dict[str, Any]]]) -> None:
    """Whoever can read the table cannot get in; tickets differ, and their rows go by themselves."""
    tickets = {audience.issue_ticket("ana")[0] for _ in range(20)}
    assert len(tickets) == 20
    assert min(len(ticket) for ticket in tickets) >= 32
    text = str(rows())
    assert not any(ticket in text for ticket in tickets)
    assert all(row["expires_at"] > 0 for row in rows())


# ── coming and going ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_connection_is_remembered(audience: Audience, ana: Connection, clock: FakeClock) -> None:
    """Who it is and what it may listen to is read back; unknown ones are None."""
    linked = audience.connect("link=", owner="ben", job_id=JOB)
    assert audience.connection("ana=") == ana
    assert audience.connection("link=") == linked
    assert (linked.owner, linked.job_id, linked.connected_at, ana.job_id) == ("ben", JOB, int(clock.now), None)
    assert audience.connection("other") is None


def test_every_row_goes_by_itself(
    audience: Audience, ana: Connection, clock: FakeClock, rows: Callable[[], list[dict[str, Any]]]
) -> None:
    """What nobody removes expires: some time after the connection has, however late it was written."""
    clock.now += 600
    audience.subscribe(ana, JOB)
    audience.follow(ana, "document")
    assert {row["expires_at"] for row in rows()} == {int(clock.now) - 600 + LIFE_SECONDS}
    audience.note_told(JOB, 3, was=0)
    assert {row["expires_at"] for row in rows() if row["entity"] == "room"} == {int(clock.now) + KEPT_SECONDS}


def test_forgotten(audience: Audience, ana: Connection, rows: Callable[[], list[dict[str, Any]]]) -> None:
    """All that a connection listens to goes with it, however much that is, and nothing of others."""
    ben = audience.connect("ben=", owner="ana")
    for one in (ana, ben):
        audience.follow(one, "document")
        for _ in range(40):
            audience.subscribe(one, ids.new("job"))
        audience.subscribe(one, JOB)
    audience.forget("ana=")
    assert {row["sk"].rpartition("#")[2] for row in rows() if row["entity"] != "connection"} == {"ben="}
    assert [row["pk"] for row in rows() if row["entity"] == "connection"] == ["LIVE#ben="]
    assert (audience.count("ana="), audience.count("ben=")) == (0, 42)
    audience.forget("ana=")
    audience.forget("nobody")
    assert audience.followers("ana", "document") == ["ben="]


def test_connections_there_are(audience: Audience, clock: FakeClock) -> None:
    """All are found, but for those whose handshake may not be over; those that have gone are not."""
    everybody = {f"c{number}=" for number in range(30)}
    for connection_id in everybody | {"gone="}:
        audience.connect(connection_id, owner="ana")
    audience.forget("gone=")
    clock.now += CONNECTING_SECONDS
    audience.connect("new=", owner="ana")
    assert list(audience.connections()) == []
    clock.now += 1
    assert set(audience.connections()) == everybody


def test_jobs_are_no_connections(audience: Audience, ana: Connection, clock: FakeClock) -> None:
    """Subscriptions and followers are not among the connections."""
    audience.subscribe(ana, JOB)
    audience.follow(ana, "document")
    clock.now += CONNECTING_SECONDS + 1
    assert list(audience.connections()) == ["ana="]


# ── one job ──────────────────────────────────────────────────────────────────────────────────────────────────


def tell(audience: Audience, subscription: Subscription, told: int) -> None:
    """As whoever speaks to a job's listeners does it."""
    audience.note_told(JOB, told, was=audience.room(JOB).told)
    audience.join(subscription, told=told)


def test_two_that_tell_at_once(audience: Audience, ana: Connection) -> None:
    """Of two that read the same room the second begins again, and who would lack an event does not join."""
    audience.subscribe(ana, JOB)
    asked = only(audience.room(JOB).asking)
    audience.note_told(JOB, 5, was=0)
    with pytest.raises(Contended):
        audience.note_told(JOB, 6, was=0)
    audience.note_told(JOB, 6, was=5)
    with pytest.raises(Contended):
        audience.join(asked, told=5)
    assert audience.room(JOB).joined == []


def test_a_room_long_forgotten(audience: Audience, ana: Connection, clock: FakeClock) -> None:
    """What was told a day ago, and has not been removed yet, is no obstacle."""
    audience.note_told(JOB, 5, was=0)
    clock.now += KEPT_SECONDS
    audience.note_told(JOB, 7, was=audience.room(JOB).told)
    assert audience.room(JOB).told == 7


def test_an_empty_room(audience: Audience) -> None:
    """Where nobody ever listened nobody has been told anything."""
    assert audience.room(JOB) == Room(0, [])


def test_asking_and_joining(audience: Audience, ana: Connection) -> None:
    """Who asks is after a number of its own; who has joined has been told what the room has been told."""
    audience.subscribe(ana, JOB, after=3)
    asked = only(audience.room(JOB).asking)
    assert (asked.connection_id, asked.job_id, asked.after, asked.tries) == ("ana=", JOB, 3, 0)
    assert asked.connected_at == ana.connected_at
    assert audience.room(JOB).joined == []
    tell(audience, asked, 7)
    room = audience.room(JOB)
    assert (room.told, room.asking) == (7, [])
    assert only(room.joined).after == 7
    assert audience.room(OTHER) == Room(0, [])


def test_asked_anew_while_being_joined(audience: Audience, ana: Connection) -> None:
    """A subscription that asks anew while it is answered is not joined: it has not been told what it asks now."""
    audience.subscribe(ana, JOB, after=5)
    asked = only(audience.room(JOB).asking)
    audience.subscribe(ana, JOB, after=0)
    tell(audience, asked, 5)
    now = only(audience.room(JOB).asking)
    assert (now.after, now.joined) == (0, False)
    assert now.asking != asked.asking
    tell(audience, now, 5)
    assert only(audience.room(JOB).joined).asking == now.asking


def test_who_has_joined_may_ask_anew(audience: Audience, ana: Connection) -> None:
    """Asking again at any time begins again, after the number that is asked for."""
    audience.subscribe(ana, JOB)
    tell(audience, only(audience.room(JOB).asking), 9)
    audience.subscribe(ana, JOB, after=2)
    assert only(audience.room(JOB).subscriptions).after == 2
    assert audience.room(JOB).joined == []


@pytest.mark.parametrize("joined", [False, True])
def test_asked_for_again(audience: Audience, ana: Connection, joined: bool) -> None:
    """What could not be sent is asked for again, after what had been told until then, and counted."""
    audience.subscribe(ana, JOB, after=2)
    audience.note_told(JOB, 4, was=0)
    if joined:
        tell(audience, only(audience.room(JOB).asking), 4)
    seen = only(audience.room(JOB).subscriptions)
    audience.ask_again(seen)
    again = only(audience.room(JOB).asking)
    assert (again.after, again.tries) == (4 if joined else 2, 1)
    assert again.asking != seen.asking


def test_tries_are_counted(audience: Audience, ana: Connection) -> None:
    """Each time that it must be asked for again counts; having joined, the count begins anew."""
    audience.subscribe(ana, JOB)
    for tries in range(1, 4):
        audience.ask_again(only(audience.room(JOB).asking))
        assert only(audience.room(JOB).asking).tries == tries
    tell(audience, only(audience.room(JOB).asking), 0)
    assert only(audience.room(JOB).joined).tries == 0


@pytest.mark.parametrize("end", ["unsubscribe", "forget"])
@pytest.mark.parametrize("late", ["join", "ask_again"])
def test_nothing_is_resurrected(
    audience: Audience, ana: Connection, rows: Callable[[], list[dict[str, Any]]], end: str, late: str
) -> None:
    """What has ended in the meantime is neither joined nor asked for again."""
    audience.subscribe(ana, JOB)
    seen = only(audience.room(JOB).asking)
    ends: dict[str, Callable[[], None]] = {
        "unsubscribe": lambda: audience.unsubscribe("ana=", JOB),
        "forget": lambda: audience.forget("ana="),
    }
    ends[end]()
    lates: dict[str, Callable[[], object]] = {
        "join": lambda: tell(audience, seen, 3),
        "ask_again": lambda: audience.ask_again(seen),
    }
    lates[late]()
    assert audience.room(JOB).subscriptions == []
    assert not [row for row in rows() if row["entity"] == "subscription"]


def test_asked_anew_before_it_could_be_asked_again(audience: Audience, ana: Connection) -> None:
    """What a client asks for anew is not undone by a try for what it asked before."""
    audience.subscribe(ana, JOB, after=5)
    seen = only(audience.room(JOB).asking)
    audience.subscribe(ana, JOB, after=1)
    audience.ask_again(seen)
    assert (only(audience.room(JOB).asking).after, only(audience.room(JOB).asking).tries) == (1, 0)


def test_expired_rows(audience: Audience, ana: Connection, clock: FakeClock) -> None:
    """A row that has expired and is still there counts for nothing."""
    audience.subscribe(ana, JOB)
    audience.follow(ana, "document")
    clock.now += LIFE_SECONDS - 1
    assert len(audience.room(JOB).subscriptions) == len(audience.followers("ana", "document")) == 1
    audience.note_told(JOB, 5, was=0)
    clock.now += 1
    assert audience.room(JOB) == Room(5, [])
    assert audience.followers("ana", "document") == []
    clock.now += KEPT_SECONDS
    assert audience.room(JOB) == Room(0, [])


def test_a_full_room(audience: Audience, clock: FakeClock) -> None:
    """Everybody is found, where that is more than a page of DynamoDB's."""
    for number in range(500):
        connection_id = f"{number}".zfill(1000)
        audience.subscribe(Connection(connection_id=connection_id, owner="ana", connected_at=int(clock.now)), JOB)
    assert len(audience.room(JOB).subscriptions) == 500


def test_subscribed(audience: Audience, ana: Connection) -> None:
    """Whether a connection listens to a job, whatever others do."""
    ben = audience.connect("ben=", owner="ana")
    audience.subscribe(ana, JOB)
    audience.subscribe(ben, OTHER)
    assert audience.is_subscribed("ana=", JOB)
    assert not audience.is_subscribed("ana=", OTHER)
    audience.unsubscribe("ana=", JOB)
    assert not audience.is_subscribed("ana=", JOB)


def test_count(audience: Audience, ana: Connection) -> None:
    """Jobs and kinds are counted, each once however often it is asked for."""
    assert audience.count("ana=") == 0
    for _ in range(2):
        audience.subscribe(ana, JOB)
        audience.subscribe(ana, OTHER)
        audience.follow(ana, "document")
    assert audience.count("ana=") == 3
    audience.unsubscribe("ana=", JOB)
    audience.unfollow(ana, "document")
    assert audience.count("ana=") == 1


# ── kinds ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_followers(audience: Audience, ana: Connection) -> None:
    """Who follows a kind of an owner's jobs: not another kind's, not another owner's."""
    second, ben = audience.connect("b=", owner="ana"), audience.connect("c=", owner="ben")
    audience.follow(ana, "document")
    audience.follow(second, "document")
    audience.follow(second, "replay")
    audience.follow(ben, "document")
    assert audience.followers("ana", "document") == ["ana=", "b="]
    assert audience.followers("ana", "replay") == ["b="]
    assert audience.followers("ben", "document") == ["c="]
    assert audience.followers("an", "document") == audience.followers("ana", "doc") == []
    audience.unfollow(second, "document")
    assert audience.followers("ana", "document") == ["ana="]
