from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from core import ids
from core.webhooks.deliveries.health import FIRST_PAUSE_SECONDS, PROBE_SECONDS, AttemptOutcome, Health, HealthStore
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.store import (
    DUE_SHARDS,
    LEASE_SECONDS,
    SAFETY_SECONDS,
    Delivery,
    DeliveryStore,
    draft,
)
from kinds.document.kind import DOCUMENT
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.core.webhooks.rows import failure
from tests.unit.examples import DAY, job
from webhooks.retry_scheduler import handler as module
from webhooks.retry_scheduler.handler import dependencies, handler

ENDPOINT = "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C"
SPAN = 310  # of the schedule that the tests' environment has
Logged = Callable[[], list[dict[str, Any]]]


class Bench:
    def __init__(self, clock: Clock, calls: Calls) -> None:
        self.clock, self.calls = clock, calls

    @property
    def store(self) -> DeliveryStore:
        return dependencies.deliveries

    @property
    def circuits(self) -> HealthStore:
        return dependencies.health

    def delivery(self, **facts: Any) -> Delivery:
        defaults: dict[str, Any] = {
            "event": "document.indexed",
            "owner": "ana",
            "format": "recado",
            "body": "{}",
            "job_id": None,
        }
        made = draft(
            event_id=ids.new("evt"),
            endpoint_id=facts.pop("endpoint_id", ENDPOINT),
            now=time.time(),
            retention_seconds=30 * DAY,
            **defaults,
        )
        return self.store.create(replace(made, **facts))

    def failed_once(self, wait: int) -> Delivery:
        """A delivery whose next attempt is due after this time."""
        claim = self.store.claim(self.delivery().delivery_id, attempts=0)
        assert claim is not None
        done = self.store.record(claim, failure(1), wait=wait)
        assert done is not None
        return done

    def held(self) -> Delivery:
        """A delivery that waits for the circuit."""
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

    def place(self, delivery: Delivery) -> str:
        key = {"pk": f"DELIVERY#{delivery.delivery_id}", "sk": "META"}
        item = self.store._client.get_item(TableName="deliveries", Key=key)["Item"]
        return str(item.get("gsi2pk"))

    def settle(self, *succeeded: bool, probe: bool = False) -> Health:
        outcomes = [AttemptOutcome(time.time(), each, ended=False, probe=probe) for each in succeeded]
        return self.circuits.settle(self.health, outcomes)

    @property
    def health(self) -> Health:
        return self.circuits.get("ana", ENDPOINT)

    def run(self) -> list[Message]:
        """One run; what it has queued."""
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

    def drain(self, body: str) -> None:
        dependencies.sqs.send_message(QueueUrl=dependencies.settings.webhooks_dlq_url, MessageBody=body)

    def dead_letters(self) -> int:
        """How many are left, those in somebody's hands among them."""
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
    """A run with nothing to do does nothing, and says nothing."""
    assert bench.run() == []
    assert logged() == []


def test_a_far_attempt(bench: Bench) -> None:
    """An attempt that was farther ahead than a queue can delay is queued when it is due, once."""
    delivery = bench.failed_once(5000)
    bench.clock.advance(4998)
    assert bench.run() == []
    bench.clock.advance(3)
    (queued,) = bench.run()
    assert (queued.delivery_id, queued.attempts) == (delivery.delivery_id, 1)
    assert bench.run() == []


def test_what_was_never_queued(bench: Bench) -> None:
    """What was written and never queued is queued when the queue should long have handed it out."""
    delivery = bench.delivery()
    bench.clock.advance(SAFETY_SECONDS - 1)
    assert bench.run() == []
    bench.clock.advance(2)
    assert [queued.delivery_id for queued in bench.run()] == [delivery.delivery_id]


def test_order_is_kept(bench: Bench) -> None:
    """What is woken still knows whom it follows."""
    bench.delivery(follows="dlv_former")
    bench.clock.advance(SAFETY_SECONDS + 1)
    assert [queued.follows for queued in bench.run()] == ["dlv_former"]


def test_what_has_ended(bench: Bench) -> None:
    """What has ended, or is not due, is left alone."""
    bench.delivery(status="failed")
    bench.failed_once(5000)
    bench.clock.advance(SAFETY_SECONDS + 1)
    assert bench.run() == []


def test_all_shards(bench: Bench) -> None:
    """Whatever is due is found, in whatever shard it stands, and more than a page too."""
    made = {bench.delivery().delivery_id for _ in range(130)}
    assert len({bench.place(replace(bench.delivery(), delivery_id=each)) for each in made}) == DUE_SHARDS
    bench.clock.advance(SAFETY_SECONDS + 10)
    queued = bench.run()
    assert made <= {each.delivery_id for each in queued}
    assert len(queued) == len({each.delivery_id for each in queued})


