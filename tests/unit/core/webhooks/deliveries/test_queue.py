from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Unavailable
from core.webhooks.deliveries.queue import Message, WebhooksQueue
from tests.unit.core.webhooks.samples import FakeSqs, delivery

texts = st.text(min_size=1, max_size=10)
messages = st.builds(
    Message,
    delivery_id=texts,
    owner=texts,
    endpoint_id=texts,
    destination=texts,
    attempts=st.integers(0, 20),
    queued_at=st.integers(0, 2**40),
    manual=st.booleans(),
    probe=st.booleans(),
    follows=st.none() | texts,
    slot=st.none() | st.floats(0, 1e12),
    host_probe=st.booleans(),
    waiting_since=st.none() | st.floats(0, 1e12),
    host=st.none() | texts,
)


@given(messages)
def test_round_trip(message: Message) -> None:
    """A message is read as it was written."""
    assert Message.parse(message.body) == message


def test_defaults_are_left_out() -> None:
    """Fields with their default are left out of the body, zeros are not."""
    assert json.loads(Message.of(delivery(owner="ana")).body).keys() == {
        "delivery_id",
        "owner",
        "endpoint_id",
        "destination",
        "attempts",
        "queued_at",
    }


def test_group() -> None:
    """The group is the owner, whatever the endpoint or URL."""
    endpoints = delivery(owner="ana"), delivery(owner="ana", endpoint_id="wh_2")
    urls = [delivery(owner="ana", endpoint_id="default", url=f"https://a.example/?n={n}") for n in range(3)]
    assert {Message.of(each).group for each in (*endpoints, *urls)} == {"ana"}


def test_delays_of_a_batch() -> None:
    """Each message of a batch has a delay of its own."""
    sqs = FakeSqs()
    sent = [Message.of(delivery(attempts=number)) for number in range(12)]
    WebhooksQueue(sqs, "url").send_all(sent, delay=lambda message: 100 * message.attempts - 0.5)
    assert sqs.delays == [max(0, min(900, 100 * number)) for number in range(12)]


def test_host() -> None:
    """A message for a job's own URL names the host; that of an endpoint does not, as its URL may change."""
    assert Message.of(delivery(endpoint_id="default", url="https://A.example/?n=1")).host == "host#a.example:443"
    assert Message.of(delivery()).host is None


@pytest.mark.parametrize(
    ("delay", "seconds"), [(0, 0), (0.1, 1), (5.7, 6), (-3, 0), (899.1, 900), (900, 900), (5000, 900)]
)
def test_delay(delay: float, seconds: int) -> None:
    """A delay is rounded up to whole seconds that SQS accepts."""
    sqs = FakeSqs()
    WebhooksQueue(sqs, "url").send(Message.of(delivery()), delay=delay)
    assert sqs.delays == [seconds]


@given(st.integers(0, 35))
def test_any_number(count: int) -> None:
    """Any number of messages is sent in batches of ten, each once and in its group."""
    sqs = FakeSqs()
    sent = [Message.of(delivery(), slot=float(number)) for number in range(count)]
    WebhooksQueue(sqs, "url").send_all(iter(sent))
    assert sqs.messages == sent
    assert all(len(batch) <= 10 for batch in sqs.batches)
    assert len(sqs.batches) == -(-count // 10)
    assert sqs.groups == [message.group for message in sent]


def test_partly_refused() -> None:
    """Messages that SQS refuses raise Unavailable; the others are sent."""
    sqs = FakeSqs(refused={3, 14})
    sent = [Message.of(delivery(), slot=float(number)) for number in range(25)]
    with pytest.raises(Unavailable, match="2"):
        WebhooksQueue(sqs, "url").send_all(sent)
    assert sqs.messages == [message for number, message in enumerate(sent) if number not in (3, 14)]


def test_unknown_field() -> None:
    """A message with an unknown field raises TypeError."""
    body: dict[str, Any] = json.loads(Message.of(delivery()).body)
    with pytest.raises(TypeError):
        Message.parse(json.dumps(body | {"later": 1}))
