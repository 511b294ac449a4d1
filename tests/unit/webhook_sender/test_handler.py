from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from core import views
from core.errors import DeliveryError, Refused
from core.webhooks import client
from core.webhooks.deliveries import LEASE_SECONDS, Delivery, DeliveryStore, fairness_group
from tests.support.calls import Calls
from tests.support.clock import Clock
from tests.unit.examples import DAY, event, job
from webhook_sender import handler as module
from webhook_sender.handler import MAX_DELAY_SECONDS, handler, next_wait, shown

URL = "https://example.com/hook?token=t"
Messages = Callable[[str], list[Any]]


def answered(status: int, body: bytes = b"") -> client.Response:
    return client.Response(status=status, headers={}, body=body, truncated=False)


class Receiver:
    """Stands where `client.post` does: keeps what it gets and answers, or raises, what it is told."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer: Any = answered(204)
        self.meanwhile: Callable[[], None] = lambda: None

    def post(self, url: str, **request: Any) -> client.Response:
        self.requests.append({"url": url, **request})
        self.meanwhile()
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: client.Response = self.answer
        return answer


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    receiver = Receiver()
    monkeypatch.setattr(client, "post", receiver.post)
    return receiver


@pytest.fixture
def deliveries(
    environment: dict[str, str], jobs_table: str, deliveries_table: str, secrets_key: str, queues: None
) -> DeliveryStore:
    return module.dependencies().deliveries


@pytest.fixture
def secret(deliveries: DeliveryStore, dynamodb: Any) -> str:
    secret, operation = module.dependencies().endpoints.draft_default("ana")
    dynamodb.put_item(**operation["Put"])
    return secret


@pytest.fixture
def delivery(deliveries: DeliveryStore, secret: str, receiver: Receiver) -> Delivery:
    """A delivery that waits for its first attempt, of a job that is there."""
    subject = module.dependencies().jobs.submit(job(at=time.time(), webhook_url=URL)).job
    told = event(job_id=subject.job_id, body='{"text":"a\\u00f1o \\ud83d\\udc69"}')
    return deliveries.create(
        told, endpoint_id="default", url=URL, job_expires_at=int(time.time()) + DAY, retention_seconds=DAY
    )


def send(delivery: Delivery, attempt: int = 0, receives: int = 1) -> list[str]:
    """Hand over a message for this attempt; the ids of messages that failed."""
    body = json.dumps({"delivery_id": delivery.delivery_id, "attempt": attempt})
    record = {"messageId": "m", "body": body, "attributes": {"ApproximateReceiveCount": str(receives)}}
    return [failure["itemIdentifier"] for failure in handler({"Records": [record]}, None)["batchItemFailures"]]


def now(deliveries: DeliveryStore, delivery: Delivery) -> Delivery:
    found = deliveries.get(delivery.delivery_id)
    assert found is not None
    return found


def webhook(delivery: Delivery) -> dict[str, Any]:
    """What the job's owner sees of the webhook."""
    snapshot = module.dependencies().jobs.snapshot(delivery.job_id, owner="ana")
    shown: dict[str, Any] = views.whole(snapshot, "")["webhook"]
    return shown


# ── one attempt ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_sent(deliveries: DeliveryStore, delivery: Delivery, receiver: Receiver, secret: str) -> None:
    """The stored bytes go to the URL, signed so that the standard library of webhooks accepts them."""
    assert send(delivery) == []
    (request,) = receiver.requests
    assert (request["url"], request["body"]) == (URL, delivery.body.encode())
    assert request["deadline_seconds"] == 15
    assert request["policy"] is module.dependencies().policy
    headers = request["headers"]
    assert headers["webhook-id"] == delivery.event_id
    assert headers["content-type"] == "application/json"
    Webhook(secret).verify(request["body"], headers)


