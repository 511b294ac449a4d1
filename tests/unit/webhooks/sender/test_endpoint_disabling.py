from __future__ import annotations

import pytest

from core.webhooks.deliveries.health import AttemptOutcome
from tests.unit.webhooks.sender.conftest import URL, Bench, answered, message
from webhooks.sender import endpoint_disabling
from webhooks.sender.destinations import Destination, Host


@pytest.mark.parametrize("manual", [False, True])
def test_gone(bench: Bench, manual: bool) -> None:
    """A 410 disables the endpoint at once, with an event that has the reason and the delivery."""
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
    assert event["delivery_id"] == delivery.delivery_id


def test_gone_for_a_job(bench: Bench) -> None:
    """A 410 of a job's own URL ends the delivery, and does not disable the default endpoint."""
    bench.receiver.answer = answered(410)
    _, delivery = bench.of_job()
    bench.send(delivery)
    assert bench.now(delivery).status == "failed"
    assert bench.of.endpoints.get("ana", "default").enabled
    assert bench.events() == []


def test_gone_but_edited(bench: Bench) -> None:
    """An endpoint that was changed during the attempt is not disabled."""
    bench.receiver.answer = answered(410)
    endpoint = bench.endpoint()
    bench.receiver.meanwhile = lambda: bench.edit(endpoint, url=URL + "2")
    bench.send(bench.delivery(endpoint))
    assert bench.again(endpoint).enabled
    assert bench.events() == []


@pytest.mark.parametrize(("hours", "disabled"), [(119.9, False), (120, True), (300, True)])
def test_failing_for_long(bench: Bench, hours: float, disabled: bool) -> None:
    """An endpoint is disabled when a delivery fails for good after five days without a success."""
    bench.receiver.answer = answered(500)
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint, tries=3)
    bench.failing(delivery, hours=hours)
    bench.send(delivery)
    assert bench.now(delivery).status == "failed"
    assert bench.again(endpoint).enabled is not disabled
    assert [event["reason"] for event in bench.events()] == ["failing"] * disabled


def test_failing_but_not_exhausted(bench: Bench) -> None:
    """A delivery with attempts left does not disable its endpoint."""
    bench.receiver.answer = answered(500)
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint, tries=2)
    bench.failing(delivery, hours=300)
    bench.send(delivery)
    assert bench.again(endpoint).enabled


def test_a_success_in_the_same_batch(bench: Bench) -> None:
    """A success in the same batch counts, though it is not in the health yet."""
    endpoint = bench.endpoint()
    arrives, exhausted = bench.delivery(endpoint), bench.delivery(endpoint, tries=3)
    bench.failing(exhausted, hours=300)
    bench.send(message(arrives))
    bench.failing(exhausted, hours=300)

    destination = Destination(endpoint, bench.health(exhausted), Host.of(bench.host()))
    found = bench.now(exhausted)
    assert endpoint_disabling.failing_for_too_long(found, destination)
    destination.outcomes.append(AttemptOutcome(bench.clock.time, True, ended=True))
    assert not endpoint_disabling.failing_for_too_long(found, destination)


def test_failing_while_held(bench: Bench) -> None:
    """A delivery that fails because its circuit stayed open disables its endpoint, too."""
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint)
    bench.failing(delivery, hours=300, times=3)
    assert bench.health(delivery).is_open
    bench.clock.advance(1000)
    bench.send(delivery)
    assert (bench.now(delivery).reason, bench.again(endpoint).disabled_reason) == ("circuit_open", "failing")
    assert bench.receiver.requests == []


def test_disabling_drains_the_circuit(bench: Bench) -> None:
    """The circuit of a disabled endpoint is drained, so that its held deliveries are queued."""
    bench.receiver.answer = answered(410)
    delivery = bench.delivery(bench.endpoint())
    bench.failing(delivery, times=3)
    bench.send(message(delivery, manual=True))
    assert bench.health(delivery).state == "draining"
