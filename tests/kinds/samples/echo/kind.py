"""A kind for tests on a queue worker, which returns its input. It has no subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from core.errors import Throttled
from core.jobs import Attempt, Job, Kind, Services, Wait
from core.models import Request, Text


class EchoInput(Request):
    """The words to return, how often, after how many failing attempts, and whether to wait first."""

    words: list[Text] = Field(max_length=1000)
    times: int = Field(1, ge=1, le=1000)
    fail_attempts: int = Field(0, ge=0, le=9)
    wait: bool = False


class EchoRequested(BaseModel):
    """The job was submitted."""


class EchoReceived(BaseModel):
    """The worker has read the input."""

    count: int


class EchoResult(BaseModel):
    """The words of the input."""

    words: list[str]


def admit(job: Job, services: Services) -> Wait | None:
    """A job with `wait` may start after its first wait."""
    return Wait("rate_limit", 40) if job.input["wait"] and job.waiting_for is None else None


def answer(attempt: Attempt) -> Mapping[str, Any]:
    given = attempt.job.input
    attempt.blobs.put(f"work/{attempt.job.job_id}/received", b"received")
    attempt.step("received", count=len(given["words"]))
    if attempt.job.attempts <= given["fail_attempts"]:
        raise Throttled("The echo is busy.")
    return {"words": given["words"] * given["times"]}


ECHO = Kind(
    name="echo",
    input=EchoInput,
    result=EchoResult,
    stages=("answer",),
    events={"requested": EchoRequested, "received": EchoReceived, "completed": EchoResult},
    runs_on="worker",
    example={"words": ["hello"]},
    admit=admit,
    work=answer,
)