def test_success(deliveries: DeliveryStore, delivery: Delivery, messages: Messages) -> None:
    """A delivery that arrived is over, and its job says so."""
    send(delivery)
    assert (now(deliveries, delivery).status, now(deliveries, delivery).attempts) == ("delivered", 1)
    assert messages("WEBHOOKS_QUEUE_URL") == []
    seen = webhook(delivery)
    assert (seen["status"], seen["attempts"], seen["last_attempt"]["status"]) == ("delivered", 1, 204)
    assert seen["next_attempt_at"] is None


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (answered(500, b"oops"), "http_5xx"),
        (answered(404), "http_4xx"),
        (answered(302), "http_3xx"),
        (DeliveryError("timeout", "no answer in time"), "timeout"),
        (DeliveryError("dns", "no such host"), "dns"),
        (Refused("a private address"), "blocked"),
    ],
)
def test_failure(
    deliveries: DeliveryStore, delivery: Delivery, receiver: Receiver, answer: Any, error: str
) -> None:
    """An attempt that failed is written down with its class, and the next one waits in the queue."""
    receiver.answer = answer
    calls = Calls(Clock())
    with calls.intercepted():
        assert send(delivery) == []
    waiting = now(deliveries, delivery)
    assert (waiting.status, waiting.attempts) == ("pending", 1)
    assert 3 <= waiting.due - time.time() <= 7
    (sent,) = (call.params for call in calls.log if call.operation == "SendMessage")
    assert json.loads(sent["MessageBody"]) == {"delivery_id": delivery.delivery_id, "attempt": 1}
    assert 3 <= sent["DelaySeconds"] <= 6
    assert sent["MessageGroupId"] == fairness_group(delivery)
    seen = webhook(delivery)
    assert (seen["status"], seen["last_attempt"]["error"]) == ("pending", error)
    assert seen["next_attempt_at"]


