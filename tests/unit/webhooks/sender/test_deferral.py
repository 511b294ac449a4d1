from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.webhooks.deliveries import schedule
from core.webhooks.deliveries.health import SLOT_HORIZON_MS
from core.webhooks.deliveries.store import SAFETY_SECONDS, Delivery
from tests.unit.webhooks.sender.conftest import Bench, answered, message
from webhooks.sender.deferral import LATE_SECONDS, MAX_PATIENCE_SECONDS, patience

SPAN = schedule.span((0, 5, 30, 120))


def opened(bench: Bench, delivery: Delivery) -> None:
    bench.failing(delivery, times=3)
    assert bench.health(delivery).is_open


# ── gone or disabled ─────────────────────────────────────────────────────────────────────────────────────────


def test_deleted(bench: Bench) -> None:
    """What waits for an endpoint that is deleted ends as canceled, and says why."""
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint)
    bench.of.endpoints.delete("ana", endpoint.endpoint_id)
    assert bench.send(delivery) == []
    found = bench.now(delivery)
    assert (found.status, found.reason, found.attempts) == ("canceled", "deleted", 0)
    assert bench.receiver.requests == []


def test_deleted_and_asked_for(bench: Bench) -> None:
    """Nor can it be sent by hand: there is nothing to sign with. What had arrived stays so."""
    endpoint = bench.endpoint()
    arrived, waiting = bench.delivery(endpoint, status="delivered"), bench.delivery(endpoint)
    bench.of.endpoints.delete("ana", endpoint.endpoint_id)
    assert bench.send(message(arrived, manual=True), message(waiting, manual=True)) == []
    assert (bench.now(arrived).status, bench.now(waiting).status) == ("delivered", "canceled")
    assert bench.receiver.requests == []


def test_disabled(bench: Bench) -> None:
    """What waits for a disabled endpoint is discarded without an attempt, to be recovered some day."""
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint)
    bench.edit(endpoint, enabled=False)
    assert bench.send(delivery) == []
    found = bench.now(delivery)
    assert (found.status, found.reason, found.attempts) == ("discarded", "disabled", 0)
    assert bench.place(delivery) == f"UNSENT#ana#{endpoint.endpoint_id}#discarded"
    assert bench.receiver.requests == []


def test_disabled_and_asked_for(bench: Bench) -> None:
    """What somebody asks for by hand is sent to a disabled endpoint too."""
    delivery = bench.delivery(bench.endpoint(enabled=False))
    assert bench.send(message(delivery, manual=True)) == []
    assert bench.now(delivery).status == "delivered"


@pytest.mark.parametrize("deleted", [False, True])
def test_what_is_held_is_let_go(bench: Bench, deleted: bool) -> None:
    """What is held for the circuit of an endpoint that is off, or gone, has nothing to wait for."""
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint)
    opened(bench, delivery)
    if deleted:
        bench.of.endpoints.delete("ana", endpoint.endpoint_id)
    else:
        bench.edit(endpoint, enabled=False)
    bench.send(delivery)
    assert bench.health(delivery).state == "draining"


@pytest.mark.parametrize("status", ["canceled", "discarded"])
def test_a_follower_goes_on(bench: Bench, status: str) -> None:
    """What waits for one that ends without an attempt is queued."""
    endpoint = bench.endpoint(ordered=True)
    former = bench.delivery(endpoint)
    follower = bench.delivery(endpoint, follows=former.delivery_id)
    bench.of.deliveries.link(former.delivery_id, follower.delivery_id)
    if status == "canceled":
        bench.of.endpoints.delete("ana", endpoint.endpoint_id)
    else:
        bench.edit(endpoint, enabled=False)
    bench.queued()
    bench.send(former)
    assert [queued.delivery_id for queued, _ in bench.queued()] == [follower.delivery_id]
    assert bench.now(former).status == status


# ── circuits ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_held(bench: Bench) -> None:
    """While the circuit is open a delivery waits for it, spends no attempt, and nobody is called."""
    delivery = bench.delivery(bench.endpoint())
    opened(bench, delivery)
    assert bench.send(delivery) == []
    found = bench.now(delivery)
    assert (found.status, found.attempts, bench.place(found)) == ("pending", 0, f"HELD#ana#{found.destination}")
    assert bench.receiver.requests == []


