from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from core.webhooks.deliveries.health import AttemptOutcome, Health
from core.webhooks.deliveries.health_store import MIN_OPEN_SECONDS, PROBE_SECONDS, HealthStore
from core.webhooks.deliveries.index import DeliveryIndex
from core.webhooks.deliveries.model import Delivery
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.rows import DUE_SHARDS, QUEUE_RETRY_SECONDS
from core.webhooks.deliveries.store import LEASE_SECONDS, DeliveryStore
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.core.webhooks.samples import ENDPOINT, delivery, failure
from webhooks.retry_scheduler import circuits, queueing
from webhooks.retry_scheduler import handler as module
from webhooks.retry_scheduler.handler import dependencies, handler

SPAN = 310  # of the schedule that the tests' environment has
Logged = Callable[[], list[dict[str, Any]]]


class Bench:
    def __init__(self, clock: Clock, calls: Calls) -> None:
        self.clock, self.calls = clock, calls

    @property
    def store(self) -> DeliveryStore:
        return dependencies.deliveries

    @property
    def index(self) -> DeliveryIndex:
        return dependencies.delivery_index

    @property
    def circuits(self) -> HealthStore:
        return dependencies.health

    def delivery(self, **facts: Any) -> Delivery:
        return self.store.create(delivery(**{"now": time.time(), "job_id": None} | facts))

    def failed_once(self, wait: int) -> Delivery:
        """A delivery with one failure whose next attempt is due after this time."""
        claim = self.store.claim(self.delivery().delivery_id, attempts=0)
        assert claim is not None
        done = self.store.record(claim, failure(1), wait=wait)
        assert done is not None
        return done

    def held(self) -> Delivery:
        """A delivery that is held for the circuit."""
        made = self.delivery()
        self.clock.advance(1)
        held = self.store.hold(
            made.delivery_id, owner="ana", destination=ENDPOINT, attempts=0, queued_at=made.queued_at
        )
        assert held is not None
        return held

    def now(self, delivery: Delivery) -> Delivery:
        found = self.store.get(delivery.delivery_id)
        assert found is not None
        return found

    def entry(self, delivery: Delivery) -> str:
        key = {"pk": f"DELIVERY#{delivery.delivery_id}", "sk": "META"}
        item = self.store._client.get_item(TableName="deliveries", Key=key)["Item"]
        return str(item.get("gsi2pk"))

    def record(self, *succeeded: bool, probe: bool = False) -> Health:
        outcomes = [AttemptOutcome(time.time(), each, ended=False, probe=probe) for each in succeeded]
        return self.circuits.record_outcomes(self.health, outcomes)

    @property
    def health(self) -> Health:
        return self.circuits.get("ana", ENDPOINT)

    def run(self) -> list[Message]:
        """Run the scheduler. Returns the messages that it queued."""
        self.calls.log.clear()
        handler({}, None)
        return self.queued()

    def queued(self) -> list[Message]:
        sent = []
        for call in self.calls.log:
            if call.operation == "SendMessageBatch":
                sent += [Message.parse(entry["MessageBody"]) for entry in call.params["Entries"]]
            elif call.operation == "SendMessage":
                sent.append(Message.parse(call.params["MessageBody"]))
        return sent

    def send_dead_letter(self, body: str) -> None:
        dependencies.sqs.send_message(QueueUrl=dependencies.settings.webhooks_dlq_url, MessageBody=body)

    def dead_letters(self) -> int:
        """The number of messages left, including invisible ones."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        url = dependencies.settings.webhooks_dlq_url
        found = dependencies.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


@pytest.fixture
def bench(environment: dict[str, str], jobs_table: str, deliveries_table: str, queues: None) -> Iterator[Bench]:
    clock = Clock()
    calls = Calls(clock)
    with clock.running(), calls.intercepted():
        yield Bench(clock, calls)


# ── what is due ──────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing(bench: Bench, logged: Logged) -> None:
    """A run without work queues and logs nothing."""
    assert bench.run() == []
    assert logged() == []


def test_order_is_kept(bench: Bench) -> None:
    """The message has the delivery's predecessor."""
    bench.delivery(follows="dlv_predecessor")
    bench.clock.advance(QUEUE_RETRY_SECONDS + 1)
    assert [queued.follows for queued in bench.run()] == ["dlv_predecessor"]


