"""Bulk embedding: the lines of a file are embedded in batches; the vectors become Parquet and JSON Lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.aws.blobs import results_of
from core.jobs import Inputs, Job, Kind, Services
from kinds.embedding.models import (
    Embedding,
    EmbeddingEmbedded,
    EmbeddingInput,
    EmbeddingPlanned,
    EmbeddingRequested,
)


def _prepare(request: EmbeddingInput, inputs: Inputs) -> Mapping[str, Any]:
    from kinds.embedding.submission import prepare  # only the API has its settings

    return prepare(request, inputs)


def _on_batch(job: Job, message: Mapping[str, Any], seconds_left: Callable[[], float]) -> None:
    from kinds.embedding.batches import on_batch  # only the worker has its settings

    on_batch(job, message, seconds_left)


def _clean_up(job: Job, services: Services) -> None:
    """Delete the files of a job that ended while they were written."""
    if job.status != "completed":
        services.blobs.delete_all(results_of(job.owner, job.job_id))


EMBEDDING = Kind(
    name="embedding",
    input=EmbeddingInput,
    example={"texts": ["Where is the cellar key?", "Behind the door."]},
    result=Embedding,
    stages=("plan", "embed", "export"),
    events={
        "requested": EmbeddingRequested,
        "planned": EmbeddingPlanned,
        "embedded": EmbeddingEmbedded,
        "completed": Embedding,
    },
    runs_on="machine",
    headline=("embedded", "errors"),
    prepare=_prepare,
    on_batch=_on_batch,
    on_ended=_clean_up,
)