def test_probe(bench: Bench) -> None:
    """A probe passes the open circuit, and its success ends it."""
    delivery = bench.delivery(bench.endpoint())
    opened(bench, delivery)
    bench.send(message(delivery, probe=True))
    assert bench.now(delivery).status == "delivered"
    assert bench.health(delivery).state == "draining"


def test_a_probe_that_fails(bench: Bench) -> None:
    """A probe that fails keeps the circuit open for longer, and costs its delivery an attempt."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    opened(bench, delivery)
    pause = bench.health(delivery).pause
    bench.send(message(delivery, probe=True))
    assert (bench.health(delivery).is_open, bench.health(delivery).pause) == (True, 2 * pause)
    assert bench.now(delivery).tries == 1


def test_by_hand_through_a_circuit(bench: Bench) -> None:
    """What somebody asks for by hand waits for no circuit."""
    delivery = bench.delivery(bench.endpoint())
    opened(bench, delivery)
    bench.send(message(delivery, manual=True))
    assert bench.now(delivery).status == "delivered"


@pytest.mark.parametrize(("age", "status"), [(SPAN - 1, "pending"), (SPAN + 1, "failed")])
def test_held_for_too_long(bench: Bench, age: float, status: str) -> None:
    """What has been held for longer than its attempts would have taken fails, and says why."""
    delivery = bench.delivery(bench.endpoint())
    opened(bench, delivery)
    bench.clock.advance(age)
    assert bench.send(delivery) == []
    found = bench.now(delivery)
    assert (found.status, found.attempts) == (status, 0)
    assert found.reason == ("circuit_open" if status == "failed" else None)
    assert bench.receiver.requests == []


def test_an_old_message_holds_nothing(bench: Bench) -> None:
    """A message for an attempt that has been made moves nothing."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    opened(bench, delivery)
    place = bench.place(delivery)
    assert bench.send(delivery) == []
    assert bench.place(delivery) == place


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_out_of_turn(bench: Bench) -> None:
    """A delivery whose predecessor is open waits, without spending an attempt, and is looked at again."""
    endpoint = bench.endpoint(ordered=True)
    former = bench.delivery(endpoint)
    follower = bench.delivery(endpoint, follows=former.delivery_id)
    assert bench.send(message(follower, follows=former.delivery_id)) == []
    assert bench.receiver.requests == []
    assert 0.8 * SAFETY_SECONDS - 1 <= bench.due(follower) <= 1.2 * SAFETY_SECONDS + 1
    bench.send(former)
    assert bench.send(message(follower, follows=former.delivery_id)) == []
    assert [request["headers"]["webhook-id"] for request in bench.receiver.requests] == [
        former.event_id,
        follower.event_id,
    ]


def test_after_one_that_is_forgotten(bench: Bench) -> None:
    """A predecessor that is not there any more holds up nobody."""
    delivery = bench.delivery(bench.endpoint(), follows="dlv_gone")
    bench.send(message(delivery, follows="dlv_gone"))
    assert bench.now(delivery).status == "delivered"


# ── rate limits ──────────────────────────────────────────────────────────────────────────────────────────────


def test_rate(bench: Bench) -> None:
    """However many come at once, no more are sent in a second than were asked for, and all are sent."""
    endpoint = bench.endpoint(rate_limit=2)
    waiting = [(bench.clock.time, message(bench.delivery(endpoint))) for _ in range(9)]
    bench.queued()
    moments = []
    while waiting:
        waiting.sort(key=lambda each: each[0])
        due, queued = waiting.pop(0)
        bench.clock.advance_to(due)
        before = len(bench.receiver.requests)
        bench.send(queued)
        moments += [bench.clock.time] * (len(bench.receiver.requests) - before)
        waiting += [(bench.clock.time + delay, later) for later, delay in bench.queued()]
    assert len(moments) == 9
    assert all(later - earlier >= 0.4 for earlier, later in pairwise(moments))