def test_a_shard_that_fails(bench: Bench) -> None:
    """Where one shard cannot be read, the others are, and it is read next time."""
    made = [bench.delivery() for _ in range(60)]
    bench.clock.advance(SAFETY_SECONDS + 1)
    due = bench.store.row(made[0])["gsi2pk"]
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
    """What could not be queued is queued at the next safety time: none is lost."""
    delivery = bench.delivery()
    bench.clock.advance(SAFETY_SECONDS + 1)
    bench.calls.fail("sqs", "SendMessageBatch", "InternalError")
    bench.run()
    bench.clock.advance(SAFETY_SECONDS + 1)
    assert [queued.delivery_id for queued in bench.run()] == [delivery.delivery_id]


def test_time_is_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is up each shard has had a page at least, and the rest is for the next run."""
    monkeypatch.setattr(module, "PAGE", 1)
    monkeypatch.setattr(module, "SECONDS", -1)
    made = {bench.delivery().delivery_id for _ in range(64)}
    bench.clock.advance(SAFETY_SECONDS + 1)
    first = {queued.delivery_id for queued in bench.run()}
    assert 0 < len(first) <= DUE_SHARDS
    while later := bench.run():
        first |= {queued.delivery_id for queued in later}
    assert first == made


def test_no_shard_is_always_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the shards changes from run to run, so that none waits for the others for ever."""
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
    """An open circuit gets one probe: the oldest that is held. The others stay, and no second one follows."""
    oldest, *others = [bench.held() for _ in range(3)]
    bench.settle(False, False, False)
    assert bench.run() == []
    bench.clock.advance(1.2 * FIRST_PAUSE_SECONDS + 1)
    (queued,) = bench.run()
    assert (queued.delivery_id, queued.probe) == (oldest.delivery_id, True)
    assert {bench.place(other) for other in others} == {f"HELD#ana#{ENDPOINT}"}
    assert bench.run() == []
    bench.clock.advance(PROBE_SECONDS)
    assert [each.delivery_id for each in bench.run()] == [others[0].delivery_id]


def test_a_probe_of_what_can_be_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of the index that is out of date is passed over."""
    oldest, second = bench.held(), bench.held()
    bench.settle(False, False, False)
    bench.clock.advance(1.2 * FIRST_PAUSE_SECONDS + 1)
    entries = bench.store.held("ana", ENDPOINT, limit=9)
    assert bench.store.wake(entries[0])  # by another, and the index does not show it yet
    shown = lambda *destination, **options: [] if "until" in options else entries  # noqa: E731
    monkeypatch.setattr(bench.store.__class__, "held", shown)
    (queued,) = [each for each in bench.run() if each.probe]
    assert queued.delivery_id == second.delivery_id
    assert bench.place(oldest).startswith("DUE#")


def test_nothing_held(bench: Bench) -> None:
    """An open circuit that holds nothing lets the next ones through, and lets go of what is held later."""
    bench.settle(False, False, False)
    bench.clock.advance(1.2 * FIRST_PAUSE_SECONDS + 1)
    assert bench.run() == []
    assert bench.health.state == "draining"
    late = bench.held()
    assert [queued.delivery_id for queued in bench.run()] == [late.delivery_id]


def test_letting_go(bench: Bench) -> None:
    """A circuit that drains lets go of all that it held, however much, and closes when nothing more can come."""
    held = {bench.held().delivery_id for _ in range(130)}
    bench.circuits.drain("ana", ENDPOINT)
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
    """What has been held for longer than its attempts would have taken goes to the sender, which ends it."""
    old = bench.held()
    bench.clock.advance(SPAN - 60)
    bench.settle(False, False, False)
    young = bench.held()
    bench.clock.advance(80)
    queued = {each.delivery_id: each.probe for each in bench.run()}
    assert queued == {old.delivery_id: False, young.delivery_id: True}


def test_one_circuit_that_fails(bench: Bench) -> None:
    """One circuit that cannot be looked at keeps neither the others waiting nor what is due."""
    for owner in ("ana", "ben"):
        bench.circuits.drain(owner, ENDPOINT)
    due = bench.delivery()
    held = bench.delivery(owner="ben")
    bench.store.hold(held.delivery_id, owner="ben", destination=ENDPOINT, attempts=0, queued_at=held.queued_at)
    bench.clock.advance(SAFETY_SECONDS + 1)
    bench.calls.fail("dynamodb", "Query", "InternalServerError", when=lambda call: "HELD#ana" in str(call.params))
    assert {each.delivery_id for each in bench.run()} == {due.delivery_id, held.delivery_id}


def test_circuits_leave_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many circuits there are, half of the time is left for what is due."""
    for number in range(5):
        bench.circuits.drain("ana", f"wh_{number}")
    due = bench.delivery()
    bench.clock.advance(SAFETY_SECONDS + 1)
    looked: list[str] = []

    def slow(health: Health, until: float) -> None:
        looked.append(health.destination)
        bench.clock.advance(20)

    monkeypatch.setattr(module, "look_at", slow)
    assert [each.delivery_id for each in bench.run()] == [due.delivery_id]
    assert len(looked) == 2


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────────────────


def test_dead_letter(bench: Bench) -> None:
    """A sender that failed each time counts as one failed attempt: the schedule goes on."""
    delivery = bench.delivery()
    bench.drain(Message.of(delivery).body)
    (queued,) = bench.run()
    found = bench.now(delivery)
    assert (found.status, found.attempts, found.tries, found.lease_until) == ("pending", 1, 1, 0)
    assert queued.attempts == 1
    assert 3 <= found.due - time.time() <= 7
    attempt = found.last_attempt
    assert attempt is not None
    assert (attempt.error, attempt.trigger) == ("internal", "automatic")
    assert bench.dead_letters() == 0


