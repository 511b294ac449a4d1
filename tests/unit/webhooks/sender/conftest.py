"""A sender over moto with a virtual clock, and a fake receiver."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from core.dependencies import Dependencies, dependencies
from core.jobs import Job
from core.webhooks.deliveries.health import AttemptOutcome, Health
from core.webhooks.deliveries.model import Attempt, Delivery, host_destination
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints.model import Endpoint
from core.webhooks.transport import client
from kinds.document.kind import DOCUMENT
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.core.webhooks.samples import delivery
from tests.unit.examples import job
from webhooks.sender.handler import handler

URL = "https://example.com/hook?token=t"
BODY = '{"text":"a\\u00f1o \\ud83d\\udc69"}'


def answered(status: int, body: bytes = b"", *, truncated: bool = False, **headers: str) -> client.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.Response(status=status, headers=named, body=body, truncated=truncated)


class Receiver:
    """Replaces `client.post`. `answers` are by host, `answer` is for all other hosts."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer: Any = answered(204)
        self.answers: dict[str, Any] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def post(self, url: str, **request: Any) -> client.Response:
        with self._lock:
            self.requests.append({"url": url, **request})
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        answer = self.answers.get(url.split("/")[2], self.answer)
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        found: client.Response = answer
        return found


class Bench:
    """The clock, the calls, the receiver, and what is in the tables. The host of URL has had a success."""

    def __init__(self, clock: Clock, calls: Calls, receiver: Receiver) -> None:
        self.clock, self.calls, self.receiver = clock, calls, receiver
        self.secrets: dict[str, str] = {}

    @property
    def of(self) -> Dependencies:
        return dependencies

    # ── what there is ────────────────────────────────────────────────────────────────────────────────────

    def endpoint(self, **facts: Any) -> Endpoint:
        made, secret = self.of.endpoints_with_secrets.draft("ana", **{"url": URL, "events": ("*",)} | facts)
        self.of.endpoints.create(made)
        self.secrets[made.endpoint_id] = secret or ""
        return made

    def edit(self, endpoint: Endpoint, **changes: Any) -> None:
        self.of.endpoints.change("ana", endpoint.endpoint_id, lambda each: replace(each, **changes))

    def again(self, endpoint: Endpoint) -> Endpoint:
        return self.of.endpoints.get("ana", endpoint.endpoint_id)

    def delivery(self, endpoint: Endpoint, **facts: Any) -> Delivery:
        defaults = {"endpoint_id": endpoint.endpoint_id, "now": time.time(), "body": BODY, "job_id": None}
        return self.of.deliveries.create(delivery(**defaults | facts))

    def of_job(self, **facts: Any) -> tuple[Job, Delivery]:
        """A job with its delivery, and the owner's default endpoint."""
        if self.of.endpoints.find("ana") is None:
            self.of.endpoints.create(self.of.endpoints_with_secrets.draft("ana", "default")[0])
        subject = self.of.after_attempt._jobs.submit(DOCUMENT, job(at=time.time(), webhook_url=URL)).job
        default = self.of.endpoints.get("ana", "default")
        facts = {"url": URL, "job_id": subject.job_id, "job_expires_at": subject.expires_at} | facts
        return subject, self.delivery(default, **facts)

    def now(self, delivery: Delivery) -> Delivery:
        found = self.of.deliveries.get(delivery.delivery_id)
        assert found is not None
        return found

    def attempts(self, delivery: Delivery) -> list[Attempt]:
        return self.of.deliveries.with_attempts(delivery.delivery_id, owner="ana")[1]

    def last(self, delivery: Delivery) -> Attempt:
        return self.attempts(delivery)[-1]

    def entry(self, delivery: Delivery) -> str | None:
        key = {"pk": f"DELIVERY#{delivery.delivery_id}", "sk": "META"}
        item = self.of.dynamodb.get_item(TableName="deliveries", Key=key)["Item"]
        return item.get("gsi2pk")

    def due(self, delivery: Delivery) -> float:
        """Seconds until the delivery is due in the index."""
        key = {"pk": f"DELIVERY#{delivery.delivery_id}", "sk": "META"}
        item = self.of.dynamodb.get_item(TableName="deliveries", Key=key)["Item"]
        assert item["gsi2pk"].startswith("DUE#")
        return datetime.fromisoformat(item["gsi2sk"]).timestamp() - time.time()

    def verify(self, url: str = URL) -> None:
        """Record a success of the host in the URL, without which only a few attempts at once go to it."""
        outcome = AttemptOutcome(time.time(), True, ended=True)
        self.of.health.record_outcomes(self.host(url), [outcome])

    def host(self, url: str = URL) -> Health:
        return self.of.health.get("ana", host_destination(url))

    def health(self, delivery: Delivery) -> Health:
        return self.of.health.get("ana", delivery.destination)

    def failing(self, delivery: Delivery, *, hours: float = 0, times: int = 1) -> None:
        """Record so many failures of the destination, so many hours ago."""
        outcomes = [AttemptOutcome(time.time() - hours * 3600, False, ended=False)] * times
        self.of.health.record_outcomes(self.health(delivery), outcomes)

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────

    def send(self, *what: Delivery | Message | str, receives: int = 1) -> list[int]:
        """Invoke the sender with a batch. Returns the positions of the messages that failed."""
        bodies = [each if isinstance(each, str) else message(each).body for each in what]
        records = [
            {
                "messageId": str(number),
                "body": body,
                "attributes": {"ApproximateReceiveCount": str(receives)},
            }
            for number, body in enumerate(bodies)
        ]
        answer = handler({"Records": records}, None)
        return [int(failure["itemIdentifier"]) for failure in answer["batchItemFailures"]]

    def queued(self) -> list[tuple[Message, int]]:
        """Messages that were sent since the last call, with their delays."""
        sent = [call.params for call in self.calls.log if call.operation == "SendMessage"]
        self.calls.log.clear()
        return [(Message.parse(each["MessageBody"]), each["DelaySeconds"]) for each in sent]

    def events(self) -> list[dict[str, Any]]:
        """The owner's own events, oldest first."""
        return [json.loads(body) for body in self.of.owner_log.page("ana")[0]][::-1]


def message(what: Delivery | Message, **facts: Any) -> Message:
    return replace(what, **facts) if isinstance(what, Message) else Message.of(what, **facts)


@pytest.fixture
def bench(
    environment: dict[str, str],
    jobs_table: str,
    deliveries_table: str,
    secrets_key: str,
    queues: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Bench]:
    receiver, clock = Receiver(), Clock()
    monkeypatch.setattr(client, "post", receiver.post)
    calls = Calls(clock)
    with clock.running(), calls.intercepted():
        made = Bench(clock, calls, receiver)
        made.verify()
        yield made
