from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DeliveryError
from core.events import timestamp
from core.webhooks.deliveries import schedule
from core.webhooks.deliveries.health import AttemptOutcome
from core.webhooks.deliveries.model import Delivery
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.rate_limit import HORIZON_MS
from core.webhooks.deliveries.rows import QUEUE_RETRY_SECONDS
from core.webhooks.transport import client
from core.webhooks.transport.lookups import LookupsBusy
from tests.unit.webhooks.sender.conftest import Bench, answered, message
from webhooks.sender.batch import BATCH
from webhooks.sender.deferral import (
    MAX_PUT_BACK_SECONDS,
    MAX_RECHECK_SECONDS,
    QUEUE_LATENCY_SECONDS,
    put_back,
    recheck_seconds,
)
from webhooks.sender.destinations import read_destinations
from webhooks.sender.in_flight import NEW_HOST_ATTEMPTS

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


# ── the circuit of the host ──────────────────────────────────────────────────────────────────────────────────

DOWN = "https://down.example.com/"
HELD_BY_HOST = "HELD#ana#host#down.example.com:443"


def down(bench: Bench) -> None:
    """Open the circuit of the host in DOWN."""
    outcomes = [AttemptOutcome(bench.clock.time, False, ended=False)] * 3
    assert bench.of.health.record_outcomes(bench.host(DOWN), outcomes).is_open


def test_held_by_the_host(bench: Bench) -> None:
    """Deliveries of any URL of the host are held, without an attempt, and others are not."""
    down(bench)
    of_endpoint = bench.delivery(bench.endpoint(url=DOWN + "a"))
    _, of_job = bench.of_job(url=DOWN + "b?order=1")
    other = bench.delivery(bench.endpoint(url="https://down.example.com:8443/"))
    assert bench.send(of_endpoint, of_job, other) == []
    assert [bench.entry(each) for each in (of_endpoint, of_job, other)] == [HELD_BY_HOST, HELD_BY_HOST, None]
    assert bench.now(of_endpoint).attempts == bench.now(of_job).attempts == 0


def test_message_of_an_earlier_version(bench: Bench) -> None:
    """The host of a job's URL is found although the message does not name it."""
    down(bench)
    _, delivery = bench.of_job(url=DOWN)
    bench.send(message(Message.of(delivery), host=None))
    assert bench.entry(delivery) == HELD_BY_HOST


def test_probe_of_an_endpoint(bench: Bench) -> None:
    """The probe of an endpoint waits for the host, so that 200 endpoints of a dead host send no probe each."""
    down(bench)
    delivery = bench.delivery(bench.endpoint(url=DOWN))
    bench.send(message(delivery, probe=True))
    assert (bench.entry(delivery), bench.receiver.requests) == (HELD_BY_HOST, [])


@pytest.mark.parametrize(
    ("answer", "state", "failures"),
    [(answered(200), "draining", 0), (answered(503), "open", 4), (answered(404), "draining", 2)],
    ids=["up", "down", "bad path"],
)
def test_probe_of_a_host(bench: Bench, answer: client.Response, state: str, failures: int) -> None:
    """It is sent although the endpoint's circuit is open, too. Any response but 502 to 504 lets others try."""
    down(bench)
    bench.receiver.answer = answer
    delivery = bench.delivery(bench.endpoint(url=DOWN))
    opened(bench, delivery)
    bench.send(message(delivery, probe=True, host_probe=True))
    assert len(bench.receiver.requests) == 1
    assert (bench.host(DOWN).state, bench.host(DOWN).consecutive_failures) == (state, failures)


def test_manual_attempt_to_a_dead_host(bench: Bench) -> None:
    """A manual attempt is made, and its success releases the others."""
    down(bench)
    delivery = bench.delivery(bench.endpoint(url=DOWN))
    bench.send(message(delivery, manual=True))
    assert (bench.now(delivery).status, bench.host(DOWN).state) == ("delivered", "draining")


def test_manual_failure_counts(bench: Bench) -> None:
    """Failures of manual attempts open the circuit of the host."""
    bench.receiver.answer = answered(503)
    delivery = bench.delivery(bench.endpoint(url=DOWN), status="failed")
    for _ in range(3):
        bench.send(message(bench.now(delivery), manual=True))
    assert bench.host(DOWN).is_open


def test_disabled_endpoint_of_a_dead_host(bench: Bench) -> None:
    """The deliveries of a disabled endpoint need not wait for the host."""
    down(bench)
    bench.send(bench.delivery(bench.endpoint(url=DOWN, enabled=False)))
    assert bench.host(DOWN).state == "draining"


# ── no room ──────────────────────────────────────────────────────────────────────────────────────────────────


def sent_back(bench: Bench) -> list[tuple[Message, int]]:
    entries = [
        each for call in bench.calls.log if call.operation == "SendMessageBatch" for each in call.params["Entries"]
    ]
    bench.calls.log.clear()
    return [(Message.parse(each["MessageBody"]), each["DelaySeconds"]) for each in entries]