def test_a_slot_ahead(bench: Bench) -> None:
    """What has to wait longer is queued for its slot, and the index is told to wait for that."""
    endpoint = bench.endpoint(rate_limit=0.01)
    first, second = bench.delivery(endpoint), bench.delivery(endpoint)
    bench.send(first)
    bench.queued()
    bench.send(second)
    ((queued, delay),) = bench.queued()
    assert queued.slot is not None
    assert 98 <= delay <= 100
    assert bench.due(second) == pytest.approx(SAFETY_SECONDS + 100, abs=1)
    assert (bench.now(second).attempts, len(bench.receiver.requests)) == (0, 1)
    bench.clock.advance(delay)
    assert bench.send(queued) == []
    assert bench.now(second).status == "delivered"
    assert bench.clock.time >= queued.slot


def test_a_slot_that_was_missed(bench: Bench) -> None:
    """Those who missed their slots together are not sent together."""
    endpoint = bench.endpoint(rate_limit=0.1)
    deliveries = [bench.delivery(endpoint) for _ in range(4)]
    bench.queued()
    for delivery in deliveries:
        bench.send(delivery)
    late = [queued for queued, _ in bench.queued()]
    bench.clock.advance(500)
    for queued in late:
        bench.send(queued)
    assert len(bench.receiver.requests) == 2  # the very first, and the first of those that were late


def test_a_slot_just_missed(bench: Bench) -> None:
    """A message that comes a little late keeps its slot."""
    delivery = bench.delivery(bench.endpoint(rate_limit=0.1))
    bench.send(message(delivery, slot=bench.clock.time - LATE_SECONDS / 2))
    assert bench.now(delivery).status == "delivered"
    assert not [call for call in bench.calls.log if "slot" in str(call.params.get("UpdateExpression"))]


def test_no_slot(bench: Bench) -> None:
    """Where the slots are given out as far ahead as a queue can delay, a delivery comes back later."""
    endpoint = bench.endpoint(rate_limit=1 / (SLOT_HORIZON_MS / 1000 + 1))
    deliveries = [bench.delivery(endpoint) for _ in range(3)]
    bench.queued()
    bench.send(*deliveries[:1])
    bench.send(*deliveries[1:])
    assert len(bench.receiver.requests) == 1
    waiting = [delivery for delivery in deliveries if bench.now(delivery).is_open]
    assert len(waiting) == 2
    assert all(bench.due(delivery) >= 0.8 * SAFETY_SECONDS - 1 for delivery in waiting)


def test_by_hand_beside_the_rate(bench: Bench) -> None:
    """What somebody asks for by hand waits for no slot."""
    endpoint = bench.endpoint(rate_limit=0.01)
    bench.send(bench.delivery(endpoint))
    by_hand = bench.delivery(endpoint)
    bench.send(message(by_hand, manual=True))
    assert bench.now(by_hand).status == "delivered"


def test_what_has_moved_on_is_not_queued(bench: Bench) -> None:
    """A message for an attempt that was made is not queued for a slot."""
    endpoint = bench.endpoint(rate_limit=0.01)
    first, second = bench.delivery(endpoint), bench.delivery(endpoint)
    bench.send(first)
    bench.send(message(second, manual=True))
    bench.queued()
    assert bench.send(second) == []
    assert bench.queued() == []
    assert bench.now(second).attempts == 1


@given(st.floats(0, 10**7))
def test_patience(age: float) -> None:
    """What has waited long is looked at more rarely, within bounds."""
    assert 0.8 * SAFETY_SECONDS <= patience(age) <= 1.2 * MAX_PATIENCE_SECONDS
    if SAFETY_SECONDS <= age <= MAX_PATIENCE_SECONDS:
        assert 0.8 * age <= patience(age) <= 1.2 * age


def test_a_probe_keeps_being_one(bench: Bench) -> None:
    """A probe that has to wait for its slot is a probe still."""
    endpoint = bench.endpoint(rate_limit=0.01)
    first, second = bench.delivery(endpoint), bench.delivery(endpoint)
    bench.send(first)
    opened(bench, second)
    bench.queued()
    bench.send(message(second, probe=True))
    ((queued, delay),) = bench.queued()
    assert replace(queued, slot=None) == message(second, probe=True)
    bench.clock.advance(delay)
    bench.send(queued)
    assert bench.now(second).status == "delivered"
