"""WebSockets: connections, replays, pushes and disconnections."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.jobs import JobStore
from core.jobs.machine import report_progress
from core.live.channel import Channel
from core.live.sockets import Sockets
from core.live.subscriptions import Subscriptions
from tests.simulated_cloud.websocket_api import HandshakeRefused, WebSocket
from tests.support.live import text_of
from tests.support.service import Service, make_key

LINK_HOURS, HOUR, MINUTE = 48, 3600, 60
Messages = list[dict[str, Any]]


@pytest.fixture
def ana(service: Service) -> Service:
    """A service in which jobs stay queued: the tests change them."""
    service.cloud.pause("start_job")
    return service


@pytest.fixture
def job_id(ana: Service) -> str:
    return ana.submit()


def store(ana: Service) -> JobStore:
    table = ana.cloud.table("Jobs")
    return JobStore(table.meta.client, table.name)


def report(ana: Service, job_id: str, times: int = 1) -> None:
    """Logs events of the job."""
    for number in range(times):
        store(ana).apply(job_id, report_progress(number, times))


def live(ana: Service, job_id: str, *, after: int | None = None) -> WebSocket:
    """A client that connected by the job's link."""
    return ana.cloud.connect(ana.job(job_id)["links"]["live"] + ("" if after is None else f"&after={after}"))


def by_ticket(ana: Service) -> WebSocket:
    """A client that connected with a ticket."""
    return ana.cloud.connect(ana.call("POST", "/live/tickets").json()["url"])


def sequences(messages: Messages, job_id: str | None = None) -> list[int]:
    events = [event for message in messages for event in message.get("events", [])]
    return [event["sequence"] for event in events if job_id in (None, event["job_id"])]


def types(messages: Messages) -> list[str]:
    return [message["type"] for message in messages]


def rows(ana: Service) -> set[str]:
    """The items of connections, by entity."""
    table = ana.cloud.table("Jobs")
    kinds = ("connection", "subscription", "follower")
    return {item["entity"] for item in table.scan()["Items"] if item.get("entity") in kinds}


class TestConnecting:
    def test_link_subscribes(self, ana: Service, job_id: str) -> None:
        """A link replays the events so far, followed by `subscribed`."""
        socket = live(ana, job_id)
        ana.cloud.settle()
        events, subscribed = socket.take()
        assert events == {"type": "events", "events": ana.events(job_id)}
        assert subscribed == {"type": "subscribed", "job_id": job_id, "sequence": 1}

    def test_after(self, ana: Service, job_id: str) -> None:
        """`after` omits known events. Without new ones there is only `subscribed`."""
        report(ana, job_id, 3)
        for after, expected in ((2, [3, 4]), (4, []), (99, [])):
            socket = live(ana, job_id, after=after)
            ana.cloud.settle()
            assert sequences(socket.messages) == expected
            assert socket.messages[-1] == {"type": "subscribed", "job_id": job_id, "sequence": 4}

    def test_ticket_is_valid_once(self, ana: Service) -> None:
        """A used or expired ticket is refused."""
        ticket = ana.call("POST", "/live/tickets")
        assert ticket.status == 201
        assert ana.cloud.connect(f"?ticket={ticket.json()['ticket']}").is_open
        late = ana.call("POST", "/live/tickets").json()["url"]
        ana.cloud.clock.advance(MINUTE)
        for url in (ticket.json()["url"], late):
            with pytest.raises(HandshakeRefused) as caught:
                ana.cloud.connect(url)
            assert caught.value.status == 403

    def test_scope_of_ticket(self, ana: Service) -> None:
        """A key that may not read jobs gets no ticket."""
        key = make_key(ana.cloud, "ana", scopes=("jobs:write",))
        answer = ana.cloud.request("POST", "/live/tickets", headers={"Authorization": f"Bearer {key}"})
        assert answer.status == 403

    def test_refused_connections(self, ana: Service, job_id: str) -> None:
        """Connections without a ticket, with a key or with an invalid token are refused."""
        link = ana.job(job_id)["links"]["live"]
        token, other = (url.partition("token=")[2] for url in (link, ana.job(ana.submit())["links"]["live"]))
        id_of, rest = token.split(".", 1)
        mixed = f"{id_of}.{other.split('.', 1)[1]}"
        key = ana.authorization["Authorization"].split()[1]
        queries = ["", "?", "?token=", "?ticket=", f"?token={key}", f"?ticket={token}", f"?token={mixed}"]
        queries += [f"?token={token[:-1]}", f"?token={token}x", f"?token={'0' * 26}.{rest}", f"?key={key}"]
        for query in queries:
            with pytest.raises(HandshakeRefused) as caught:
                ana.cloud.connect(query, headers={"Authorization": f"Bearer {key}"})
            assert caught.value.status == 403
        ana.cloud.clock.advance((LINK_HOURS + 1) * HOUR)
        with pytest.raises(HandshakeRefused):
            ana.cloud.connect(link)
        assert rows(ana) == set()

    @pytest.mark.parametrize("after", ["-1", "x", "1.5", "", "1000000", "٣", "9" * 5000])
    def test_invalid_sequence(self, ana: Service, job_id: str, after: str) -> None:
        """An invalid sequence is a 422, and nothing is written."""
        with pytest.raises(HandshakeRefused) as caught:
            ana.cloud.connect(f"{ana.job(job_id)['links']['live']}&after={after}")
        assert caught.value.status == 422
        assert rows(ana) == set()


