from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter as real_time
from types import SimpleNamespace
from typing import Any

import pytest

from core.webhooks.deliveries.health import Health
from core.webhooks.deliveries.model import Delivery
from core.webhooks.deliveries.store import LEASE_SECONDS
from core.webhooks.endpoints.model import Key
from core.webhooks.transport import client
from core.webhooks.transport.client import Response
from tests.simulated_cloud.calls import Killed, transaction_canceled
from tests.unit.webhooks.sender.conftest import Bench, answered, message
from webhooks.sender import group
from webhooks.sender.batch import BATCH
from webhooks.sender.destinations import Host
from webhooks.sender.in_flight import InFlight


def batch(bench: Bench, **facts: Any) -> list[Delivery]:
    """A full batch of deliveries to one endpoint, which is sent as a group."""
    endpoint = bench.endpoint()
    return [bench.delivery(endpoint, **facts) for _ in range(BATCH)]


def statuses(bench: Bench, deliveries: list[Delivery]) -> list[tuple[str, int, int]]:
    found = [bench.now(delivery) for delivery in deliveries]
    return [(each.status, each.attempts, each.lease_until) for each in found]


def outcome(bench: Bench, delivery: Delivery) -> tuple[Any, ...]:
    """The delivery without its own ids, its only attempt without times, and the kind of its index entry."""
    found, (attempt,) = bench.now(delivery), bench.attempts(delivery)
    state = (found.status, found.attempts, found.tries, found.lease_until)
    response = (attempt.status, attempt.error, attempt.body, attempt.body_is_base64, attempt.trigger)
    return *state, *response, (bench.entry(delivery) or "none")[:4]


@pytest.mark.parametrize("status", [200, 500])
def test_same_result_as_single(bench: Bench, status: int) -> None:
    """A group writes and queues the same as single messages."""
    bench.receiver.answer = answered(status, b"\xff" if status == 500 else "año".encode(), x_a="1")
    singly, together = bench.delivery(bench.endpoint()), batch(bench)
    bench.queued()
    bench.send(singly)
    retry = bench.queued()
    assert bench.send(*together) == []
    queued = {each.delivery_id for each, _ in bench.queued()}
    assert queued == ({each.delivery_id for each in together} if retry else set())
    assert [outcome(bench, each) for each in together] == [outcome(bench, singly)] * BATCH


def test_second_attempt(bench: Bench) -> None:
    """After a second attempt both attempts are stored."""
    bench.receiver.answer = answered(500)
    endpoints = [bench.endpoint() for _ in range(BATCH)]
    deliveries = [bench.delivery(endpoint) for endpoint in endpoints]
    for _ in range(2):
        bench.send(*[bench.now(delivery) for delivery in deliveries])
        bench.clock.advance(60)
    for delivery in deliveries:
        assert [attempt.number for attempt in bench.attempts(delivery)] == [1, 2]


def test_one_claim_fails(bench: Bench) -> None:
    """If one delivery cannot be claimed, before or in the transaction, the others are sent."""
    deliveries = batch(bench)
    assert bench.of.deliveries.claim(deliveries[3].delivery_id, attempts=0)
    bench.calls.fail("dynamodb", "TransactWriteItems", transaction_canceled("ConditionalCheckFailed"))
    assert bench.send(*deliveries) == [3]
    assert len(bench.receiver.requests) == BATCH - 1
    bench.clock.advance(LEASE_SECONDS + 1)
    assert bench.send(*deliveries, receives=2) == []
    assert statuses(bench, deliveries) == [("delivered", 1, 0)] * BATCH
    assert len(bench.receiver.requests) == BATCH


@pytest.mark.parametrize("after", [False, True])
def test_batch_write_fails(bench: Bench, after: bool) -> None:
    """If the batch write or its response fails, each attempt is recorded once."""
    bench.receiver.answer = answered(500)
    deliveries = batch(bench)
    failed = bench.calls.fail("dynamodb", "BatchWriteItem", "InternalServerError", after=after)
    assert bench.send(*deliveries) == []
    assert failed.hits == 1
    assert statuses(bench, deliveries) == [("pending", 1, 0)] * BATCH
    assert bench.health(deliveries[0]).attempts == BATCH
    assert len(bench.receiver.requests) == BATCH


def test_messages_that_are_sent_singly(bench: Bench) -> None:
    """Manual, ordered, rate-limited, disabled and malformed messages are handled singly."""
    plain = bench.delivery(bench.endpoint())
    ordered, limited = bench.delivery(bench.endpoint(ordered=True)), bench.delivery(bench.endpoint(rate_limit=5))
    disabled, manual = bench.endpoint(enabled=False), bench.delivery(bench.endpoint(), status="failed")
    off = bench.delivery(disabled)
    rest = [bench.delivery(bench.endpoint()) for _ in range(4)]
    sent = [plain, ordered, limited, off, message(manual, manual=True), "{}", *rest]
    assert bench.send(*sent) == [5]
    assert bench.now(off).status == "discarded"
    for each in (plain, ordered, limited, manual, *rest):
        assert bench.now(each).status == "delivered"


def test_repeated_message(bench: Bench) -> None:
    """Of two messages for one attempt in a group, one is sent."""
    deliveries = batch(bench)
    twice = [*deliveries[:-1], deliveries[0]]
    assert len(bench.send(*twice)) <= 1
    assert len(bench.receiver.requests) == BATCH - 1


def test_unexpected_exception(bench: Bench) -> None:
    """An unexpected exception in one attempt fails its message; the others are recorded."""
    bench.receiver.answers["broken.example.com"] = RuntimeError("a bug")
    broken = bench.delivery(bench.endpoint(url="https://broken.example.com/"))
    fine = batch(bench)[1:]
    assert bench.send(broken, *fine) == [0]
    assert {bench.now(each).status for each in fine} == {"delivered"}


