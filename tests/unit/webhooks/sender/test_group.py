from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter as real_time
from typing import Any

import pytest

from core.webhooks.deliveries.store import LEASE_SECONDS, Delivery
from core.webhooks.endpoints.store import Key
from core.webhooks.transport import client
from core.webhooks.transport.client import Response
from tests.simulated_cloud.calls import Killed, transaction_canceled
from tests.unit.webhooks.sender.conftest import Bench, answered, message
from webhooks.sender import group, handler
from webhooks.sender.handler import BATCH


def batch(bench: Bench, **facts: Any) -> list[Delivery]:
    """As many deliveries to one endpoint as make a sender group them."""
    endpoint = bench.endpoint()
    return [bench.delivery(endpoint, **facts) for _ in range(BATCH)]


def statuses(bench: Bench, deliveries: list[Delivery]) -> list[tuple[str, int, int]]:
    found = [bench.now(delivery) for delivery in deliveries]
    return [(each.status, each.attempts, each.lease_until) for each in found]


@pytest.mark.parametrize("status", [200, 500])
def test_as_one_by_one(bench: Bench, status: int) -> None:
    """What is written down together is what is written down one by one: row, log, place and what follows."""
    bench.receiver.answer = answered(status, b"\xff" if status == 500 else "año".encode(), x_a="1")
    singly = bench.delivery(bench.endpoint())
    bench.queued()
    bench.send(singly)
    ((alone, _),) = bench.queued() or [(None, 0)]
    together = batch(bench)
    bench.queued()
    assert bench.send(*together) == []
    queued = {each.delivery_id: each for each, _ in bench.queued()}
    one = bench.now(singly)
    for delivery in together:
        found = bench.now(delivery)
        assert (found.status, found.attempts, found.tries, found.lease_until) == (
            one.status,
            one.attempts,
            one.tries,
            0,
        )
        (attempt,), (other,) = bench.attempts(delivery), bench.attempts(singly)
        assert (attempt.status, attempt.error, attempt.body, attempt.body_is_base64, attempt.trigger) == (
            other.status,
            other.error,
            other.body,
            other.body_is_base64,
            other.trigger,
        )
        assert (bench.place(delivery) or "none")[:4] == (bench.place(singly) or "none")[:4]
        assert (delivery.delivery_id in queued) == (alone is not None)


def test_the_log_goes_on(bench: Bench) -> None:
    """A second attempt keeps the first in the log."""
    bench.receiver.answer = answered(500)
    endpoints = [bench.endpoint() for _ in range(BATCH)]
    deliveries = [bench.delivery(endpoint) for endpoint in endpoints]
    for _ in range(2):
        bench.send(*[bench.now(delivery) for delivery in deliveries])
        bench.clock.advance(60)
    for delivery in deliveries:
        assert [attempt.number for attempt in bench.attempts(delivery)] == [1, 2]


def test_a_claim_that_was_lost_to_another(bench: Bench) -> None:
    """Where one cannot be claimed the others are, whether that is seen before the transaction or in it."""
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
def test_a_batch_that_is_not_written(bench: Bench, after: bool) -> None:
    """Where writing together fails, or only its answer is lost, each attempt is written down once all the same."""
    bench.receiver.answer = answered(500)
    deliveries = batch(bench)
    failed = bench.calls.fail("dynamodb", "BatchWriteItem", "InternalServerError", after=after)
    assert bench.send(*deliveries) == []
    assert failed.hits == 1
    assert statuses(bench, deliveries) == [("pending", 1, 0)] * BATCH
    assert bench.health(deliveries[0]).attempts == BATCH
    assert len(bench.receiver.requests) == BATCH


def test_what_needs_more_care(bench: Bench) -> None:
    """What is asked for by hand, ordered, limited, disabled or no message goes by itself, beside the others."""
    plain = bench.delivery(bench.endpoint())
    ordered, limited = bench.delivery(bench.endpoint(ordered=True)), bench.delivery(bench.endpoint(rate_limit=5))
    disabled, by_hand = bench.endpoint(enabled=False), bench.delivery(bench.endpoint(), status="failed")
    off = bench.delivery(disabled)
    rest = [bench.delivery(bench.endpoint()) for _ in range(4)]
    sent = [plain, ordered, limited, off, message(by_hand, manual=True), "{}", *rest]
    assert bench.send(*sent) == [5]
    assert bench.now(off).status == "discarded"
    for each in (plain, ordered, limited, by_hand, *rest):
        assert bench.now(each).status == "delivered"


def test_the_same_twice(bench: Bench) -> None:
    """Of two messages for one attempt in a group one is sent."""
    deliveries = batch(bench)
    twice = [*deliveries[:-1], deliveries[0]]
    assert len(bench.send(*twice)) <= 1
    assert len(bench.receiver.requests) == BATCH - 1