class TestSubscriptions:
    def test_events_arrive_once_and_in_order(self, ana: Service, job_id: str) -> None:
        """Each event is pushed once, in order, to the last."""
        socket = live(ana, job_id)
        ana.cloud.settle()
        for number in range(2, 6):
            report(ana, job_id)
            ana.cloud.settle()
            assert sequences(socket.messages)[-1] == number
        ana.cancel(job_id)
        ana.cloud.settle()
        seen = [event for message in socket.messages for event in message.get("events", [])]
        assert seen == ana.events(job_id)
        assert seen[-1]["event"] == "document.canceled"

    def test_several_jobs(self, ana: Service) -> None:
        """A connection can subscribe to several jobs, and unsubscribe."""
        one, two = ana.submit(), ana.submit()
        socket = by_ticket(ana)
        for job_id in (one, two):
            socket.send({"action": "subscribe", "job_id": job_id})
        ana.cloud.settle()
        assert sequences(socket.messages, one) == sequences(socket.messages, two) == [1]
        socket.take()
        socket.send({"action": "unsubscribe", "job_id": one})
        assert socket.take() == [{"type": "unsubscribed", "job_id": one}]
        for job_id in (one, two):
            report(ana, job_id)
        ana.cloud.settle()
        assert [event["job_id"] for message in socket.messages for event in message["events"]] == [two]

    def test_subscribing_again(self, ana: Service, job_id: str) -> None:
        """Subscribing again replays the events after the given sequence."""
        report(ana, job_id, 4)
        socket = live(ana, job_id)
        ana.cloud.settle()
        socket.take()
        socket.send({"action": "subscribe", "job_id": job_id, "after": 3})
        ana.cloud.settle()
        assert sequences(socket.messages) == [4, 5]
        assert types(socket.messages)[-1] == "subscribed"
        report(ana, job_id)
        ana.cloud.settle()
        assert sequences(socket.messages) == [4, 5, 6]

    def test_unknown_jobs(self, ana: Service, job_id: str) -> None:
        """The errors for other owners' jobs, unknown jobs and malformed ids are equal."""
        ben = Service(ana.cloud, "ben")
        socket = by_ticket(ben)
        answers = []
        for other in (job_id, "job_" + "0" * 26, "x"):
            socket.send({"action": "subscribe", "job_id": other})
            (answer,) = socket.take()
            assert answer.pop("job_id") == other
            answers.append(answer)
        assert answers[0]["code"] == "not_found"
        assert answers[0] == answers[1] == answers[2]
        report(ana, job_id)
        ana.cloud.settle()
        assert socket.messages == []

    def test_link_is_for_one_job(self, ana: Service, job_id: str) -> None:
        """A connection by link cannot subscribe to other jobs or follow kinds."""
        socket, other = live(ana, job_id), ana.submit()
        ana.cloud.settle()
        socket.take()
        socket.send({"action": "subscribe", "job_id": other})
        socket.send({"action": "follow", "kind": "document"})
        assert [message["code"] for message in socket.take()] == ["forbidden", "forbidden"]
        report(ana, other)
        ana.cloud.settle()
        assert socket.messages == []

    def test_long_logs(self, ana: Service, job_id: str) -> None:
        """A replay of 300 events takes few messages, none larger than a frame."""
        report(ana, job_id, 300)
        socket = live(ana, job_id)
        ana.cloud.settle()
        assert sequences(socket.messages) == list(range(1, 302))
        assert len(socket.texts) < 10
        assert all(len(text.encode()) <= 32 * 1024 for text in socket.texts)

    @pytest.mark.parametrize(
        ("sent", "field"),
        [
            ("", "message"),
            ("{", "message"),
            ("[]", "message"),
            ('"ping"', "message"),
            ({}, "action"),
            ({"action": "dance"}, "action"),
            ({"action": ["ping"]}, "action"),
            ({"action": "subscribe"}, "job_id"),
            ({"action": "subscribe", "job_id": 1}, "job_id"),
            ({"action": "subscribe", "job_id": "j", "after": -1}, "after"),
            ({"action": "subscribe", "job_id": "j", "after": "1"}, "after"),
            ({"action": "subscribe", "job_id": "j", "seq": 1}, "seq"),
            ({"action": "follow"}, "kind"),
            ({"action": "follow", "kind": "endpoint"}, "kind"),
            ('{"action": "subscribe", "job_id": "\\ud800"}', "message"),
        ],
    )
    def test_invalid_messages(self, ana: Service, sent: Any, field: str) -> None:
        """The error names what is invalid, and the connection stays open."""
        socket = by_ticket(ana)
        socket.send(sent)
        (answer,) = socket.take()
        assert (answer["type"], answer["code"]) == ("error", "invalid_request")
        assert answer["message"].startswith(field)
        socket.send({"action": "ping"})
        assert socket.take() == [{"type": "pong"}]


