"""A kind for tests: a state machine of one Task counts the words of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from core.jobs import Attempt, Inputs, Job, Kind, Services
from core.models import Request


class TallyInput(Request):
    """Words to count."""

    text: str
    list_name: str = "words"


class TallyAsked(BaseModel):
    """It has been submitted."""

    bytes: int


class TallyHalved(BaseModel):
    """Half of the words are counted."""

    words: int


class TallyResult(BaseModel):
    """How many words there are, and all of them if they were asked for."""

    words: int
    all_words: list[str]


def prepare(asked: TallyInput, inputs: Inputs) -> Mapping[str, Any]:
    return {"list_name": asked.list_name, **inputs.keep_text(asked.text, field="input.text")}


def count(attempt: Attempt) -> Mapping[str, Any]:
    """Words that begin with `+` are listed."""
    job = attempt.job
    words = attempt.blobs.get(job.input["source_key"], etag=job.input["etag"]).decode().split()
    attempt.blobs.put(f"work/{job.job_id}/half", b"half")
    attempt.report(1, 2)
    attempt.step("halved", words=len(words) // 2)
    return {"words": len(words), "all_words": [word for word in words if word.startswith("+")]}


def clean_up(job: Job, services: Services) -> None:
    services.blobs.delete([job.input["source_key"]] if job.status == "canceled" else [])


TALLY = Kind(
    name="tally",
    input=TallyInput,
    result=TallyResult,
    subject="list_name",
    stages=("count",),
    events={"asked": TallyAsked, "halved": TallyHalved, "counted": TallyResult},
    runs_on="machine",
    example={"text": "one two three four"},
    headline=("words",),
    prepare=prepare,
    on_ended=clean_up,
)
