from __future__ import annotations

import threading
from time import perf_counter as real_time
from typing import Any

import pytest

from core.webhooks.deliveries.model import Delivery
from core.webhooks.transport import client
from core.webhooks.transport.client import Response
from tests.unit.webhooks.sender.conftest import Bench, answered, message
from webhooks.sender import group, handler, pollers
from webhooks.sender.batch import BATCH


def full_batch(bench: Bench) -> list[Delivery]:
    endpoint = bench.endpoint()
    return [bench.delivery(endpoint) for _ in range(BATCH)]


def left(bench: Bench) -> int:
    """The number of messages in the queue, including invisible ones."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    url = bench.of.settings.webhooks_queue_url
    found = queue_client(bench).get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(found[name]) for name in names)


def queue_client(bench: Bench) -> Any:
    return bench.of.webhooks_queue._client


def test_a_full_batch(bench: Bench) -> None:
    """After a full batch, the other messages of the queue are sent, each once, and deleted."""
    endpoint = bench.endpoint()
    waiting = [bench.delivery(endpoint) for _ in range(27)]
    bench.of.webhooks_queue.send_all(map(message, waiting))
    batch = [bench.delivery(endpoint) for _ in range(BATCH)]
    assert bench.send(*batch) == []
    assert {bench.now(delivery).status for delivery in [*waiting, *batch]} == {"delivered"}
    assert len(bench.receiver.requests) == 37
    assert left(bench) == 0
    assert bench.health(batch[0]).delivered == 37
    assert [call.operation for call in bench.calls.log].count("Decrypt") == 1


def test_no_full_batch(bench: Bench) -> None:
    """After a smaller batch, nothing else is received."""
    endpoint = bench.endpoint()
    bench.of.webhooks_queue.send(message(bench.delivery(endpoint)))
    bench.send(*[bench.delivery(endpoint) for _ in range(BATCH - 1)])
    assert left(bench) == 1


def test_polled_message_that_fails(bench: Bench) -> None:
    """A polled message that fails stays in the queue, and fails no other."""
    endpoint = bench.endpoint()
    bench.receiver.answers["broken.example.com"] = RuntimeError("a bug")
    broken = bench.delivery(bench.endpoint(url="https://broken.example.com/"))
    fine = [bench.delivery(endpoint) for _ in range(5)]
    bench.of.webhooks_queue.send_all(map(message, [broken, *fine]))
    queue_client(bench).send_message(QueueUrl=bench.of.settings.webhooks_queue_url, MessageBody="none")
    assert bench.send(*[bench.delivery(endpoint) for _ in range(BATCH)]) == []
    assert {bench.now(delivery).status for delivery in fine} == {"delivered"}
    assert left(bench) == 2


def test_a_queue_that_fails(bench: Bench) -> None:
    """If no more messages can be received, the batch is still sent."""
    bench.calls.fail("sqs", "ReceiveMessage", "InternalError", times=None)
    endpoint = bench.endpoint()
    batch = [bench.delivery(endpoint) for _ in range(BATCH)]
    assert bench.send(*batch) == []
    assert {bench.now(delivery).status for delivery in batch} == {"delivered"}


def test_no_time_for_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the polling time nothing more is received."""
    monkeypatch.setattr(handler, "POLL_SECONDS", 0)
    endpoint = bench.endpoint()
    bench.of.webhooks_queue.send(message(bench.delivery(endpoint)))
    bench.send(*[bench.delivery(endpoint) for _ in range(BATCH)])
    assert left(bench) == 1


def test_poller_with_a_slow_receiver(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a group waits for a slow receiver, another poller sends the rest of the queue."""
    monkeypatch.setattr(group, "SLOW_SECONDS", 0)
    monkeypatch.setattr(handler, "POLLERS", 1)
    monkeypatch.setattr(pollers, "GROUP", 10)
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
    assert bench.send(*full_batch(bench)) == []
    assert seen == [False]
    assert bench.now(slow).status == "delivered"