def test_put_back(bench: Bench) -> None:
    """A message is sent again, with longer and longer delays, and goes to the index before it is queued twice."""
    delivery = bench.delivery(bench.endpoint())
    current, delays = Message.of(delivery), list[int]()
    bench.calls.log.clear()
    while True:
        put_back([current])
        if not (sent := sent_back(bench)):
            break
        ((current, delay),) = sent
        delays.append(delay)
        bench.clock.advance(delay)
    assert 1 <= delays[0] <= 3
    assert 4 <= len(delays) <= 40
    assert sum(delays) <= QUEUE_RETRY_SECONDS / 2 + 1
    assert QUEUE_RETRY_SECONDS / 2 <= bench.due(delivery) <= 1.5 * QUEUE_RETRY_SECONDS + 1
    assert (bench.now(delivery).attempts, bench.now(delivery).status) == (0, "pending")


def test_put_back_of_a_manual_attempt(bench: Bench) -> None:
    """It stays in the queue, because the delivery can have ended."""
    delivery = bench.delivery(bench.endpoint(), status="delivered")
    waiting = message(delivery, manual=True, waiting_since=bench.clock.time - 5000)
    bench.calls.log.clear()
    put_back([waiting])
    ((again, delay),) = sent_back(bench)
    assert again == waiting
    assert MAX_PUT_BACK_SECONDS / 2 <= delay <= 1.5 * MAX_PUT_BACK_SECONDS


@pytest.mark.parametrize("count", [1, BATCH])
def test_lookups_that_are_busy(bench: Bench, count: int) -> None:
    """An attempt for whose lookup there is no room has not been made. It is put back, and acknowledged."""
    bench.receiver.answer = LookupsBusy()
    endpoint = bench.endpoint()
    waiting = [bench.delivery(endpoint) for _ in range(count)]
    bench.calls.log.clear()
    assert bench.send(*waiting) == []
    assert {each.delivery_id for each, delay in sent_back(bench) if 1 <= delay <= 3} == {
        each.delivery_id for each in waiting
    }
    found = [bench.now(each) for each in waiting]
    assert {(each.status, each.attempts, each.tries, each.lease_until) for each in found} == {("pending", 0, 0, 0)}
    assert bench.health(waiting[0]).attempts == 0
    bench.receiver.answer = answered(204)
    assert bench.send(*waiting) == []
    assert {bench.now(each).status for each in waiting} == {"delivered"}


def test_host_that_fails_within_a_batch(bench: Bench) -> None:
    """After the failures that open its circuit, the rest of a batch is put back."""
    bench.receiver.answer = DeliveryError("connect", "refused")
    waiting = [bench.delivery(bench.endpoint(url=f"{DOWN}{number}")) for number in range(20)]
    bench.calls.log.clear()
    assert bench.send(*waiting) == []
    assert 3 <= len(bench.receiver.requests) <= 3 + NEW_HOST_ATTEMPTS
    assert len(sent_back(bench)) == 20 - len(bench.receiver.requests)
    assert bench.host(DOWN).is_open


def test_failures_of_the_host(bench: Bench) -> None:
    """Connections, names, TLS, time-outs and 502 to 504 count, and any 2xx ends the count."""
    errors = [DeliveryError(name, "") for name in ("connect", "dns", "tls", "timeout")]
    for number, answer in enumerate([*errors, *(answered(status) for status in (502, 503, 504))]):
        url = f"https://h{number}.example.com/"
        for bench.receiver.answer, failures in ((answer, 1), (answered(204), 0)):
            bench.send(bench.delivery(bench.endpoint(url=url)))
            assert bench.host(url).consecutive_failures == failures


@pytest.mark.parametrize(
    "error", [answered(status) for status in (404, 410, 500, 302)], ids=lambda each: each.status
)
def test_failures_of_one_path(bench: Bench, error: client.Response) -> None:
    """Failures that are not of the host neither count nor end its count."""
    bench.of.health.record_outcomes(bench.host(DOWN), [AttemptOutcome(bench.clock.time, False, ended=False)])
    bench.receiver.answer = error
    bench.send(*[bench.delivery(bench.endpoint(url=f"{DOWN}{number}")) for number in range(4)])
    assert (bench.host(DOWN).consecutive_failures, bench.host(DOWN).attempts) == (1, 1)


def test_endpoint_with_an_earlier_success(bench: Bench) -> None:
    """A host is a known one if its endpoint has succeeded since the endpoint was changed."""
    old, new = bench.endpoint(url=DOWN), bench.endpoint(url="https://new.example.com/")
    _, of_job = bench.of_job(url="https://job.example.com/")
    for endpoint_delivery in (bench.delivery(old), bench.delivery(new), of_job):
        outcome = AttemptOutcome(bench.clock.time + 1, True, ended=True)
        bench.of.health.record_outcomes(bench.health(endpoint_delivery), [outcome])
    bench.clock.advance(60)
    bench.edit(new, updated_at=timestamp(bench.clock.time))
    found = read_destinations(
        [Message.of(bench.delivery(old)), Message.of(bench.delivery(new)), Message.of(of_job)]
    )
    assert {each.host.name: each.host.is_verified for each in found.values()} == {
        "host#down.example.com:443": True,
        "host#new.example.com:443": False,
        "host#job.example.com:443": True,
    }


def test_writes_for_a_host_that_is_well(bench: Bench) -> None:
    """The item of a host without failures is written once a day."""
    endpoint = bench.endpoint()
    written = []
    for _ in range(3):
        bench.calls.log.clear()
        bench.send(bench.delivery(endpoint))
        keys = [call.params.get("Key", {}).get("pk") for call in bench.calls.log if call.operation == "UpdateItem"]
        written.append("HEALTH#ana#host#example.com:443" in keys)
        bench.clock.advance(12.5 * 3600)
    assert written == [False, False, True]
