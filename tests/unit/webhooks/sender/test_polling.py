from __future__ import annotations

import threading
from time import perf_counter as real_time
from typing import Any

import pytest

from core.webhooks.deliveries.model import Delivery
from core.webhooks.transport import client
from core.webhooks.transport.client import Response
from tests.unit.webhooks.sender.conftest import Bench, answered, message
from webhooks.sender import in_flight, polling
from webhooks.sender.batch import BATCH


def full_batch(bench: Bench) -> list[Delivery]:
    endpoint = bench.endpoint()
    return [bench.delivery(endpoint) for _ in range(BATCH)]


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """No attempt counts as slow, however busy this machine is."""
    monkeypatch.setattr(in_flight, "SLOW_SECONDS", 60)


def left(bench: Bench) -> int:
    """The number of messages in the queue, including invisible ones."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    url = bench.of.settings.webhooks_queue_url
    found = queue_client(bench).get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(found[name]) for name in names)


def queue_client(bench: Bench) -> Any:
    return bench.of.webhooks_queue._client


@pytest.mark.usefixtures("fast")
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


@pytest.mark.usefixtures("fast")
def test_no_full_batch(bench: Bench) -> None:
    """After a smaller batch whose receivers are fast, nothing else is received."""
    endpoint = bench.endpoint()
    bench.of.webhooks_queue.send(message(bench.delivery(endpoint)))
    bench.calls.log.clear()
    bench.send(*[bench.delivery(endpoint) for _ in range(BATCH - 1)])
    assert "ReceiveMessage" not in [call.operation for call in bench.calls.log]
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
    monkeypatch.setattr(polling, "POLL_SECONDS", -15)
    endpoint = bench.endpoint()
    bench.of.webhooks_queue.send(message(bench.delivery(endpoint)))
    bench.send(*[bench.delivery(endpoint) for _ in range(BATCH)])
    assert left(bench) == 1


class Stalled:
    """A receiver that answers at some hosts only when `released` is true, or after 20 s."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
        self.hosts, self.released = hosts, lambda: False
        self.running, self.most, self._lock = 0, 0, threading.Lock()
        self._others = bench.receiver.post
        monkeypatch.setattr(client, "post", self.post)

    def post(self, url: str, **request: Any) -> Response:
        if url.split("/")[2] not in self.hosts:
            return self._others(url, **request)
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        until = real_time() + 20
        while not self.released() and real_time() < until:
            threading.Event().wait(0.01)
        self.running -= 1
        return answered(204)


SLOW = "https://slow.example.com/"


@pytest.mark.parametrize("size", [1, BATCH])
def test_slow_receiver(bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """While a batch of any size waits for a slow receiver, what comes to the queue is sent."""
    stalled = Stalled(bench, monkeypatch, "slow.example.com")
    slow, endpoint = bench.delivery(bench.endpoint(url=SLOW)), bench.endpoint()
    rest = [bench.delivery(endpoint) for _ in range(size - 1)]
    late = [bench.delivery(endpoint) for _ in range(3)]
    seen: list[bool] = []

    def released() -> bool:
        if not seen:
            seen.append(True)
            bench.of.webhooks_queue.send_all(map(message, late))
        return all(not bench.now(each).is_open for each in late)

    stalled.released = released
    begin = real_time()
    assert bench.send(slow, *rest) == []
    assert real_time() - begin < 20
    assert {bench.now(each).status for each in [slow, *rest, *late]} == {"delivered"}
    assert left(bench) == 0


def test_empty_queue(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it waits on an empty queue, each request to the queue waits for a message for a second."""
    stalled = Stalled(bench, monkeypatch, "slow.example.com")
    begin = real_time()
    stalled.released = lambda: real_time() - begin > 1
    bench.calls.log.clear()
    bench.send(bench.delivery(bench.endpoint(url=SLOW)))
    polls = [call.params for call in bench.calls.log if call.operation == "ReceiveMessage"]
    assert polls
    assert {poll["WaitTimeSeconds"] for poll in polls} == {polling.LONG_POLL_SECONDS}
