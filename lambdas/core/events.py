"""What an event is: its names, its envelope, and its one serialisation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

STEPS = {
    "document": ("uploaded", "started", "chunked", "embedded", "indexed"),
    "replay": ("requested", "started", "completed"),
}
"""For each kind, the events that are logged once, in the order in which they can happen."""

ENDINGS = {"completed": {"document": "indexed"}, "failed": {}, "canceled": {}}
"""How a final status is named in a kind's events, where the name is not the status itself."""

REPEATABLE = ("retried", "progressed")
KINDS = tuple(STEPS)

OWNER_KIND = "endpoint"
OWNER_EVENTS = ("endpoint.disabled", "ping")
"""The events of an owner rather than of a job: they have no job id and no sequence."""


@dataclass(frozen=True, slots=True)
class Event:
    """One fact in a job's log. `body` is the payload as it is sent, now and at any replay.

    An owner's own events have neither job nor sequence.
    """

    event_id: str
    name: str
    job_id: str | None
    kind: str
    owner: str
    sequence: int | None
    timestamp: str
    body: str

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Event:
        """As a job's log has it stored."""
        names = ("event_id", "name", "job_id", "kind", "owner", "timestamp", "body")
        return cls(**{key: item[key] for key in names}, sequence=int(item["sequence"]))

    @property
    def final_status(self) -> str | None:
        """The status that the job ends in with this event; None for all but its last."""
        names = {f"{self.kind}.{ending(self.kind, status)}": status for status in ENDINGS}
        return names.get(self.name)

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.body)
        return payload


def ending(kind: str, status: str) -> str:
    """The past participle that announces a final status: a completed document is `indexed`."""
    return ENDINGS[status].get(kind, status)


def names(kind: str) -> tuple[str, ...]:
    """Every event name that a job of this kind can log."""
    return tuple(f"{kind}.{verb}" for verb in (*STEPS[kind], "failed", "canceled", *REPEATABLE))


def final_names(kind: str) -> tuple[str, ...]:
    """The events that end a job of this kind."""
    return tuple(f"{kind}.{ending(kind, status)}" for status in ENDINGS)


def is_failure(name: str) -> bool:
    """Whether people should be alerted."""
    return name.endswith(".failed") or name == "endpoint.disabled"


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339 UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode(payload: Mapping[str, Any]) -> str:
    """JSON, all ASCII: SQS refuses some characters, and no text of a caller may lose an event.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
    """
    return json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
