"""A kind for tests: a queue worker gives back what it was told. It is about nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from core.errors import Throttled
from core.jobs import Attempt, Job, Kind, Services, Wait
from core.models import Request, Text


class EchoInput(Request):
    """What to give back, how often, after so many attempts that fail; and whether to be kept waiting first."""

    words: list[Text] = Field(max_length=1000)
    times: int = Field(1, ge=1, le=1000)
    fail_attempts: int = Field(0, ge=0, le=9)
    wait: bool = False


class EchoRequested(BaseModel):
    """It has been submitted."""


class EchoHeard(BaseModel):
    """The worker has heard it."""

    count: int


class EchoResult(BaseModel):
    """The same words."""

    words: list[str]


def admit(job: Job, services: Services) -> Wait | None:
    """A job that asks to be kept waiting may begin after its first wait."""
    return Wait("rate_limit", 40) if job.input["wait"] and job.waiting_for is None else None


def answer(attempt: Attempt) -> Mapping[str, Any]:
    asked = attempt.job.input
    attempt.blobs.put(f"work/{attempt.job.job_id}/heard", b"heard")
    attempt.step("heard", count=len(asked["words"]))
    if attempt.job.attempts <= asked["fail_attempts"]:
        raise Throttled("The echo is hoarse.")
    return {"words": asked["words"] * asked["times"]}


ECHO = Kind(
    name="echo",
    input=EchoInput,
    result=EchoResult,
    stages=("answer",),
    events={"requested": EchoRequested, "heard": EchoHeard, "completed": EchoResult},
    runs_on="worker",
    example={"words": ["hello"]},
    admit=admit,
    work=answer,
)
