"""The files of a fine-tune.

Amazon Bedrock reads the dataset and writes its own files, so its role names these two places
(stacks/kinds/fine_tune.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core.aws.blobs import Blobs, results_of, work_folder


def dataset_key(job_id: str) -> str:
    return f"{work_folder(job_id)}fine_tune/dataset.jsonl"


def output_prefix(owner: str, job_id: str) -> str:
    """Of the service's files: training losses by step, in CSV. They are kept as long as the job."""
    return f"{results_of(owner, job_id)}fine_tune/"


def result_key(job_id: str) -> str:
    """The key of the result, until the job has completed."""
    return f"{work_folder(job_id)}fine_tune/result.json"


def write_result(blobs: Blobs, job_id: str, result: Mapping[str, Any]) -> None:
    blobs.put(result_key(job_id), json.dumps(result).encode(), content_type="application/json")


def write_message(blobs: Blobs, job_id: str, message: Mapping[str, Any]) -> None:
    """Keep the message with the token of the task that waits for the training."""
    blobs.put(_message_key(job_id), json.dumps(message).encode(), content_type="application/json")


def read_message(blobs: Blobs, job_id: str) -> dict[str, Any]:
    """Raises SourceNotFound if the job has ended, or its training was not started."""
    message: dict[str, Any] = json.loads(blobs.get(_message_key(job_id)))
    return message


def _message_key(job_id: str) -> str:
    return f"{work_folder(job_id)}fine_tune/message.json"
