"""A dispatcher over moto with a virtual clock."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from core import events
from core.dependencies import Dependencies, dependencies
from core.jobs import FINAL, Job, begin, cancel
from core.jobs.machine import report_progress
from core.webhooks.deliveries.model import Delivery, delivery_id
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints.model import Endpoint, Key
from core.webhooks.endpoints.owner_log import OwnerLog
from core.webhooks.endpoints.store import Endpoints
from kinds.document.kind import DOCUMENT
from kinds.replay.kind import REPLAY
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.core.webhooks.samples import attempt, failure
from tests.unit.examples import DAY, job
from webhooks.dispatch.handler import handler

URL = "https://example.com/hook"


class Bench:
    def __init__(self, clock: Clock, calls: Calls) -> None:
        self.clock, self.calls = clock, calls
        self.made = 0

    @property
    def of(self) -> Dependencies:
        return dependencies

    # ── what there is ────────────────────────────────────────────────────────────────────────────────────

    def endpoint(self, owner: str = "ana", **facts: Any) -> Endpoint:
        """An endpoint that wants all events. The dispatcher cannot encrypt, so its key is not a real one."""
        self.made += 1
        made = Endpoint(
            endpoint_id=f"wh_{self.made:026d}",
            owner=owner,
            keys=(Key(encrypted=b"encrypted"),),
            created_at=facts.pop("created_at", events_timestamp()),
            updated_at=events_timestamp(),
            **{"url": URL, "events": ("*",)} | facts,
        )
        Endpoints(self.of.jobs._client, "jobs").create(made)
        return made

    def edit(self, endpoint: Endpoint, **changes: Any) -> None:
        change = self.of.endpoints.change
        change(endpoint.owner, endpoint.endpoint_id, lambda each: replace(each, **changes))

    def job(self, **facts: Any) -> Job:
        """A new document job, with one event."""
        return self.of.jobs.submit(DOCUMENT, job(at=time.time(), **facts)).job

    def canceled(self, **facts: Any) -> Job:
        """A job with three events: uploaded, started, canceled."""
        job_id = self.job(**facts).job_id
        self.of.jobs.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))
        return self.of.jobs.apply(job_id, cancel)

    def progress(self, subject: Job, done: int) -> None:
        self.of.jobs.apply(subject.job_id, report_progress(done, 9))

    def bodies(self, subject: Job) -> list[str]:
        return [event.body for event in self.of.jobs.log.read_all(subject.job_id)]

    def replay(self, endpoint: Endpoint, mode: str, **asked: Any) -> Job:
        """A new replay of all events until now."""
        input = {
            "webhook_id": endpoint.endpoint_id,
            "mode": mode,
            "since": events_timestamp(-30 * DAY),
            "until": events_timestamp(),
            "statuses": ["failed", "discarded"] if mode == "recover" else [],
            "events": [],
        }
        drafted = job(at=time.time(), kind="replay", input=input | asked)
        return self.of.jobs.submit(REPLAY, drafted).job

    # ── what becomes of it ───────────────────────────────────────────────────────────────────────────────

    def find(self, body: str, endpoint: Endpoint | None = None) -> Delivery | None:
        endpoint_id = endpoint.endpoint_id if endpoint else "default"
        return self.of.deliveries.get(delivery_id(json.loads(body)["event_id"], endpoint_id))

    def get(self, body: str, endpoint: Endpoint | None = None) -> Delivery:
        found = self.find(body, endpoint)
        assert found is not None
        return found

    def end(self, delivery: Delivery, *, well: bool = False) -> Delivery:
        """Make its only attempt, which fails unless `well`."""
        claim = self.of.deliveries.claim(delivery.delivery_id, attempts=delivery.attempts)
        assert claim is not None
        made = attempt if well else failure
        done = self.of.deliveries.record(claim, made(claim.attempts + 1), wait=None)
        assert done is not None
        return done

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────

    def arrive(self, *bodies: str, receives: int = 1) -> list[int]:
        """Invoke the dispatcher with these messages. Returns the positions of those that failed."""
        records = [
            {
                "messageId": str(number),
                "body": body,
                "attributes": {"ApproximateReceiveCount": str(receives)},
                "messageAttributes": attributes(body),
            }
            for number, body in enumerate(bodies)
        ]
        failures = handler({"Records": records}, None)["batchItemFailures"]
        return [int(failure["itemIdentifier"]) for failure in failures]

    def queued(self) -> list[Message]:
        """Messages that were sent to the sender since the last call."""
        batches = [call.params for call in self.calls.log if call.operation == "SendMessageBatch"]
        self.calls.log.clear()
        return [Message.parse(entry["MessageBody"]) for batch in batches for entry in batch["Entries"]]

    def run(self, replay: Job) -> int:
        """Run a replay to its end by its messages. Returns the number of slices."""
        client, url = self.of.sqs, self.of.settings.notify_queue_url
        body, slices = json.dumps({"event": "replay.continued", "job_id": replay.job_id}), 0
        waiting = [body]
        while waiting:
            assert self.arrive(waiting.pop()) == []
            slices += 1
            for message in client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
                waiting.append(message["Body"])
                client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return slices

    def owner_event(self, name: str, **facts: Any) -> str:
        """The bytes of an event of the owner."""
        log = OwnerLog(self.of.jobs._client, "jobs", retention_seconds=DAY)
        log.append("ana", name, **facts)
        return log.page("ana")[0][0]


def attributes(body: str) -> dict[str, dict[str, str]]:
    """The message attributes of an event of `ana` that the dispatcher reads."""
    facts = {"owner": "ana"}
    with suppress(ValueError):
        payload = json.loads(body)
        if "status" in payload:
            first = "submitted" if payload["sequence"] == 1 else "progress"
            facts["lifecycle"] = "ended" if payload["status"] in FINAL else first
    return {name: {"stringValue": value, "dataType": "String"} for name, value in facts.items()}


def events_timestamp(seconds: float = 0) -> str:
    return events.timestamp(time.time() + seconds)


@pytest.fixture
def bench(environment: dict[str, str], jobs_table: str, deliveries_table: str, queues: None) -> Iterator[Bench]:
    clock = Clock()
    calls = Calls(clock)
    with clock.running(), calls.intercepted():
        yield Bench(clock, calls)
