from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import events, ids
from core.aws import clients
from core.dependencies import Dependencies, dependencies
from core.jobs import Job
from core.jobs.machine import report_progress
from core.webhooks.deliveries.after_attempt import AfterAttempt
from core.webhooks.deliveries.model import Delivery, delivery_id
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints import patterns
from core.webhooks.endpoints.model import Endpoint, Key
from kinds.document.kind import DOCUMENT
from tests.simulated_cloud.calls import Call
from tests.support.webhooks import nth
from tests.unit.conftest import ENVIRONMENT
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.webhooks.samples import FakeSqs, attempt, failure
from tests.unit.examples import job
from tests.unit.webhooks.dispatch.conftest import Bench, attributes
from webhooks.dispatch.handler import handler


class World:
    """Dispatcher and sender over one table in memory. Tests pass on the messages in `sqs`."""

    def __init__(self, wanted: tuple[str, ...], count: int) -> None:
        self.sqs = FakeSqs()
        self.wanted = wanted
        self.endpoint = Endpoint(
            endpoint_id=ids.new("wh"),
            owner="ana",
            keys=(Key(encrypted=b""),),
            created_at=events.timestamp(0),
            updated_at=events.timestamp(0),
            url="https://example.com",
            events=wanted,
            ordered=True,
        )
        self.of.endpoints.create(self.endpoint)
        self.job: Job = self.of.jobs.submit(DOCUMENT, job(at=4e9)).job
        for done in range(count):
            self.of.jobs.apply(self.job.job_id, report_progress(done, count))
        self.log = list(self.of.jobs.log.read_all(self.job.job_id))
        self.after_attempt = AfterAttempt(self.of.jobs, self.of.deliveries, self.of.webhooks_queue)
        self.ended: list[int] = []

    @property
    def of(self) -> Dependencies:
        return dependencies

    def arrive(self, position: int) -> None:
        body = self.log[position % len(self.log)].body
        record = {"messageId": "m", "body": body, "attributes": {"ApproximateReceiveCount": "1"}}
        record["messageAttributes"] = attributes(body)
        assert handler({"Records": [record]}, None) == {"batchItemFailures": []}

    def deliveries(self) -> list[tuple[int, Delivery | None]]:
        """The deliveries of the wanted events, by their position in the log."""
        wanted = [event for event in self.log if patterns.matches(self.wanted, event)]
        store, endpoint_id = self.of.deliveries, self.endpoint.endpoint_id
        return [(int(e.sequence or 0), store.get(delivery_id(e.event_id, endpoint_id))) for e in wanted]

    def send(self, position: int, outcome: str) -> None:
        """Handle one of the queued messages like the sender."""
        if not self.sqs.messages:
            return
        message: Message = self.sqs.messages.pop(position % len(self.sqs.messages))
        store = self.of.deliveries
        predecessor = store.get(message.follows) if message.follows else None
        if predecessor and predecessor.is_open:
            return
        claim = store.claim(message.delivery_id, attempts=message.attempts)
        if claim is None:
            return
        earlier = [each for sequence, each in self.deliveries() if sequence < int(claim.sequence or 0)]
        assert all(each and not each.is_open for each in earlier), "sent out of turn"
        made = attempt if outcome == "ok" else failure
        done = store.record(claim, made(claim.attempts + 1), wait=0 if outcome == "again" else None)
        assert done is not None
        if not done.is_open:
            self.ended.append(int(done.sequence or 0))
        self.after_attempt.follow_up(done)


@contextmanager
def world(wanted: tuple[str, ...], count: int) -> Iterator[World]:
    table = MemoryTable()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr(clients, "dynamodb", lambda: table)
        dependencies.cache_clear()
        sqs = FakeSqs()
        patch.setattr(clients, "client", lambda service: sqs)
        patch.setattr(clients, "high_throughput", lambda service: sqs)
        made = World(wanted, count)
        made.sqs = sqs
        yield made
    dependencies.cache_clear()


steps = st.one_of(
    st.tuples(st.just("arrive"), st.integers(0, 20), st.just("")),
    st.tuples(st.just("send"), st.integers(0, 20), st.sampled_from(["ok", "ok", "failed", "again"])),
)
wishes = st.sampled_from([("*",), ("document.progressed",), ("document.uploaded", "document.progressed")])


@settings(max_examples=150, deadline=None)
@given(wanted=wishes, count=st.integers(1, 5), script=st.lists(steps, max_size=30), rest=st.randoms())
def test_any_order(wanted: tuple[str, ...], count: int, script: list[tuple[str, int, str]], rest: Any) -> None:
    """In any order of messages, with repetitions, each event is sent after those before it."""
    with world(wanted, count) as bench:
        for action, position, outcome in script:
            if action == "arrive":
                bench.arrive(position)
            else:
                bench.send(position, outcome)
        last = list(range(len(bench.log)))
        rest.shuffle(last)
        for position in last:
            bench.arrive(position)
        while bench.sqs.messages:
            bench.send(rest.randrange(99), "ok")
        found = bench.deliveries()
        assert all(each and not each.is_open for _, each in found)
        assert bench.ended == sorted(bench.ended) == [sequence for sequence, _ in found]


def test_events_before_the_endpoint(bench: Bench) -> None:
    """Events from before the endpoint existed get no delivery."""
    subject = bench.job()
    bench.clock.advance(1)
    endpoint = bench.endpoint(ordered=True)
    bench.progress(subject, 1)
    first, second = bench.bodies(subject)
    bench.arrive(second)
    assert bench.find(first, endpoint) is None
    assert bench.get(second, endpoint).follows is None
    assert len(bench.queued()) == 1


def nth_write(number: int) -> Callable[[Call], bool]:
    is_nth = nth(number)
    return lambda call: call.operation in ("PutItem", "UpdateItem", "SendMessageBatch") and is_nth(call)


def test_killed_at_any_write(bench: Bench) -> None:
    """After a failure at any write, the repeated and later messages complete the chain."""
    endpoint = bench.endpoint(ordered=True)
    for number in range(1, 9):
        bodies = bench.bodies(bench.canceled())
        with bench.calls.fail("*", "*", "InternalServerError", when=nth_write(number)):
            bench.arrive(bodies[-1])
        bench.queued()
        assert bench.arrive(bodies[-1], receives=2) == []
        assert bench.arrive(bodies[1], bodies[0]) == []
        first, second, third = (bench.get(body, endpoint) for body in bodies)
        assert (first.followed_by, second.followed_by) == (second.delivery_id, third.delivery_id)
        assert {queued.delivery_id for queued in bench.queued()} == {first.delivery_id}
        assert json.loads(third.body) == json.loads(bodies[-1])
