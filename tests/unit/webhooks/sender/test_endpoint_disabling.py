from __future__ import annotations

import pytest

from core.webhooks.deliveries.health import AttemptOutcome
from tests.unit.webhooks.sender.conftest import URL, Bench, answered, message
from webhooks.sender import endpoint_disabling
from webhooks.sender.destinations import Destination


@pytest.mark.parametrize("manual", [False, True])
def test_gone(bench: Bench, manual: bool) -> None:
    """An endpoint that says it is gone is disabled at once, and its owner is told why and by which delivery."""
    bench.receiver.answer = answered(410)
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint)
    assert bench.send(message(delivery, manual=manual)) == []
    found = bench.again(endpoint)
    assert (found.enabled, found.disabled_reason) == (False, "gone")
    assert bench.now(delivery).status == ("pending" if manual else "failed")
    (event,) = bench.events()
    assert (event["event"], event["endpoint_id"], event["reason"]) == (
        "endpoint.disabled",
        endpoint.endpoint_id,
        "gone",
    )
    assert (event["url"], event["delivery_id"]) == (URL, delivery.delivery_id)


def test_gone_for_many(bench: Bench) -> None:
    """However many hear at once that it is gone, it is disabled once, and one event tells of it."""
    bench.receiver.answer = answered(410)
    endpoint = bench.endpoint()
    deliveries = [bench.delivery(endpoint) for _ in range(9)]
    assert bench.send(*deliveries) == []
    assert len(bench.events()) == 1
    assert bench.again(endpoint).version == 2
    assert {bench.now(delivery).status for delivery in deliveries} == {"failed"}


def test_gone_for_a_job(bench: Bench) -> None:
    """A job's URL that is gone ends that delivery, and leaves the owner's default endpoint alone."""
    bench.receiver.answer = answered(410)
    _, delivery = bench.of_job()
    bench.send(delivery)
    assert bench.now(delivery).status == "failed"
    assert bench.of.endpoints.get("ana", "default").enabled
    assert bench.events() == []


def test_gone_but_edited(bench: Bench) -> None:
    """An endpoint that was edited while it was called is not disabled for what it was before."""
    bench.receiver.answer = answered(410)
    endpoint = bench.endpoint()
    bench.receiver.meanwhile = lambda: bench.edit(endpoint, url=URL + "2")
    bench.send(bench.delivery(endpoint))
    assert bench.again(endpoint).enabled
    assert bench.events() == []


@pytest.mark.parametrize(("hours", "disabled"), [(119.9, False), (120, True), (300, True)])
def test_failing_for_long(bench: Bench, hours: float, disabled: bool) -> None:
    """An endpoint is disabled when a delivery is exhausted and none has arrived for five days."""
    bench.receiver.answer = answered(500)
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint, tries=3)
    bench.failing(delivery, hours=hours)
    bench.send(delivery)
    assert bench.now(delivery).status == "failed"
    assert bench.again(endpoint).enabled is not disabled
    assert [event["reason"] for event in bench.events()] == ["failing"] * disabled


def test_failing_but_not_exhausted(bench: Bench) -> None:
    """Only a delivery that is exhausted is a reason."""
    bench.receiver.answer = answered(500)
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint, tries=2)
    bench.failing(delivery, hours=300)
    bench.send(delivery)
    assert bench.again(endpoint).enabled


def test_a_success_between(bench: Bench) -> None:
    """One that arrived since makes the five days begin anew."""
    bench.receiver.answer = answered(500)
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint, tries=3)
    bench.failing(delivery, hours=300)
    bench.of.health.settle(bench.health(delivery), [AttemptOutcome(bench.clock.time - 3600, True, ended=True)])
    bench.failing(delivery, hours=0.5)
    bench.send(delivery)
    assert bench.again(endpoint).enabled


def test_a_success_in_the_same_batch(bench: Bench) -> None:
    """One that arrived in the same batch counts, though the destination's health does not know of it yet."""
    endpoint = bench.endpoint()
    arrives, exhausted = bench.delivery(endpoint), bench.delivery(endpoint, tries=3)
    bench.failing(exhausted, hours=300)
    bench.send(message(arrives))
    bench.failing(exhausted, hours=300)

    destination = Destination(endpoint, bench.health(exhausted))
    found = bench.now(exhausted)
    assert endpoint_disabling.failing_for_too_long(found, destination)
    destination.outcomes.append(AttemptOutcome(bench.clock.time, True, ended=True))
    assert not endpoint_disabling.failing_for_too_long(found, destination)


def test_failing_while_held(bench: Bench) -> None:
    """What is given up because its circuit never closed is a reason too."""
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint)
    bench.failing(delivery, hours=300, times=3)
    assert bench.health(delivery).is_open
    bench.clock.advance(1000)
    bench.send(delivery)
    assert (bench.now(delivery).reason, bench.again(endpoint).disabled_reason) == ("circuit_open", "failing")
    assert bench.receiver.requests == []


def test_disabled_lets_go(bench: Bench) -> None:
    """What is held for an endpoint that is disabled is looked at again, and its failures are forgotten."""
    bench.receiver.answer = answered(410)
    delivery = bench.delivery(bench.endpoint())
    bench.failing(delivery, hours=300, times=3)
    bench.send(message(delivery, probe=True))
    health = bench.health(delivery)
    assert health.state in ("draining", "open")
    assert health.look_at is not None


def test_a_test_that_fails(bench: Bench) -> None:
    """A test that fails has had its one attempt."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint(), event="ping", single=True)
    bench.queued()
    bench.send(message(delivery, manual=True))
    assert bench.now(delivery).status == "failed"
    assert bench.queued() == []
