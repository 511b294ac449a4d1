from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.webhooks.deliveries import schedule
from core.webhooks.deliveries.model import Delivery
from core.webhooks.deliveries.rate_limit import HORIZON_MS
from core.webhooks.deliveries.rows import QUEUE_RETRY_SECONDS
from tests.unit.webhooks.sender.conftest import Bench, answered, message
from webhooks.sender.deferral import MAX_RECHECK_SECONDS, QUEUE_LATENCY_SECONDS, recheck_seconds

SPAN = schedule.span((0, 5, 30, 120))


def opened(bench: Bench, delivery: Delivery) -> None:
    bench.failing(delivery, times=3)
    assert bench.health(delivery).is_open


# ── deleted or disabled ────────────────────────────────────────────────────────────────────────────────────────


def test_manual_attempt_for_a_deleted_endpoint(bench: Bench) -> None:
    """They cannot be sent manually, as there is no secret. Delivered ones stay delivered."""
    endpoint = bench.endpoint()
    arrived, waiting = bench.delivery(endpoint, status="delivered"), bench.delivery(endpoint)
    bench.of.endpoints.delete("ana", endpoint.endpoint_id)
    assert bench.send(message(arrived, manual=True), message(waiting, manual=True)) == []
    assert (bench.now(arrived).status, bench.now(waiting).status) == ("delivered", "canceled")
    assert bench.receiver.requests == []


@pytest.mark.parametrize("deleted", [False, True])
def test_held_deliveries_of_a_disabled_endpoint(bench: Bench, deleted: bool) -> None:
    """The open circuit of a disabled or deleted endpoint is drained."""
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
def test_follower_is_queued(bench: Bench, status: str) -> None:
    """The follower of a delivery that ends without an attempt is queued."""
    endpoint = bench.endpoint(ordered=True)
    predecessor = bench.delivery(endpoint)
    follower = bench.delivery(endpoint, follows=predecessor.delivery_id)
    bench.of.deliveries.link(predecessor.delivery_id, follower.delivery_id)
    if status == "canceled":
        bench.of.endpoints.delete("ana", endpoint.endpoint_id)
    else:
        bench.edit(endpoint, enabled=False)
    bench.queued()
    bench.send(predecessor)
    assert [queued.delivery_id for queued, _ in bench.queued()] == [follower.delivery_id]
    assert bench.now(predecessor).status == status


# ── circuits ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_probe_that_fails(bench: Bench) -> None:
    """A failed probe doubles the open time, and uses an attempt."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    opened(bench, delivery)
    open_seconds = bench.health(delivery).open_seconds
    bench.send(message(delivery, probe=True))
    assert (bench.health(delivery).is_open, bench.health(delivery).open_seconds) == (True, 2 * open_seconds)
    assert bench.now(delivery).tries == 1


@pytest.mark.parametrize(("age", "status"), [(SPAN - 1, "pending"), (SPAN + 1, "failed")])
def test_held_for_too_long(bench: Bench, age: float, status: str) -> None:
    """A delivery that is held longer than its schedule could take fails with a reason."""
    delivery = bench.delivery(bench.endpoint())
    opened(bench, delivery)
    bench.clock.advance(age)
    assert bench.send(delivery) == []
    found = bench.now(delivery)
    assert (found.status, found.attempts) == (status, 0)
    assert found.reason == ("circuit_open" if status == "failed" else None)
    assert bench.receiver.requests == []


def test_outdated_message_holds_nothing(bench: Bench) -> None:
    """A message for an attempt that was made does not hold the delivery."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    opened(bench, delivery)
    entry = bench.entry(delivery)
    assert bench.send(delivery) == []
    assert bench.entry(delivery) == entry


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_out_of_turn(bench: Bench) -> None:
    """A delivery whose predecessor is open is postponed without an attempt."""
    endpoint = bench.endpoint(ordered=True)
    predecessor = bench.delivery(endpoint)
    follower = bench.delivery(endpoint, follows=predecessor.delivery_id)
    assert bench.send(message(follower, follows=predecessor.delivery_id)) == []
    assert bench.receiver.requests == []
    assert 0.8 * QUEUE_RETRY_SECONDS - 1 <= bench.due(follower) <= 1.2 * QUEUE_RETRY_SECONDS + 1
    bench.send(predecessor)
    assert bench.send(message(follower, follows=predecessor.delivery_id)) == []
    assert [request["headers"]["webhook-id"] for request in bench.receiver.requests] == [
        predecessor.event_id,
        follower.event_id,
    ]


def test_predecessor_does_not_exist(bench: Bench) -> None:
    """A delivery does not wait for a predecessor that does not exist."""
    delivery = bench.delivery(bench.endpoint(), follows="dlv_gone")
    bench.send(message(delivery, follows="dlv_gone"))
    assert bench.now(delivery).status == "delivered"


# ── rate limits ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_slot_ahead(bench: Bench) -> None:
    """A delivery with a later slot is queued for it, and due in the index after it."""
    endpoint = bench.endpoint(rate_limit=0.01)
    first, second = bench.delivery(endpoint), bench.delivery(endpoint)
    bench.send(first)
    bench.queued()
    bench.send(second)
    ((queued, delay),) = bench.queued()
    assert queued.slot is not None
    assert 98 <= delay <= 100
    assert bench.due(second) == pytest.approx(QUEUE_RETRY_SECONDS + 100, abs=1)
    assert (bench.now(second).attempts, len(bench.receiver.requests)) == (0, 1)
    bench.clock.advance(delay)
    assert bench.send(queued) == []
    assert bench.now(second).status == "delivered"
    assert bench.clock.time >= queued.slot


def test_a_slot_that_was_missed(bench: Bench) -> None:
    """Deliveries that missed their slots get new ones."""
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
    """A message that is slightly late keeps its slot."""
    delivery = bench.delivery(bench.endpoint(rate_limit=0.1))
    bench.send(message(delivery, slot=bench.clock.time - QUEUE_LATENCY_SECONDS / 2))
    assert bench.now(delivery).status == "delivered"
    assert not [call for call in bench.calls.log if "slot" in str(call.params.get("UpdateExpression"))]


def test_no_slot(bench: Bench) -> None:
    """If no slot is within the delay of a queue, the delivery is postponed."""
    endpoint = bench.endpoint(rate_limit=1 / (HORIZON_MS / 1000 + 1))
    deliveries = [bench.delivery(endpoint) for _ in range(3)]
    bench.queued()
    bench.send(*deliveries[:1])
    bench.send(*deliveries[1:])
    assert len(bench.receiver.requests) == 1
    waiting = [delivery for delivery in deliveries if bench.now(delivery).is_open]
    assert len(waiting) == 2
    assert all(bench.due(delivery) >= 0.8 * QUEUE_RETRY_SECONDS - 1 for delivery in waiting)


def test_outdated_message_is_not_queued(bench: Bench) -> None:
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
def test_recheck_seconds(age: float) -> None:
    """The longer a delivery has waited, the later it is checked, within limits."""
    assert 0.8 * QUEUE_RETRY_SECONDS <= recheck_seconds(age) <= 1.2 * MAX_RECHECK_SECONDS
    if QUEUE_RETRY_SECONDS <= age <= MAX_RECHECK_SECONDS:
        assert 0.8 * age <= recheck_seconds(age) <= 1.2 * age


def test_probe_that_waits_for_its_slot(bench: Bench) -> None:
    """A probe that waits for its slot is still a probe."""
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
