"""Stage 1: extracts the document's text, or fails the job with a code for the reason."""

from __future__ import annotations

from typing import Any

from core.aws import errors as aws_errors
from core.aws.blobs import work_folder
from core.dependencies import dependencies
from core.errors import DocumentTooLarge, JobClosed
from core.jobs import begin
from kinds.document.dependencies import document_dependencies
from kinds.document.kind import DOCUMENT
from kinds.document.reading.parse import parse


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    jobs, blobs, limits = dependencies.jobs, dependencies.blobs, document_dependencies.limits
    job = jobs.apply(event["job_id"], begin(DOCUMENT, stage="validate", lease=event["execution"]))
    data = blobs.get(event["source_key"], etag=job.input.get("etag"), max_bytes=limits.max_bytes + 1)
    if len(data) > limits.max_bytes:
        raise DocumentTooLarge(f"The document has more than {limits.max_bytes} bytes, which is the limit.")
    document = parse(data, limits=limits)
    text_key = f"{work_folder(job.job_id)}text"
    blobs.put(text_key, document.text.encode(), content_type="text/plain; charset=utf-8")
    try:
        jobs.require_open(job.job_id)
    except JobClosed:  # canceled, perhaps deleted, and cleaned up while the document was read
        blobs.delete([text_key])
        raise
    return {"text_key": text_key, "characters": len(document.text), "media_type": document.media_type}