def test_all_shards(bench: Bench) -> None:
    """Due deliveries of all shards are queued, also more than a page."""
    made = {bench.delivery().delivery_id for _ in range(130)}
    assert len({bench.entry(replace(bench.delivery(), delivery_id=each)) for each in made}) == DUE_SHARDS
    bench.clock.advance(QUEUE_RETRY_SECONDS + 10)
    queued = bench.run()
    assert made <= {each.delivery_id for each in queued}
    assert len(queued) == len({each.delivery_id for each in queued})


def test_a_shard_that_fails(bench: Bench) -> None:
    """If one shard cannot be read, the others are queued, and it is read in the next run."""
    made = [bench.delivery() for _ in range(60)]
    bench.clock.advance(QUEUE_RETRY_SECONDS + 1)
    due = bench.entry(made[0])
    bench.calls.fail(
        "dynamodb",
        "Query",
        "InternalServerError",
        when=lambda call: call.params["ExpressionAttributeValues"][":pk"] == due,
    )
    first = {queued.delivery_id for queued in bench.run()}
    second = {queued.delivery_id for queued in bench.run()}
    assert len(first) + len(second) == 60
    assert second


def test_a_queue_that_fails(bench: Bench) -> None:
    """Deliveries that could not be queued are due again later."""
    delivery = bench.delivery()
    bench.clock.advance(QUEUE_RETRY_SECONDS + 1)
    bench.calls.fail("sqs", "SendMessageBatch", "InternalError")
    bench.run()
    bench.clock.advance(QUEUE_RETRY_SECONDS + 1)
    assert [queued.delivery_id for queued in bench.run()] == [delivery.delivery_id]


def test_time_is_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time limit, each shard has had at least one page. The next runs do the rest."""
    monkeypatch.setattr(queueing, "PAGE", 1)
    monkeypatch.setattr(module, "SECONDS", -1)
    made = {bench.delivery().delivery_id for _ in range(64)}
    bench.clock.advance(QUEUE_RETRY_SECONDS + 1)
    first = {queued.delivery_id for queued in bench.run()}
    assert 0 < len(first) <= DUE_SHARDS
    while later := bench.run():
        first |= {queued.delivery_id for queued in later}
    assert first == made


def test_no_shard_is_always_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the shards is random in each run."""
    orders = set()

    def watched(pool: Any, function: Any, shards: Any) -> list[int]:
        orders.add(tuple(shards))
        return []

    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.map", watched)
    random.seed(1)
    for _ in range(5):
        bench.run()
    assert len(orders) == 5
    assert all(sorted(order) == list(range(DUE_SHARDS)) for order in orders)


# ── circuits ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_probe(bench: Bench) -> None:
    """An open circuit gets one probe, the oldest held delivery. The others stay held."""
    oldest, *others = [bench.held() for _ in range(3)]
    bench.record(False, False, False)
    assert bench.run() == []
    bench.clock.advance(1.2 * MIN_OPEN_SECONDS + 1)
    (queued,) = bench.run()
    assert (queued.delivery_id, queued.probe) == (oldest.delivery_id, True)
    assert {bench.entry(other) for other in others} == {f"HELD#ana#{ENDPOINT}"}
    assert bench.run() == []
    bench.clock.advance(PROBE_SECONDS)
    assert [each.delivery_id for each in bench.run()] == [others[0].delivery_id]