def test_the_last_dead_letter(bench: Bench) -> None:
    """The last attempt that fails on our side ends the delivery, lets its follower go, and tells the job."""
    jobs = dependencies.after_attempt._jobs
    subject = jobs.submit(DOCUMENT, job(at=time.time(), webhook_url="https://example.com")).job
    follower = bench.delivery()
    last = bench.delivery(
        tries=3,
        endpoint_id="default",
        url="https://example.com",
        job_id=subject.job_id,
        job_expires_at=subject.expires_at,
        followed_by=follower.delivery_id,
    )
    bench.drain(Message.of(last).body)
    assert [each.delivery_id for each in bench.run()] == [follower.delivery_id]
    assert bench.now(last).status == "failed"
    shown = jobs.snapshot(subject.job_id, owner="ana").webhook
    assert shown is not None
    assert (shown["status"], shown["last_attempt"]["error"]) == ("failed", "internal")


def test_a_dead_letter_of_what_was_asked_for(bench: Bench) -> None:
    """An attempt by hand that failed on our side is in the log, and changes nothing else."""
    delivery = bench.delivery(status="failed")
    bench.drain(Message.of(delivery, manual=True).body)
    bench.run()
    found = bench.now(delivery)
    assert (found.status, found.attempts, found.tries) == ("failed", 1, 0)
    assert found.last_attempt is not None
    assert found.last_attempt.trigger == "manual"


def test_a_dead_test(bench: Bench) -> None:
    """A test whose one attempt failed on our side has failed."""
    delivery = bench.delivery(single=True)
    bench.drain(Message.of(delivery, manual=True).body)
    assert bench.run() == []
    assert bench.now(delivery).status == "failed"


def test_out_of_date(bench: Bench) -> None:
    """A dead message whose attempt was made after all, or whose delivery is over or gone, is done."""
    moved, over = bench.failed_once(60), bench.delivery(status="delivered")
    for message in (
        replace(Message.of(moved), attempts=0),
        Message.of(over),
        replace(Message.of(over), delivery_id="dlv_gone"),
    ):
        bench.drain(message.body)
    assert bench.run() == []
    assert (bench.dead_letters(), bench.now(moved), bench.now(over)) == (0, moved, over)


def test_in_hand(bench: Bench) -> None:
    """While a sender may be at it, the dead message stays; once its lease is over, the attempt has failed."""
    delivery = bench.delivery()
    assert bench.store.claim(delivery.delivery_id, attempts=0)
    bench.drain(Message.of(delivery).body)
    bench.run()
    assert (bench.now(delivery).attempts, bench.dead_letters()) == (0, 1)
    bench.clock.advance(LEASE_SECONDS + 1)
    bench.run()
    assert (bench.now(delivery).attempts, bench.dead_letters()) == (1, 0)


@pytest.mark.parametrize("poison", ["", "text", "{}", "[]", json.dumps({"later": 1})])
def test_poison(bench: Bench, poison: str, logged: Logged) -> None:
    """What is no message stays for an operator, is looked at once in a run, and keeps no other from its due."""
    delivery, due = bench.delivery(), bench.delivery()
    bench.clock.advance(SAFETY_SECONDS + 1)
    bench.drain(poison or " ")
    bench.drain(Message.of(delivery).body)
    queued = {each.delivery_id for each in bench.run()}
    assert due.delivery_id in queued
    assert (bench.now(delivery).attempts, bench.dead_letters()) == (1, 1)
    assert len([line for line in logged() if line["message"] == "carrying on"]) == 1


def test_many_dead_letters(bench: Bench) -> None:
    """More than SQS hands out at once are worked off in one run."""
    made = [bench.delivery() for _ in range(25)]
    for delivery in made:
        bench.drain(Message.of(delivery).body)
    bench.run()
    assert {bench.now(delivery).attempts for delivery in made} == {1}
    assert bench.dead_letters() == 0


def test_a_dead_letter_that_was_half_done(bench: Bench) -> None:
    """Where the waker dies after writing the attempt, the message goes, and the index wakes the delivery."""
    delivery = bench.delivery()
    bench.drain(Message.of(delivery).body)
    bench.calls.fail("sqs", "SendMessage", "InternalError")
    bench.run()
    assert (bench.now(delivery).attempts, bench.dead_letters()) == (1, 1)
    bench.clock.advance(SAFETY_SECONDS + 10)
    assert [each.attempts for each in bench.run()] == [1]
    assert bench.dead_letters() == 0


def test_dead_letters_that_cannot_be_read(bench: Bench) -> None:
    """Where the dead letters cannot be read, what is due is queued all the same."""
    due = bench.delivery()
    bench.clock.advance(SAFETY_SECONDS + 1)
    bench.calls.fail("sqs", "ReceiveMessage", "AccessDenied")
    assert [each.delivery_id for each in bench.run()] == [due.delivery_id]