def test_schedule_to_its_end(
    deliveries: DeliveryStore, delivery: Delivery, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts follow the schedule, each signed anew under the same id, until the last one ends the delivery."""
    receiver.answer = answered(500)
    start, moment = time.time(), [time.time()]
    monkeypatch.setattr(time, "time", lambda: moment[0])
    monkeypatch.setattr(deliveries, "_clock", lambda: moment[0])
    for attempt in range(4):
        assert send(delivery, attempt) == []
        moment[0] = max(moment[0], now(deliveries, delivery).due) + 1
    assert (now(deliveries, delivery).status, now(deliveries, delivery).attempts) == ("failed", 4)
    assert len({request["headers"]["webhook-id"] for request in receiver.requests}) == 1
    assert len({request["headers"]["webhook-timestamp"] for request in receiver.requests}) == 4
    assert 0.8 * 155 - 4 <= moment[0] - start <= 1.2 * 155 + 8
    assert webhook(delivery)["status"] == "failed"


# ── messages that come twice ─────────────────────────────────────────────────────────────────────────────────


def test_a_message_that_comes_twice(deliveries: DeliveryStore, delivery: Delivery, receiver: Receiver) -> None:
    """One attempt is sent once, however often its message comes."""
    receiver.answer = answered(500)
    for _ in range(3):
        assert send(delivery, 0) == []
    assert len(receiver.requests) == 1


def test_two_senders_at_once(deliveries: DeliveryStore, delivery: Delivery, receiver: Receiver) -> None:
    """While one sender is at it, another one's message comes back later and sends nothing."""
    failures: list[str] = []

    def meanwhile() -> None:
        receiver.meanwhile = lambda: None
        failures.extend(send(delivery, 0))

    receiver.meanwhile = meanwhile
    assert send(delivery, 0) == []
    assert failures == ["m"]
    assert len(receiver.requests) == 1
    assert now(deliveries, delivery).status == "delivered"


def test_a_sender_that_died_while_sending(
    deliveries: DeliveryStore, delivery: Delivery, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt whose sender died is made again once its lease is over, and not before."""
    assert deliveries.claim(delivery)
    assert send(delivery, 0, receives=2) == ["m"]
    later = time.time() + LEASE_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    monkeypatch.setattr(deliveries, "_clock", lambda: later)
    assert send(delivery, 0, receives=3) == []
    assert len(receiver.requests) == 1


def test_a_sender_that_died_after_writing(
    deliveries: DeliveryStore, delivery: Delivery, receiver: Receiver, messages: Messages
) -> None:
    """An attempt that was written down, but whose follow-up was lost, is followed up when its message returns."""
    receiver.answer = answered(500)
    calls = Calls(Clock())
    calls.fail("sqs", "SendMessage", "InternalError")
    with calls.intercepted():
        assert send(delivery, 0) == ["m"]
    assert send(delivery, 0, receives=2) == []
    assert len(receiver.requests) == 1
    waiting = module.dependencies().sqs.get_queue_attributes(
        QueueUrl=module.dependencies().config.webhooks_queue_url, AttributeNames=["All"]
    )["Attributes"]
    assert waiting["ApproximateNumberOfMessagesDelayed"] == "1"
    assert webhook(delivery)["attempts"] == 1


def test_too_early(deliveries: DeliveryStore, delivery: Delivery, receiver: Receiver) -> None:
    """An attempt that is not due yet is queued again for the time that is left."""
    receiver.answer = answered(500)
    send(delivery, 0)
    calls = Calls(Clock())
    with calls.intercepted():
        assert send(delivery, 1) == []
    assert len(receiver.requests) == 1
    assert [call.params["DelaySeconds"] > 0 for call in calls.log if call.operation == "SendMessage"] == [True]


def test_no_such_delivery(delivery: Delivery, receiver: Receiver) -> None:
    """A message of a delivery that is forgotten is acknowledged."""
    assert send(replace(delivery, event_id="evt_gone")) == []
    assert receiver.requests == []


def test_no_secret(deliveries: DeliveryStore, receiver: Receiver) -> None:
    """Without a secret nothing is sent unsigned: the attempt counts as blocked."""
    told = event(owner="ben")
    delivery = deliveries.create(told, endpoint_id="default", url=URL, job_expires_at=1, retention_seconds=DAY)
    assert send(delivery) == []
    assert receiver.requests == []
    attempt = now(deliveries, delivery).last_attempt
    assert attempt is not None
    assert attempt.error == "blocked"


def test_secrets_are_opened_once(deliveries: DeliveryStore, delivery: Delivery, receiver: Receiver) -> None:
    """A warm function asks KMS once for a secret."""
    told = event(job_id=delivery.job_id)
    other = deliveries.create(told, endpoint_id="default", url=URL, job_expires_at=1, retention_seconds=DAY)
    calls = Calls(Clock())
    with calls.intercepted():
        send(delivery)
        send(other)
    assert [call.operation for call in calls.log if call.service == "kms"] == ["Decrypt"]


def test_nothing_secret_is_logged(
    delivery: Delivery, receiver: Receiver, secret: str, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """Neither the secret, nor the token in the URL, nor the payload is logged."""
    receiver.answer = answered(500, b"private answer")
    send(delivery)
    lines = str(logged())
    assert delivery.delivery_id in lines
    assert not any(word in lines for word in (secret, "token=t", "private answer", "a\\u00f1o"))


# ── small parts ──────────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 3))
def test_next_wait(attempts: int) -> None:
    """After an attempt the schedule's next wait follows, 20 % more or less."""
    with pytest.MonkeyPatch.context() as patch:
        config = type("Config", (), {"webhook_schedule_seconds": (0, 100, 3000, 900)})
        patch.setattr(module, "dependencies", lambda: type("Dependencies", (), {"config": config}))
        planned = (0, 100, 3000, 900)[attempts]
        wait = next_wait(attempts)
        assert wait is not None
        assert 0.8 * planned <= wait <= 1.2 * planned
        assert len({next_wait(attempts) for _ in range(20)}) > 1
        assert next_wait(4) is None


def test_a_wait_longer_than_a_queue_can_delay(deliveries: DeliveryStore, delivery: Delivery) -> None:
    """A wait of more than 15 minutes is made of several, since no queue delays longer."""
    calls = Calls(Clock())
    with calls.intercepted():
        module.plan(replace(delivery, due=int(time.time()) + 5000))
    (sent,) = (call.params for call in calls.log if call.operation == "SendMessage")
    assert sent["DelaySeconds"] == MAX_DELAY_SECONDS == 900


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", ""),
        ("año".encode(), "año"),
        (b"x" * 2000, "x" * 1000),
        (b"\xff\xfe", "base64://4="),
    ],
)
def test_shown(body: bytes, text: str) -> None:
    """The start of an answer is kept as text, or as base64 where it is none."""
    assert shown(body) == text
    if text.startswith("base64:"):
        assert base64.b64decode(text.removeprefix("base64:")) == body
