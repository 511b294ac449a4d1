"""Embeds one batch of a document's chunks. Vectors are stored even if the batch fails: they were paid for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core.aws.blobs import batch_key, work_folder
from core.dependencies import dependencies
from core.errors import CountMismatch, SourceNotFound
from core.jobs import Job
from kinds.document.dependencies import document_dependencies
from kinds.document.index.embedding import SecondsLeft, Vector
from kinds.document.index.vectors import pack, unpack, version_of

RESERVE_SECONDS = 30.0  # for storing vectors before the function times out


def embed(job: Job, message: Mapping[str, Any], seconds_left: SecondsLeft) -> None:
    """Write the vectors of one batch, unless they exist."""
    batch = message["batch"]
    vectors, version = document_dependencies.vectors, version_of(job)
    if not vectors.has(version, batch):
        chunks = _chunks(job, batch)
        texts = [chunk["text"] for chunk in chunks]
        rows = _vectors(job, batch, texts, lambda: seconds_left() - RESERVE_SECONDS)
        if len(rows) != len(chunks):
            raise CountMismatch(f"The embedding model returned {len(rows)} vectors for {len(chunks)} chunks.")
        vectors.put(version, batch, rows, chunks)
    dependencies.jobs.progress.mark_batch(job, batch, total=message["batches"])


def _chunks(job: Job, batch: int) -> list[dict[str, Any]]:
    lines = dependencies.blobs.get(batch_key(job.job_id, batch)).decode().splitlines()
    return [json.loads(line) for line in lines]


def _vectors(job: Job, batch: int, texts: list[str], seconds_left: SecondsLeft) -> list[Vector]:
    """The vectors of earlier attempts, and the others from the model. If it fails, all vectors are stored."""
    key = _partial_key(job, batch)
    rows = _stored(key)
    stored = len(rows)
    try:
        for row in document_dependencies.embedder.embed(texts[stored:], seconds_left=seconds_left):
            rows.append(row)  # one by one, so that an exception does not lose the ones before
    except BaseException:
        if len(rows) > stored:
            dependencies.blobs.put(key, pack(rows))
        raise
    return rows


def _stored(key: str) -> list[Vector]:
    try:
        return unpack(dependencies.blobs.get(key), document_dependencies.vectors.dimensions)
    except SourceNotFound:
        return []


def _partial_key(job: Job, batch: int) -> str:
    return f"{work_folder(job.job_id)}partial/{batch:04d}.f32"