def test_probe_of_a_host(bench: Bench) -> None:
    """The probe of a host's circuit says so, and the release of its deliveries does not."""
    host, made = "host#example.com:443", [bench.delivery() for _ in range(2)]
    for each in made:
        bench.store.hold(each.delivery_id, owner="ana", destination=host, attempts=0, queued_at=each.queued_at)
    health = bench.circuits.get("ana", host)
    bench.circuits.record_outcomes(health, [AttemptOutcome(time.time(), False, ended=False)] * 5)
    bench.clock.advance(1.2 * MIN_OPEN_SECONDS + 1)
    (probe,) = bench.run()
    assert (probe.probe, probe.host_probe) == (True, True)
    bench.circuits.half_open(bench.circuits.get("ana", host))
    (released,) = bench.run()
    assert (released.probe, released.host_probe) == (False, False)


def test_probe_with_an_outdated_entry(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outdated index entry is skipped."""
    oldest, second = bench.held(), bench.held()
    bench.record(False, False, False)
    bench.clock.advance(1.2 * MIN_OPEN_SECONDS + 1)
    entries = bench.index.held("ana", ENDPOINT, limit=9)
    assert bench.store.mark_queued(entries[0])  # by another, and the index does not show it yet
    shown = lambda *destination, **options: [] if "until" in options else entries  # noqa: E731
    monkeypatch.setattr(DeliveryIndex, "held", shown)
    (queued,) = [each for each in bench.run() if each.probe]
    assert queued.delivery_id == second.delivery_id
    assert bench.entry(oldest).startswith("DUE#")


def test_nothing_held(bench: Bench) -> None:
    """An open circuit without held deliveries is half open, and queues those that are held later."""
    bench.record(False, False, False)
    bench.clock.advance(1.2 * MIN_OPEN_SECONDS + 1)
    assert bench.run() == []
    assert bench.health.state == "draining"
    late = bench.held()
    assert [queued.delivery_id for queued in bench.run()] == [late.delivery_id]


def test_draining(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draining circuit queues all held deliveries, and closes when no sender can hold another one."""
    monkeypatch.setattr(circuits, "PAGE", 10)
    held = {bench.held().delivery_id for _ in range(25)}
    bench.circuits.start_draining("ana", ENDPOINT)
    queued = bench.run()
    assert {each.delivery_id for each in queued} == held
    assert not any(each.probe for each in queued)
    assert bench.health.state == "draining"
    bench.clock.advance(301)
    late = bench.held()
    assert [each.delivery_id for each in bench.run()] == [late.delivery_id]
    assert bench.health.state == "closed"
    assert bench.run() == []


def test_held_for_too_long(bench: Bench) -> None:
    """A delivery held longer than its schedule could take is queued, so that the sender ends it."""
    old = bench.held()
    bench.clock.advance(SPAN - 60)
    bench.record(False, False, False)
    young = bench.held()
    bench.clock.advance(80)
    queued = {each.delivery_id: each.probe for each in bench.run()}
    assert queued == {old.delivery_id: False, young.delivery_id: True}


def test_one_circuit_that_fails(bench: Bench) -> None:
    """A circuit that cannot be checked delays no other circuit and no due delivery."""
    for owner in ("ana", "ben"):
        bench.circuits.start_draining(owner, ENDPOINT)
    due = bench.delivery()
    held = bench.delivery(owner="ben")
    bench.store.hold(held.delivery_id, owner="ben", destination=ENDPOINT, attempts=0, queued_at=held.queued_at)
    bench.clock.advance(QUEUE_RETRY_SECONDS + 1)
    bench.calls.fail("dynamodb", "Query", "InternalServerError", when=lambda call: "HELD#ana" in str(call.params))
    assert {each.delivery_id for each in bench.run()} == {due.delivery_id, held.delivery_id}


def test_circuits_leave_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Circuits take at most half of the time."""
    for number in range(5):
        bench.circuits.start_draining("ana", f"wh_{number}")
    due = bench.delivery()
    bench.clock.advance(QUEUE_RETRY_SECONDS + 1)
    checked: list[str] = []

    def slow(health: Health, until: float) -> None:
        checked.append(health.destination)
        bench.clock.advance(20)

    monkeypatch.setattr(circuits, "check_circuit", slow)
    assert [each.delivery_id for each in bench.run()] == [due.delivery_id]
    assert len(checked) == 2


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────────────────


def test_dead_letter_of_a_manual_attempt(bench: Bench) -> None:
    """A dead message of a manual attempt is logged as an attempt, and changes nothing else."""
    delivery = bench.delivery(status="failed")
    bench.send_dead_letter(Message.of(delivery, manual=True).body)
    bench.run()
    found = bench.now(delivery)
    assert (found.status, found.attempts, found.tries) == ("failed", 1, 0)
    assert found.last_attempt is not None
    assert found.last_attempt.trigger == "manual"


def test_out_of_date(bench: Bench) -> None:
    """A dead message whose attempt was made, or whose delivery has ended or does not exist, is deleted."""
    moved, over = bench.failed_once(60), bench.delivery(status="delivered")
    for message in (
        replace(Message.of(moved), attempts=0),
        Message.of(over),
        replace(Message.of(over), delivery_id="dlv_gone"),
    ):
        bench.send_dead_letter(message.body)
    assert bench.run() == []
    assert (bench.dead_letters(), bench.now(moved), bench.now(over)) == (0, moved, over)


def test_dead_letter_of_a_claimed_delivery(bench: Bench) -> None:
    """A dead message stays while its delivery is claimed. After the lease the attempt has failed."""
    delivery = bench.delivery()
    assert bench.store.claim(delivery.delivery_id, attempts=0)
    bench.send_dead_letter(Message.of(delivery).body)
    bench.run()
    assert (bench.now(delivery).attempts, bench.dead_letters()) == (0, 1)
    bench.clock.advance(LEASE_SECONDS + 1)
    bench.run()
    assert (bench.now(delivery).attempts, bench.dead_letters()) == (1, 0)


@pytest.mark.parametrize("body", ["", "text", "{}", "[]", json.dumps({"later": 1})])
def test_malformed_dead_letter(bench: Bench, body: str, logged: Logged) -> None:
    """A malformed message stays in the dead-letter queue, is logged once per run, and delays nothing."""
    delivery, due = bench.delivery(), bench.delivery()
    bench.clock.advance(QUEUE_RETRY_SECONDS + 1)
    bench.send_dead_letter(body or " ")
    bench.send_dead_letter(Message.of(delivery).body)
    queued = {each.delivery_id for each in bench.run()}
    assert due.delivery_id in queued
    assert (bench.now(delivery).attempts, bench.dead_letters()) == (1, 1)
    assert len([line for line in logged() if line["message"].startswith("failed, continuing")]) == 1


def test_dead_letter_fails_halfway(bench: Bench) -> None:
    """If the follow-up fails after the record, the delivery becomes due in the index."""
    delivery = bench.delivery()
    bench.send_dead_letter(Message.of(delivery).body)
    bench.calls.fail("sqs", "SendMessage", "InternalError")
    bench.run()
    assert (bench.now(delivery).attempts, bench.dead_letters()) == (1, 1)
    bench.clock.advance(QUEUE_RETRY_SECONDS + 10)
    assert [each.attempts for each in bench.run()] == [1]
    assert bench.dead_letters() == 0


def test_dead_letters_that_cannot_be_read(bench: Bench) -> None:
    """If the dead-letter queue cannot be read, due deliveries are still queued."""
    due = bench.delivery()
    bench.clock.advance(QUEUE_RETRY_SECONDS + 1)
    bench.calls.fail("sqs", "ReceiveMessage", "AccessDenied")
    assert [each.delivery_id for each in bench.run()] == [due.delivery_id]
