"""The events of Amazon Bedrock about trainings (kinds.fine_tune.training_ended)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.aws.blobs import Blobs
from core.jobs import JobStore
from kinds.fine_tune.customization import name_of
from kinds.fine_tune.files import write_message
from kinds.fine_tune.training_ended.handler import handler

MESSAGE = {"task_token": "t", "execution": "e", "job_id": "job_1", "owner": "ana", "batch": 0}


def event(job_id: str) -> dict[str, Any]:
    return {"detail": {"jobName": name_of(job_id), "jobStatus": "Completed"}}


def test_message(store: JobStore, blobs: Blobs, messages: Callable[[str], list[Any]]) -> None:
    """The worker gets the message of the job's task at once."""
    write_message(blobs, "job_1", MESSAGE)
    handler(event("job_1"), None)
    assert messages("EMBEDDING_QUEUE_URL") == [MESSAGE]


def test_no_open_job(store: JobStore, messages: Callable[[str], list[Any]]) -> None:
    """An event about a job that has ended, or about another deployment's, has no effect."""
    handler(event("job_2"), None)
    assert messages("EMBEDDING_QUEUE_URL") == []