def test_one_that_raises(bench: Bench) -> None:
    """One whose attempt breaks in an unforeseen way comes again; the others are written down."""
    bench.receiver.answers["broken.example.com"] = RuntimeError("a bug")
    broken = bench.delivery(bench.endpoint(url="https://broken.example.com/"))
    fine = batch(bench)[1:]
    assert bench.send(broken, *fine) == [0]
    assert {bench.now(each).status for each in fine} == {"delivered"}


def test_gone_in_a_group(bench: Bench) -> None:
    """Of a group that hears that the endpoint is gone, one disables it."""
    bench.receiver.answer = answered(410)
    assert bench.send(*batch(bench)) == []
    assert len(bench.events()) == 1


def test_one_that_cannot_be_opened(bench: Bench) -> None:
    """One endpoint whose secret cannot be read fails its own messages alone, and is not claimed for good."""
    broken, fine = bench.endpoint(), batch(bench)[1:]
    bench.edit(broken, keys=(Key(sealed=b"no ciphertext"),))
    unreadable = bench.delivery(broken)
    assert bench.send(unreadable, *fine) == [0]
    assert {bench.now(each).status for each in fine} == {"delivered"}
    assert len(bench.receiver.requests) == BATCH - 1


def test_what_has_expired(bench: Bench) -> None:
    """What has expired is neither claimed nor sent, and is done with."""
    deliveries = batch(bench)
    expired = bench.delivery(bench.endpoint(), expires_at=int(bench.clock.time))
    assert bench.send(expired, *deliveries[1:]) == []
    assert len(bench.receiver.requests) == BATCH - 1


@pytest.mark.parametrize("code", ["TransactionConflictException", "ValidationException"])
def test_no_transaction(bench: Bench, code: str) -> None:
    """Where the claims cannot be made in one transaction, each is made by itself, once."""
    deliveries = batch(bench)
    failed = bench.calls.fail("dynamodb", "TransactWriteItems", code)
    assert bench.send(*deliveries) == []
    assert failed.hits == 1
    assert statuses(bench, deliveries) == [("delivered", 1, 0)] * BATCH
    assert len(bench.receiver.requests) == BATCH


def test_what_the_table_leaves_over(bench: Bench) -> None:
    """Writes that the table did not take are asked for again, and they alone."""
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


def test_a_table_that_takes_nothing(bench: Bench) -> None:
    """Where the table goes on to leave writes over, each attempt is written down by itself."""
    deliveries = batch(bench)
    bench.calls.shortcuts["dynamodb:BatchWriteItem"] = lambda params: {"UnprocessedItems": params["RequestItems"]}
    assert bench.send(*deliveries) == []
    assert statuses(bench, deliveries) == [("delivered", 1, 0)] * BATCH
    assert len(bench.receiver.requests) == BATCH


def written(bench: Bench) -> list[dict[str, Any]]:
    return [call.params for call in bench.calls.log if call.operation == "BatchWriteItem"]


def test_a_slow_receiver(bench: Bench) -> None:
    """What is done is written down while a receiver of the same group still takes its time."""
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


def test_a_sender_that_dies(bench: Bench) -> None:
    """What was sent and not written down is sent again once the lease is over, and not before."""
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
    """Receivers that answer at once are served by few threads; those that do not, side by side."""
    together = threading.Barrier(40)
    names: set[str] = set()

    def make(claimed: Any) -> Future[Any]:
        names.add(threading.current_thread().name)
        if not answered_at_once:
            together.wait(20)
        return Future()

    monkeypatch.setattr(group, "outcome_of", make)
    claimed: Any = [(number, None) for number in range(40)]
    with ThreadPoolExecutor(40) as threads:
        made = [each for part in group.side_by_side(threads, claimed) for each, _ in part]
    assert sorted(made) == claimed
    assert len(names) < 20 if answered_at_once else len(names) == 40


def test_a_drain_that_is_kept_waiting(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a group waits for a slow receiver, another drain takes what is in the queue behind it."""
    monkeypatch.setattr(group, "SLOW_SECONDS", 0)
    monkeypatch.setattr(handler, "DRAINS", 1)
    monkeypatch.setattr(handler, "GROUP", 10)
    slow, endpoint = bench.delivery(bench.endpoint(url="https://slow.example.com/")), bench.endpoint()
    waiting = [bench.delivery(endpoint) for _ in range(25)]
    bench.of.webhooks_queue.send_all(map(message, [slow, *waiting]))
    seen: list[bool] = []

    def stall(url: str, **request: Any) -> Response:
        if "slow" in url:
            until = real_time() + 10
            while any(bench.now(each).is_open for each in waiting) and real_time() < until:
                threading.Event().wait(0.01)
            seen.append(any(bench.now(each).is_open for each in waiting))
        return answered(204)

    monkeypatch.setattr(client, "post", stall)
    assert bench.send(*batch(bench)) == []
    assert seen == [False]
    assert bench.now(slow).status == "delivered"
