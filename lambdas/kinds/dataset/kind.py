"""Datasets: a CSV file is cleaned, a model is trained, rows are predicted, and files and a report are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.aws.blobs import results_of
from core.jobs import Inputs, Job, Kind, Services
from kinds.dataset import errors
from kinds.dataset.models import (
    Dataset,
    DatasetCleaned,
    DatasetInput,
    DatasetPredicted,
    DatasetTrained,
    DatasetUploaded,
)

ERRORS = errors
"""Their names must be known wherever a job can fail."""


def _prepare(request: DatasetInput, inputs: Inputs) -> Mapping[str, Any]:
    from kinds.dataset.submission import prepare  # only the API needs it

    return prepare(request, inputs)


def _clean_up(job: Job, services: Services) -> None:
    """Delete the files of a job that did not complete."""
    if job.status != "completed":
        services.blobs.delete_all(results_of(job.owner, job.job_id))


DATASET = Kind(
    name="dataset",
    input=DatasetInput,
    example={"s3_key": "uploads/…", "target": "returned"},
    result=Dataset,
    subject="target",
    stages=("clean", "train", "predict", "export", "report"),
    events={
        "uploaded": DatasetUploaded,
        "cleaned": DatasetCleaned,
        "trained": DatasetTrained,
        "predicted": DatasetPredicted,
        "exported": Dataset,
    },
    runs_on="machine",
    large_uploads=True,
    headline=("rows", "rows_predicted"),
    prepare=_prepare,
    on_ended=_clean_up,
)
