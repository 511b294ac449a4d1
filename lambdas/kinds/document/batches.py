"""One batch of a document's chunks becomes vectors. What was paid for is kept, whatever happens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from core.aws.blobs import batch_key, work_folder
from core.dependencies import dependencies
from core.errors import CountMismatch, SourceNotFound
from core.jobs import Job
from kinds.document.dependencies import document_dependencies
from kinds.document.index.embedding import TimeBudget, Vector
from kinds.document.index.vectors import pack, unpack
from kinds.document.kind import version_of

RESERVE_SECONDS = 30.0  # for writing down what is done before the function's time is up


def embed(job: Job, message: Mapping[str, Any], seconds_left: Callable[[], float]) -> None:
    """Write the vectors of one batch, unless they are there."""
    batch = message["batch"]
    vectors, version = document_dependencies.vectors, version_of(job)
    if not vectors.has(version, batch):
        chunks = _chunks(job, batch)
        texts = [chunk["text"] for chunk in chunks]
        rows = _vectors(job, batch, texts, lambda: seconds_left() - RESERVE_SECONDS)
        if len(rows) != len(chunks):
            raise CountMismatch(f"{len(chunks)} chunks gave {len(rows)} vectors.")
        vectors.put(version, batch, rows, chunks)
    dependencies.jobs.mark_batch(job, batch, total=message["batches"])


def _chunks(job: Job, batch: int) -> list[dict[str, Any]]:
    lines = dependencies.blobs.get(batch_key(job.job_id, batch)).decode().splitlines()
    return [json.loads(line) for line in lines]


def _vectors(job: Job, batch: int, texts: list[str], patience: TimeBudget) -> list[Vector]:
    """What an earlier try has paid for, and the rest from the model; kept if the model lets us down again."""
    key = _partial_key(job, batch)
    rows = _paid_for(key)
    paid = len(rows)
    try:
        for row in document_dependencies.embedder.embed(texts[paid:], patience=patience):
            rows.append(row)  # one by one, so that an exception leaves what was paid for
    except BaseException:
        if len(rows) > paid:
            dependencies.blobs.put(key, pack(rows))
        raise
    return rows


def _paid_for(key: str) -> list[Vector]:
    try:
        return unpack(dependencies.blobs.get(key), document_dependencies.vectors.dimensions)
    except SourceNotFound:
        return []


def _partial_key(job: Job, batch: int) -> str:
    return f"{work_folder(job.job_id)}partial/{batch:04d}.f32"
