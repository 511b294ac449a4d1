"""Sample deliveries and attempts, and a fake queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core import ids
from core.webhooks.deliveries.model import Attempt, Delivery, draft
from core.webhooks.deliveries.queue import Message
from tests.unit.examples import DAY, NOW

ENDPOINT = "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C"


def delivery(**facts: Any) -> Delivery:
    """A new delivery to an endpoint, drafted at NOW and kept for 30 days."""
    defaults: dict[str, Any] = {
        "event_id": ids.new("evt"),
        "event": "document.indexed",
        "endpoint_id": ENDPOINT,
        "owner": "ana",
        "format": "recado",
        "body": '{"a":"\\u00e9"}',
        "job_id": "job_1",
        "sequence": 5,
        "now": NOW,
        "retention_seconds": 30 * DAY,
    }
    first = {
        name: facts.pop(name) for name in ("event_id", "endpoint_id", "now", "retention_seconds") if name in facts
    }
    return replace(draft(**defaults | first), **facts)


def attempt(number: int, **facts: Any) -> Attempt:
    """An attempt with the response 204."""
    defaults: dict[str, Any] = {
        "at": "2026-11-30T10:00:00.000Z",
        "trigger": "automatic",
        "url": "https://example.com/hook",
        "duration_ms": 5,
        "status": 204,
        "request_headers": {"webhook-id": "evt_1"},
        "response_headers": {"content-type": "text/plain"},
        "body": "",
    }
    return Attempt(number=number, **defaults | facts)


def failure(number: int, **facts: Any) -> Attempt:
    return attempt(number, **{"status": None, "error": "timeout", "message": "no answer in time"} | facts)


class FakeSqs:
    """Accepts messages like SQS. `refused` are the numbers (from 0) of messages that it refuses."""

    def __init__(self, refused: set[int] | None = None) -> None:
        self._refused = refused or set()
        self._seen = 0
        self.batches: list[list[dict[str, Any]]] = []
        self.messages: list[Message] = []
        self.delays: list[int] = []
        self.groups: list[str] = []

    def send_message(self, *, QueueUrl: str, MessageBody: str, MessageGroupId: str, DelaySeconds: int = 0) -> None:
        self.messages.append(Message.parse(MessageBody))
        self.delays.append(DelaySeconds)
        self.groups.append(MessageGroupId)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        assert 0 < len(Entries) <= 10
        assert len({entry["Id"] for entry in Entries}) == len(Entries)
        self.batches.append(Entries)
        failed = []
        for entry in Entries:
            if self._seen in self._refused:
                failed.append({"Id": entry["Id"], "Code": "InternalError", "SenderFault": False})
            else:
                self.send_message(
                    QueueUrl=QueueUrl,
                    MessageBody=entry["MessageBody"],
                    MessageGroupId=entry["MessageGroupId"],
                    DelaySeconds=entry["DelaySeconds"],
                )
            self._seen += 1
        return {"Successful": [], "Failed": failed} if failed else {"Successful": []}