def test_gone(bench: Bench) -> None:
    """A group that gets 410 disables the endpoint once."""
    bench.receiver.answer = answered(410)
    assert bench.send(*batch(bench)) == []
    assert len(bench.events()) == 1


def test_secret_that_cannot_be_decrypted(bench: Bench) -> None:
    """If a secret cannot be decrypted, only its messages fail, without a claim."""
    broken, fine = bench.endpoint(), batch(bench)[1:]
    bench.edit(broken, keys=(Key(encrypted=b"no ciphertext"),))
    unreadable = bench.delivery(broken)
    assert bench.send(unreadable, *fine) == [0]
    assert {bench.now(each).status for each in fine} == {"delivered"}
    assert len(bench.receiver.requests) == BATCH - 1


def test_expired(bench: Bench) -> None:
    """An expired delivery is neither claimed nor sent, and its message is deleted."""
    deliveries = batch(bench)
    expired = bench.delivery(bench.endpoint(), expires_at=int(bench.clock.time))
    assert bench.send(expired, *deliveries[1:]) == []
    assert len(bench.receiver.requests) == BATCH - 1


@pytest.mark.parametrize("code", ["TransactionConflictException", "ValidationException"])
def test_transaction_fails(bench: Bench, code: str) -> None:
    """If the transaction fails, each delivery is claimed singly."""
    deliveries = batch(bench)
    failed = bench.calls.fail("dynamodb", "TransactWriteItems", code)
    assert bench.send(*deliveries) == []
    assert failed.hits == 1
    assert statuses(bench, deliveries) == [("delivered", 1, 0)] * BATCH
    assert len(bench.receiver.requests) == BATCH


def test_unprocessed_items(bench: Bench) -> None:
    """Only unprocessed items are written again."""
    deliveries = batch(bench)

    def leave_over(params: dict[str, Any]) -> dict[str, Any]:
        del bench.calls.shortcuts["dynamodb:BatchWriteItem"]
        ((table, writes),) = params["RequestItems"].items()
        bench.of.bulk._client.batch_write_item(RequestItems={table: writes[2:]})
        return {"UnprocessedItems": {table: writes[:2]}}

    bench.calls.shortcuts["dynamodb:BatchWriteItem"] = leave_over
    assert bench.send(*deliveries) == []
    assert [len(each["RequestItems"]["deliveries"]) for each in written(bench)] == [BATCH, BATCH - 2, 2]
    assert statuses(bench, deliveries) == [("delivered", 1, 0)] * BATCH


def test_only_unprocessed_items(bench: Bench) -> None:
    """If items stay unprocessed, each attempt is recorded singly."""
    deliveries = batch(bench)
    bench.calls.shortcuts["dynamodb:BatchWriteItem"] = lambda params: {"UnprocessedItems": params["RequestItems"]}
    assert bench.send(*deliveries) == []
    assert statuses(bench, deliveries) == [("delivered", 1, 0)] * BATCH
    assert len(bench.receiver.requests) == BATCH


def written(bench: Bench) -> list[dict[str, Any]]:
    return [call.params for call in bench.calls.log if call.operation == "BatchWriteItem"]


def test_a_slow_receiver(bench: Bench) -> None:
    """Attempts that have ended are recorded while another one of the group waits for its receiver."""
    fine = batch(bench)[1:]
    slow = bench.delivery(bench.endpoint(url="https://slow.example.com/"))
    seen: list[set[str]] = []

    def stall(url: str, **request: Any) -> Response:
        if "slow" in url:
            until = real_time() + 10
            while {bench.now(each).status for each in fine} != {"delivered"} and real_time() < until:
                threading.Event().wait(0.01)
            seen.append({bench.now(each).status for each in fine})
        return answered(204)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "post", stall)
        assert bench.send(slow, *fine) == []
    assert seen == [{"delivered"}]
    assert bench.now(slow).status == "delivered"


def test_killed_sender(bench: Bench) -> None:
    """Attempts that were made but not recorded are repeated after their leases."""
    deliveries = batch(bench)
    bench.calls.fail("dynamodb", "BatchWriteItem", Killed)
    with pytest.raises(Killed):
        bench.send(*deliveries)
    assert len(bench.receiver.requests) == BATCH
    assert sorted(bench.send(*deliveries, receives=2)) == list(range(BATCH))
    assert len(bench.receiver.requests) == BATCH
    bench.clock.advance(LEASE_SECONDS + 1)
    assert bench.send(*deliveries, receives=3) == []
    assert len(bench.receiver.requests) == 2 * BATCH
    assert statuses(bench, deliveries) == [("delivered", 1, 0)] * BATCH


@pytest.mark.parametrize("answered_at_once", [True, False])
def test_threads(answered_at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fast receivers are served by few threads, slow ones concurrently."""
    together = threading.Barrier(40)
    names: set[str] = set()

    def make(claimed: Any) -> Future[Any]:
        names.add(threading.current_thread().name)
        if not answered_at_once:
            together.wait(20)
        return Future()

    monkeypatch.setattr(group, "attempt", make)
    hosts = [Host(Health(owner=owner, destination="host#h:443"), 0, 10, True) for owner in ("ana", "ben")]
    claimed: Any = [
        (SimpleNamespace(destination=SimpleNamespace(host=hosts[number % 2])), number) for number in range(40)
    ]
    in_flight = InFlight(slow_until=real_time() + 60)
    with ThreadPoolExecutor(40) as threads:
        made = [each for part in group.attempt_concurrently(threads, claimed, in_flight) for each, _ in part]
    assert sorted(number for _, number in made) == list(range(40))
    assert len(names) < 20 if answered_at_once else len(names) == 40
