"""Stage 1: the document's bytes become text, or the job fails with a code that says why."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from core.aws import clients, settings
from core.aws import errors as aws_errors
from core.aws.blobs import Blobs, work_folder
from core.errors import DocumentTooLarge, JobClosed
from core.jobs import JobStore, begin
from kinds.document.kind import DOCUMENT
from kinds.document.reading.parse import Limits, parse


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    data_bucket: str
    max_upload_bytes: int
    max_characters: int
    parse_timeout_seconds: int
    parse_memory_mb: int


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    blobs: Blobs
    limits: Limits


@functools.cache
def dependencies() -> Dependencies:
    config = settings.load(Settings)
    limits = Limits(
        max_bytes=config.max_upload_bytes,
        max_characters=config.max_characters,
        timeout_seconds=config.parse_timeout_seconds,
        memory_mb=config.parse_memory_mb,
    )
    return Dependencies(
        JobStore(clients.dynamodb(), config.jobs_table), Blobs(clients.s3(), config.data_bucket), limits
    )


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    jobs, blobs, limits = dependencies().jobs, dependencies().blobs, dependencies().limits
    job = jobs.apply(event["job_id"], begin(DOCUMENT, stage="validate", lease=event["execution"]))
    data = blobs.get(event["source_key"], etag=job.input.get("etag"), max_bytes=limits.max_bytes + 1)
    if len(data) > limits.max_bytes:
        raise DocumentTooLarge(f"The document is larger than {limits.max_bytes} bytes.")
    document = parse(data, limits=limits)
    text_key = f"{work_folder(job.job_id)}text"
    blobs.put(text_key, document.text.encode(), content_type="text/plain; charset=utf-8")
    if jobs.get(job.job_id).is_final:  # canceled, and cleaned up after, while the document was read
        blobs.delete([text_key])
        raise JobClosed("the job has ended")
    return {"text_key": text_key, "characters": len(document.text), "media_type": document.media_type}
