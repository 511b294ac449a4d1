"""What a job came to. A small result is in the row and in the last event; a large one is an object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core import events
from core.aws.blobs import Blobs
from core.jobs.job import Job

MAX_RESULT_BYTES = 32 * 1024
"""As JSON. The event goes through SNS, SQS and webhooks, and a WebSocket's frame has this many bytes."""


def keep_large(blobs: Blobs, job: Job, result: Mapping[str, Any]) -> str | None:
    """Store a result that is too large for a row, and return its key; None for one that is not."""
    body = events.encode(result)
    if len(body) <= MAX_RESULT_BYTES:
        return None
    key = f"results/{job.owner}/{job.job_id}/result.json"
    blobs.put(key, body.encode(), content_type="application/json")
    return key


def result_of(blobs: Blobs, output: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result that a Task has returned, read from the bucket where it was too large."""
    if output.keys() != {"result_key"}:
        return output
    result: Mapping[str, Any] = json.loads(blobs.get(output["result_key"]))
    return result
