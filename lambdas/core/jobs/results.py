"""Results of jobs. A small result is stored with the job and in its last event, a large one in S3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core import events
from core.aws.blobs import Blobs, results_of
from core.jobs.job import Job

MAX_RESULT_BYTES = 32 * 1024
"""Of JSON. An event passes SNS, SQS and webhooks, and this is the size of a WebSocket frame."""


def store_if_large(blobs: Blobs, job: Job, result: Mapping[str, Any]) -> str | None:
    """Store a result that is too large for the job's item, and return its key; None for a small one."""
    body = events.encode(result)
    if len(body) <= MAX_RESULT_BYTES:
        return None
    key = f"{results_of(job.owner, job.job_id)}result.json"
    blobs.put(key, body.encode(), content_type="application/json")
    return key


def result_of(blobs: Blobs, output: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of a Task with this output, read from S3 if it was too large."""
    if output.keys() != {"result_key"}:
        return output
    result: Mapping[str, Any] = json.loads(blobs.get(output["result_key"]))
    return result


def result_files(job: Job) -> dict[str, str]:
    """The keys of the files that belong to the job's result, by their labels.

    A kind whose result is several files stores them below `results_of`, and its result has a field `files`: an
    object with a file's name for each label.
    """
    names = (job.result or {}).get("files")
    if not isinstance(names, Mapping):
        return {}
    return {str(label): f"{results_of(job.owner, job.job_id)}{name}" for label, name in names.items()}