class TestFollowing:
    def test_follow(self, ana: Service) -> None:
        """New events of all the owner's jobs of the kind are sent, and none of other owners."""
        ana.submit()
        ana.cloud.settle()
        socket, ben = by_ticket(ana), Service(ana.cloud, "ben")
        socket.send({"action": "follow", "kind": "document"})
        assert socket.take() == [{"type": "following", "kind": "document"}]
        first, _, second = ana.submit(), ben.submit(), ana.submit()
        ana.cloud.settle()
        report(ana, first)
        ana.cloud.settle()
        seen = [(event["job_id"], event["sequence"]) for message in socket.take() for event in message["events"]]
        assert sorted(seen) == sorted([(first, 1), (second, 1), (first, 2)])
        socket.send({"action": "unfollow", "kind": "document"})
        assert socket.take() == [{"type": "unfollowed", "kind": "document"}]
        report(ana, first)
        ana.cloud.settle()
        assert socket.messages == []

    def test_follower_that_subscribes(self, ana: Service) -> None:
        """The events of a job that a follower also subscribes to are sent once."""
        socket = by_ticket(ana)
        socket.send({"action": "follow", "kind": "document"})
        job_id = ana.submit()
        socket.send({"action": "subscribe", "job_id": job_id})
        ana.cloud.settle()
        report(ana, job_id, 3)
        ana.cloud.settle()
        assert sequences(socket.messages, job_id) == [1, 2, 3, 4]


