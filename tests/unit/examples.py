"""Ordinary jobs, events and documents for tests that need one, and care about a field or two."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from core import events, ids
from core.events import Event
from core.jobs import Job, Kind
from kinds.document.index.catalog import Document
from kinds.registry import KINDS

NOW = 1_796_000_000.0  # the tests' time, in seconds since the epoch, where they do not use their own
DAY = 86_400
OWNER = "ana"


def job(**facts: Any) -> Job:
    """A document's job, just drafted at NOW: four hours to its deadline, ninety days to live."""
    at = facts.pop("at", NOW)
    defaults: dict[str, Any] = {
        "job_id": ids.new("job"),
        "owner": OWNER,
        "kind": "document",
        "input": {"document_id": "notes", "source_key": "inputs/ana/1", "etag": '"1"', "bytes": 12},
        "created_at": events.timestamp(at),
        "updated_at": events.timestamp(at),
        "deadline": events.timestamp(at + 4 * 3600),
        "expires_at": int(at) + 90 * DAY,
    }
    facts = defaults | facts
    kind = KINDS.get(facts["kind"])
    return Job(**{"subject": kind.subject_of(facts["input"]) if kind else {}} | facts)


def replay(**facts: Any) -> Job:
    """A job that sends the failed webhooks of an hour again, just drafted at NOW."""
    asked = {
        "webhook_id": "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C",
        "mode": "recover",
        "since": events.timestamp(NOW - 3600),
        "until": events.timestamp(NOW),
        "statuses": ["failed"],
        "events": ["document.*"],
    }
    return job(**{"kind": "replay", "input": asked} | facts)


def document(**facts: Any) -> Document:
    """A document of 3 chunks in 2 batches."""
    defaults: dict[str, Any] = {
        "document_id": "notes",
        "version": ids.ulid_of(ids.new("job")),
        "job_id": ids.new("job"),
        "index": "model-2",
        "batches": 2,
        "chunks": 3,
        "characters": 40,
        "media_type": "text/plain",
        "indexed_at": events.timestamp(NOW),
    }
    return Document(**defaults | facts)


def event(**facts: Any) -> Event:
    """What a completed document's job logs last."""
    defaults: dict[str, Any] = {
        "event_id": ids.new("evt"),
        "name": "document.indexed",
        "job_id": ids.new("job"),
        "kind": "document",
        "owner": OWNER,
        "sequence": 5,
        "timestamp": events.timestamp(NOW),
        "body": '{"event":"document.indexed"}',
        "status": "completed",
        "lifecycle": "ended",
    }
    return Event(**defaults | facts)


class EchoInput(BaseModel):
    """A text to be said again."""

    text: str
    times: int = 1


class EchoRequested(BaseModel):
    """An echo was asked for."""

    times: int


class Echoed(BaseModel):
    """What was said."""

    said: str


def echo_kind(**facts: Any) -> Kind:
    """The shortest kind that there can be, which nobody has registered. A worker runs it."""
    defaults: dict[str, Any] = {
        "name": "echo",
        "input": EchoInput,
        "example": {"text": "hello"},
        "result": Echoed,
        "stages": ("say",),
        "events": {"requested": EchoRequested, "said": Echoed},
        "runs_on": "worker",
        "work": lambda attempt: {"said": attempt.job.input["text"]},
    }
    return Kind(**defaults | facts)


class FakeClock:
    """A clock that a test sets. `sleep` advances it by exactly the given seconds."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
