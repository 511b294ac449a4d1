"""The input, the events, the result and the errors of a fine-tune."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from core.errors import JobFailure
from core.models import Request, ShortText, Text

MAX_SUFFIX = 30  # the name of a custom model has 63 characters at most, 27 of them of the job


class Hyperparameters(Request):
    """What the base model takes differs; a value that it does not take is refused."""

    epochs: int | None = Field(None, ge=1, description="How often each example is trained with.")
    batch_size: int | None = Field(None, ge=1, description="Only of models that let you choose it.")
    learning_rate_multiplier: float | None = Field(
        None, gt=0, le=1_000_000, allow_inf_nan=False, description="Of the base model's own learning rate."
    )


class FineTuneInput(Request):
    """A base model to fine-tune, and the examples: an upload in JSON Lines."""

    model: ShortText | None = Field(
        None, description="One of the deployment's `fine_tune_models`; its first if absent."
    )
    dataset: Annotated[Text, StringConstraints(max_length=1024)] = Field(
        description="The `s3_key` that POST /uploads returned."
    )
    hyperparameters: Hyperparameters | None = None
    suffix: str | None = Field(
        None,
        max_length=MAX_SUFFIX,
        pattern=r"^[0-9A-Za-z]([_-]?[0-9A-Za-z])*$",
        description="The name of the custom model begins with it.",
    )
    max_cost_usd: float | None = Field(
        None,
        gt=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="Fails the job before training if it could cost more. The model's price must be known.",
    )


class FineTuneRequested(BaseModel):
    """The job was submitted."""

    base_model: str
    epochs: int


class DatasetProblem(BaseModel):
    """`line` counts from 1. `field` is empty if the whole line is meant."""

    line: int
    field: str
    message: str


class DatasetValidated(BaseModel):
    """The dataset was checked. With errors, the job fails. Of errors and of warnings, the first 100 are listed.

    `converted_to`: the format in which the base model gets the examples, if it is another. Tokens (of all epochs)
    and cost are upper bounds; the cost is null if the price is not known.
    """

    examples: int
    format: str | None
    converted_to: str | None
    training_tokens: int
    estimated_cost_usd: float | None
    error_count: int
    errors: list[DatasetProblem]
    warning_count: int
    warnings: list[DatasetProblem]


class Metrics(BaseModel):
    """At the end of the training; null if the service gives none."""

    training_loss: float | None
    validation_loss: float | None


class FineTune(BaseModel):
    """The custom model. It answers only after a deployment of it was created, which `next_step` says."""

    model_id: str = Field(description="The ARN of the custom model.")
    base_model: str
    metrics: Metrics
    deployed: bool
    next_step: str


class InvalidDataset(JobFailure):
    """The dataset has errors. Nothing was started."""

    code = "invalid_dataset"


class TrainingFailed(JobFailure):
    """The service could not train the model. The message is the service's."""

    code = "training_failed"


class TrainingStopped(JobFailure):
    """Somebody stopped the training in the service, not by the job."""

    code = "training_stopped"