class TestDisconnections:
    def test_closed_connection(self, ana: Service, job_id: str) -> None:
        """A closed connection has no items left."""
        sockets = [live(ana, job_id), by_ticket(ana), by_ticket(ana)]
        sockets[1].send({"action": "follow", "kind": "document"})
        sockets[2].send({"action": "subscribe", "job_id": job_id})
        assert rows(ana) == {"connection", "subscription", "follower"}
        for socket in sockets:
            socket.close()
        assert rows(ana) == set()

    def test_vanished_connection(self, ana: Service, job_id: str) -> None:
        """A vanished connection is deleted at the next event, and others get each event."""
        sockets = [live(ana, job_id) for _ in range(10)]
        follower = by_ticket(ana)
        follower.send({"action": "follow", "kind": "document"})
        ana.cloud.settle()
        ana.cloud.clock.advance(MINUTE)
        for vanished in (*sockets[::3], follower):
            vanished.drop()
        report(ana, job_id, 2)
        ana.cloud.settle()
        for socket in sockets:
            if socket.is_open:
                assert sequences(socket.messages) == [1, 2, 3]
        kept = ana.cloud.table("Jobs").scan()["Items"]
        assert sum(item.get("entity") == "subscription" for item in kept) == sum(s.is_open for s in sockets)
        assert ana.cloud.functions.errors == []

    def test_handshake(self, ana: Service, job_id: str) -> None:
        """Events during a connection's handshake are sent a little later."""
        url = ana.job(job_id)["links"]["live"]
        polled: list[int] = []
        ana.cloud.on(
            "dynamodb",
            "PutItem",
            lambda call: polled.append(ana.cloud.poll("push")),
            function="on_message",
            after=True,
            times=2,
        )
        socket = ana.cloud.connect(url)
        assert polled == [1, 1]
        ana.cloud.settle()
        assert sequences(socket.messages) == [1]
        assert types(socket.messages)[-1] == "subscribed"

    def test_pings(self, ana: Service, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Pings keep a connection open for two hours, API Gateway's limit."""
        for rule in ana.cloud.bus.rules:
            if rule.every == MINUTE:  # not the schedules of other functions
                monkeypatch.setattr(rule, "enabled", False)
        socket = live(ana, job_id)
        ana.cloud.settle()
        socket.take()
        ana.cloud.advance(2 * HOUR - MINUTE)
        assert socket.is_open
        assert set(types(socket.messages)) == {"ping"}
        assert len(socket.messages) <= 2 * 15
        ana.cloud.advance(2 * MINUTE)
        assert not socket.is_open
        ana.cloud.settle()
        assert rows(ana) == set()

    def test_pings_find_vanished_connections(self, ana: Service, job_id: str) -> None:
        """A vanished connection without events is deleted within minutes."""
        live(ana, job_id).drop()
        ana.cloud.advance(10 * MINUTE)
        assert rows(ana) == set()


class TestFaults:
    @pytest.mark.parametrize("after", [False, True], ids=["unsent", "unanswered"])
    @pytest.mark.parametrize("error", ["LimitExceededException", "InternalServerError"])
    def test_failed_messages(self, ana: Service, job_id: str, error: str, after: bool) -> None:
        """A connection that could not be reached gets what it lacks later; others are not affected."""
        sockets = [live(ana, job_id) for _ in range(3)]
        ana.cloud.settle()
        for socket in sockets:
            socket.take()
        unlucky = sockets[1].connection_id
        ana.cloud.fail(
            "apigatewaymanagementapi",
            "PostToConnection",
            error,
            when=lambda call: call.params["ConnectionId"] == unlucky,
            times=3,
            after=after,
        )
        report(ana, job_id, 2)
        ana.cloud.settle(within=MINUTE)
        for socket in (sockets[0], sockets[2]):
            assert sequences(socket.messages) == [2, 3]
        assert sorted(set(sequences(sockets[1].messages))) == [2, 3]
        assert sequences(sockets[1].messages)[-1] == 3

    def test_failing_connection(self, ana: Service, job_id: str) -> None:
        """A connection that fails too often is closed, so that its client reconnects."""
        socket = live(ana, job_id)
        ana.cloud.settle()
        ana.cloud.fail("apigatewaymanagementapi", "PostToConnection", "LimitExceededException", times=None)
        report(ana, job_id)
        ana.cloud.settle(within=10 * MINUTE)
        assert not socket.is_open
        assert rows(ana) == set()

    def test_fault_of_the_table(self, ana: Service, job_id: str) -> None:
        """A fault of the table during a push loses no event."""
        socket = live(ana, job_id)
        ana.cloud.settle()
        for operation in ("Query", "PutItem"):
            ana.cloud.fail("dynamodb", operation, "InternalServerError", function="push", times=2)
        report(ana, job_id, 3)
        ana.cloud.settle(within=10 * MINUTE)
        assert sorted(set(sequences(socket.messages))) == [1, 2, 3, 4]

    def test_kill_at_each_call(self, ana: Service) -> None:
        """Wherever `push` is killed, subscribers and followers get every event."""
        calls = len(ana.cloud.calls.of("push"))
        killed = 0
        for after in range(40):
            job_id = ana.submit()
            socket, follower = live(ana, job_id), by_ticket(ana)
            follower.send({"action": "follow", "kind": "document"})
            rule = ana.cloud.kill("push", after=after)
            report(ana, job_id, 2)
            ana.cloud.settle(within=10 * MINUTE)
            killed += rule.hits
            rule.remove()
            assert sorted(set(sequences(socket.messages))) == [1, 2, 3], after
            assert sorted(set(sequences(follower.messages, job_id))) == [1, 2, 3], after
            socket.close()
            follower.close()
        assert calls == 0
        assert killed > 5

    def test_unreliable_stream(self, ana: Service) -> None:
        """With duplicate batches and concurrent consumers, events arrive in order, without gaps."""
        for seed in range(5):
            ana.cloud.unreliable(seed, duplicates=0.5)
            job_id = ana.submit()
            sockets = [live(ana, job_id) for _ in range(3)]
            report(ana, job_id, 5)
            ana.cloud.settle(within=MINUTE)
            late = live(ana, job_id)
            report(ana, job_id, 2)
            ana.cloud.settle(within=MINUTE)
            for socket in (*sockets, late):
                assert sequences(socket.messages) == list(range(1, 9))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.sampled_from(["event", "settle", "join", "leave", "vanish", "again", "come back"]), max_size=20
    ),
    seed=st.integers(0, 1000),
)
def test_any_clients(ana: Service, steps: list[str], seed: int) -> None:
    """Clients that connect, disconnect, vanish and subscribe again get every event after their first, in order."""
    cloud = ana.cloud
    cloud.reset()
    cloud.pause("start_job")
    ana.authorization = {"Authorization": f"Bearer {make_key(cloud, 'ana')}"}
    job_id = ana.submit()
    clients: list[Client] = []
    for number, step in enumerate(steps):
        open_ones = [client for client in clients if client.socket.is_open]
        chosen = open_ones[(seed + number) % len(open_ones)] if open_ones else None
        match step:
            case "event":
                report(ana, job_id)
            case "settle":
                cloud.settle()
            case "join":
                clients.append(Client(ana, job_id))
            case "leave" if chosen:
                chosen.socket.close()
            case "vanish" if chosen:
                chosen.socket.drop()
            case "again" if chosen:
                chosen.read()
                chosen.socket.send({"action": "subscribe", "job_id": job_id, "after": chosen.last})
            case "come back":
                for client in clients:
                    client.come_back()
    for client in clients:
        client.come_back()
    cloud.settle(within=MINUTE)
    for client in clients:
        client.read()
        assert client.last == len(ana.events(job_id))


