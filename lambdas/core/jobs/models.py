"""The requests, responses and events of jobs. They validate, and describe the API in /openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from core.models import Request, ShortText, Text

Status = Literal["queued", "running", "completed", "failed", "canceled"]
OmittedIfNone = Annotated[str | None, Field(exclude_if=lambda value: value is None)]


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────


class JobRequest(Request):
    """A job to submit. Each kind has a model of its own: `kind` is its name, `input` its input."""

    event_names: ClassVar[tuple[str, ...]] = ()
    """The events of the kind."""

    kind: str
    input: Any
    webhook_url: Text | None = Field(
        None, max_length=2048, description="Receives the final event as a signed webhook."
    )
    webhook_events: list[str] | None = Field(
        None, max_length=20, description="The events that `webhook_url` receives instead of the final one."
    )
    metadata: dict[ShortText, Annotated[Text, StringConstraints(max_length=1024)]] = Field(
        default_factory=dict,
        max_length=16,
        description="Your own data about the job. A search can filter by it.",
    )

    @field_validator("webhook_events")
    @classmethod
    def _known_events(cls, value: list[str] | None) -> list[str] | None:
        if value == [] or not set(value or ()) <= set(cls.event_names):
            raise ValueError(f"choose from {', '.join(cls.event_names)}")
        return value

    @model_validator(mode="after")
    def _events_need_a_url(self) -> JobRequest:
        if self.webhook_events and not self.webhook_url:
            raise ValueError("webhook_events needs a webhook_url")
        return self


# ── responses ────────────────────────────────────────────────────────────────────────────────────────────


class Progress(BaseModel):
    """The number of batches that are done, and of all batches."""

    done: int
    total: int


class Failure(BaseModel):
    """Why a job failed. `code` is stable."""

    code: str
    message: str
    stage: str


class JobStatus(BaseModel):
    """A job's status, for polling."""

    job_id: str
    status: Status
    stage: str
    progress: Progress | None
    attempts: int
    sequence: int
    expected_completion: str | None = Field(
        None, description="The estimated time of completion, null if there is no estimate."
    )
    waiting_for: OmittedIfNone = Field(
        None,
        description="Why the job does not run yet, such as `rate_limit`, `running_jobs` or `backoff`.",
    )
    waiting_since: OmittedIfNone = None
    error: Failure | None = None


class JobSummary(BaseModel):
    """A job in a list. It also has the kind's subject, such as `document_id`."""

    model_config = ConfigDict(extra="allow")

    job_id: str
    kind: str
    status: Status
    stage: str
    created_at: str
    finished_at: str | None
    error: Failure | None
    links: dict[str, str]


class ModelUsage(BaseModel):
    """What all calls of models for a job have used, those of failed and canceled attempts included."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = Field(description="Null if the price of a model is not known.")
    cost_estimated: bool = Field(description="True if a provider did not count tokens: the cost is then a limit.")
    partial_text: OmittedIfNone = Field(None, description="What came of an answer that was interrupted.")


class JobView(JobStatus):
    """A job. It also has the kind's subject, such as `document_id`."""

    model_config = ConfigDict(extra="allow")

    kind: str
    created_at: str
    updated_at: str
    started_at: str | None
    finished_at: str | None
    metadata: dict[str, str]
    retry_of: str | None
    result: dict[str, Any] | None
    result_truncated: bool = Field(
        False,
        exclude_if=lambda value: not value,
        description="True if the result is too large for this response: download it from `links.result`.",
    )
    files: dict[str, str] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="Links to the files of the result, by their names in `result.files`. Each is valid for five "
        "minutes; the next response has new ones.",
    )
    usage: ModelUsage | None = Field(None, description="Null if the job has called no model.")
    webhook: dict[str, Any] | None
    links: dict[str, str]


class JobAccepted(JobView):
    """An accepted job. `webhook_secret` is shown in full only when it is created."""

    webhook_secret: str | None = None


class JobPage(BaseModel):
    """Jobs, newest first. `cursor` requests the next page; null on the last page."""

    jobs: list[JobSummary]
    cursor: str | None


class EventLog(BaseModel):
    """A job's events after `after`, in order."""

    events: list[dict[str, Any]]


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────


class JobEventView(BaseModel):
    """The fields of every event of a job. `status` and `stage` are those after the event. Kinds add fields."""

    event: str
    event_id: str
    job_id: str
    sequence: int
    timestamp: str
    status: Status
    stage: str


class JobStartedFields(BaseModel):
    """`attempts`: only of kinds on a queue worker, whose jobs can start more than once."""

    attempts: int | None = None


class JobRetriedFields(BaseModel):
    """The job is tried again, at once or at `not_before`. `error`: the reason, if it is known."""

    attempts: int
    error: Failure | None = None
    not_before: str | None = None


class JobProgressedFields(Progress):
    """How many batches of the stage are done."""


class JobFailedFields(BaseModel):
    """Why the job failed."""

    error: Failure


COMMON_EVENTS: dict[str, type[BaseModel]] = {
    "started": JobStartedFields,
    "retried": JobRetriedFields,
    "progressed": JobProgressedFields,
    "failed": JobFailedFields,
}
"""The fields of the events that every kind logs. `canceled` has none."""
