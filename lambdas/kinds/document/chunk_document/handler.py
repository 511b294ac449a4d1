"""Stage 2: cuts the text into chunks, in batches. Their number is limited by the history of an execution."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from core.aws import errors as aws_errors
from core.aws.blobs import batch_key
from core.dependencies import dependencies
from core.errors import EmptyDocument
from core.jobs import begin, step
from core.jobs.finish import end_step
from kinds.document.dependencies import document_dependencies
from kinds.document.kind import DOCUMENT
from kinds.document.reading.chunk import Chunk, chunk

# Each batch takes 8 events of an execution's history, which has at most 25,000:
# https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
MAX_BATCHES = 400


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    jobs, blobs, settings = dependencies.jobs, dependencies.blobs, document_dependencies.settings
    job = jobs.apply(event["job_id"], begin(DOCUMENT, stage="chunk", lease=event["execution"]))
    text = blobs.get(event["text_key"]).decode()
    chunks = list(chunk(text, size=settings.chunk_size, overlap=settings.chunk_overlap))
    if not chunks:
        raise EmptyDocument("The document contains only white space.")
    size = batch_size(len(chunks), settings.chunks_per_batch)
    batches = math.ceil(len(chunks) / size)
    for batch in range(batches):
        first = batch * size
        blobs.put(batch_key(job.job_id, batch), _lines(chunks[first : first + size], first))
    facts = {"chunks": len(chunks), "batches": batches, "characters": len(text)}
    end_step(jobs, blobs, job, step(verb="chunked", lease=event["execution"], next_stage="embed", **facts))
    jobs.progress.expect_batches(job, batches)
    return facts | {"last_batch": batches - 1}


def batch_size(chunks: int, usual: int) -> int:
    """Chunks per batch: the usual number, or more if there would be too many batches."""
    return max(usual, math.ceil(chunks / MAX_BATCHES))


def _lines(chunks: Sequence[Chunk], first: int) -> bytes:
    """One JSON object per line. `chunk` is its number in the document."""
    return "".join(
        json.dumps({"chunk": first + i, "text": c.text, "start": c.start, "end": c.end, "heading": c.heading})
        + "\n"
        for i, c in enumerate(chunks)
    ).encode()