class Client:
    """A client: repeated events are ignored, and there may be no gap."""

    def __init__(self, ana: Service, job_id: str) -> None:
        self.ana, self.job_id, self.last = ana, job_id, 0
        self.socket = live(ana, job_id)

    def read(self) -> None:
        for sequence in sequences(self.socket.take()):
            assert sequence <= self.last + 1
            self.last = max(self.last, sequence)

    def come_back(self) -> None:
        if not self.socket.is_open:
            self.read()
            self.socket = live(self.ana, self.job_id, after=self.last)


class TestChannel:
    """A producer of text, as a worker that calls a model."""

    @pytest.fixture
    def open_channel(self, ana: Service) -> Callable[[str], Channel]:
        table, cloud = ana.cloud.table("Jobs"), ana.cloud
        subscriptions = Subscriptions(table.meta.client, table.name, clock=lambda: cloud.clock.time)
        sockets = Sockets(cloud.client("apigatewaymanagementapi"))
        return lambda job_id: Channel(job_id, subscriptions, sockets, clock=lambda: cloud.clock.time)

    def test_text(self, ana: Service, job_id: str, open_channel: Callable[[str], Channel]) -> None:
        """Subscribers from the start and later ones have the whole text at the end. The log has none of it."""
        tokens = [f"word{number} 👩‍🚀 " for number in range(60)]
        early = live(ana, job_id)
        ana.cloud.settle()
        late = early
        with open_channel(job_id) as channel:
            for number, token in enumerate(tokens):
                if number == 30:
                    late = live(ana, job_id)
                    ana.cloud.settle()
                channel.write(token)
                ana.cloud.clock.advance(0.07)
        for socket in (early, late):
            assert text_of(socket.messages) == "".join(tokens)
        assert types(late.messages).count("snapshot") == 1
        assert len(ana.events(job_id)) == 1
        assert len([t for t in types(early.messages) if t in ("delta", "snapshot")]) < len(tokens)

    def test_subscribing_again_gets_the_text(
        self, ana: Service, job_id: str, open_channel: Callable[[str], Channel]
    ) -> None:
        """A client that subscribes again gets the text so far, and then the rest."""
        socket = live(ana, job_id)
        ana.cloud.settle()
        channel = open_channel(job_id)
        channel.write("one ")
        ana.cloud.clock.advance(2)
        channel.write("two ")
        socket.take()
        socket.send({"action": "subscribe", "job_id": job_id, "after": 1})
        ana.cloud.settle()
        ana.cloud.clock.advance(2)
        channel.write("three")
        assert text_of(socket.messages) == "one two three"

    def test_no_subscribers(self, ana: Service, job_id: str, open_channel: Callable[[str], Channel]) -> None:
        """Without subscribers nothing is sent, and the table is read at most once a second."""
        before = len(ana.cloud.calls.log)
        with open_channel(job_id) as channel:
            for _ in range(100):
                channel.write("x")
                ana.cloud.clock.advance(0.05)
        actions = [call.action for call in ana.cloud.calls.log[before:]]
        assert set(actions) == {"dynamodb:Query"}
        assert len(actions) <= 6


def test_secrets_are_not_stored_or_logged(ana: Service, job_id: str) -> None:
    """Tickets and tokens are neither logged nor stored."""
    ticket = ana.call("POST", "/live/tickets").json()["ticket"]
    url = ana.job(job_id)["links"]["live"]
    ana.cloud.connect(f"?ticket={ticket}")
    ana.cloud.connect(url)
    ana.cloud.settle()
    kept = json.dumps(ana.cloud.table("Jobs").scan()["Items"], default=str)
    assert ticket not in kept
    assert url.partition("token=")[2] not in kept
