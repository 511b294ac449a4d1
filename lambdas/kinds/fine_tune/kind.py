"""Fine-tunes of language models: the dataset is checked, and Amazon Bedrock trains a custom model with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from core.jobs import Inputs, Job, Kind, Services
from kinds.fine_tune.models import DatasetValidated, FineTune, FineTuneInput, FineTuneRequested


def _prepare(request: FineTuneInput, inputs: Inputs) -> Mapping[str, Any]:
    from kinds.fine_tune.submission import prepare  # only the API has its settings

    return prepare(request, inputs)


def _on_batch(job: Job, message: Mapping[str, Any], seconds_left: Callable[[], float]) -> None:
    from kinds.fine_tune.training import on_batch  # only the worker has its settings

    on_batch(job, message, seconds_left)


def _on_ended(job: Job, services: Services) -> None:
    from kinds.fine_tune.customization import stop

    stop(job, services)


FINE_TUNE = Kind(
    name="fine_tune",
    input=FineTuneInput,
    example={"dataset": "uploads/…", "suffix": "support"},
    result=FineTune,
    subject="base_model",
    stages=("validate", "train"),
    events={"requested": FineTuneRequested, "validated": DatasetValidated, "completed": FineTune},
    runs_on="machine",
    deadline=timedelta(days=3),  # what a training has cost is lost if it is stopped
    prepare=_prepare,
    on_batch=_on_batch,
    on_ended=_on_ended,
)
