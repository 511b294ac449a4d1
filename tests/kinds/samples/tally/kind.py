"""A kind for tests on a state machine with one Task, which counts the words of a text."""

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


class TallyRequested(BaseModel):
    """The job was submitted."""

    bytes: int


class TallyHalved(BaseModel):
    """Half of the words were counted."""

    words: int


class TallyResult(BaseModel):
    """The number of words, and the listed ones."""

    words: int
    all_words: list[str]


def prepare(request: TallyInput, inputs: Inputs) -> Mapping[str, Any]:
    return {"list_name": request.list_name, **inputs.keep_text(request.text, field="input.text")}


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
    events={"requested": TallyRequested, "halved": TallyHalved, "counted": TallyResult},
    runs_on="machine",
    example={"text": "one two three four"},
    headline=("words",),
    prepare=prepare,
    on_ended=clean_up,
)
