"""What callers send and get: the models behind validation and /openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

Status = Literal["queued", "running", "completed", "failed", "canceled"]
ReplayMode = Literal["recover", "replay"]


def encodable(text: str) -> str:
    """JSON can say half a surrogate pair, which is no character and has no UTF-8."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("the text has half a surrogate pair (\\ud800 to \\udfff), which is no character")
    return text


Text = Annotated[str, AfterValidator(encodable)]
ShortText = Annotated[Text, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]

# \w would let in letters that no header can carry
_TOKEN = "[A-Za-z0-9_.+-]+"  # noqa: S105 a word of a media type
MediaType = Annotated[
    str, StringConstraints(pattern=rf"^{_TOKEN}/{_TOKEN}(; ?{_TOKEN}={_TOKEN})?$", max_length=128)
]


class Request(BaseModel):
    """A misspelt field is an error, not a wish that goes unheard."""

    model_config = ConfigDict(extra="forbid")


class JobRequest(Request):
    """A job to run. Each kind has a model of its own: `kind` is its name, and `input` what it takes."""

    event_names: ClassVar[tuple[str, ...]] = ()
    """What a job of the kind logs."""

    kind: str
    input: Any
    webhook_url: Text | None = Field(None, max_length=2048, description="Called with the final events, signed.")
    webhook_events: list[str] | None = Field(
        None, max_length=20, description="The events of the kind to be called with instead."
    )
    metadata: dict[ShortText, Annotated[Text, StringConstraints(max_length=1024)]] = Field(
        default_factory=dict,
        max_length=16,
        description="Your own notes; searches can be narrowed by them.",
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


class UploadRequest(Request):
    """A file to be uploaded."""

    filename: ShortText
    content_type: MediaType = "application/octet-stream"
    size: int = Field(gt=0, description="In bytes, exactly.")
    parts: bool = Field(False, description="Whether it is sent in parts, several at a time.")


class SentPart(Request):
    """A part that S3 has taken, with the `ETag` of its answer."""

    number: int
    etag: ShortText


class CompleteRequest(Request):
    """All parts of an upload, in any order."""

    parts: list[SentPart] = Field(min_length=1, max_length=1000)


IfAny = Annotated[str | None, Field(exclude_if=lambda value: value is None)]
"""Absent rather than null."""


class Progress(BaseModel):
    """How far the stage is, in batches."""

    done: int
    total: int


class Failure(BaseModel):
    """Why a job failed; `code` is stable."""

    code: str
    message: str
    stage: str


class JobStatus(BaseModel):
    """The small answer for polling."""

    job_id: str
    status: Status
    stage: str
    progress: Progress | None
    attempts: int
    sequence: int
    expected_completion: str | None = Field(None, description="About when it ends, where that can be known.")
    waiting_for: IfAny = Field(None, description="Why no attempt is made now, such as `rate_limit` or `backoff`.")
    waiting_since: IfAny = None
    error: Failure | None = None


class LiveTicket(BaseModel):
    """What lets one WebSocket in."""

    ticket: str
    url: str = Field(description="With the ticket in it: connect here.")
    expires_at: str


class JobSummary(BaseModel):
    """A job in a list, with the field that says what it is about, such as `document_id`."""

    model_config = ConfigDict(extra="allow")

    job_id: str
    kind: str
    status: Status
    stage: str
    created_at: str
    finished_at: str | None
    error: Failure | None
    links: dict[str, str]


class JobView(JobStatus):
    """The whole job, with the field that says what it is about, such as `document_id`."""

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
        description="The result is too large to be shown here: `links.result` has it.",
    )
    webhook: dict[str, Any] | None
    links: dict[str, str]


class JobAccepted(JobView):
    """The job, just accepted. `webhook_secret` is shown in full once: when it is made."""

    webhook_secret: str | None = None


class JobPage(BaseModel):
    """Jobs, newest first. `cursor` asks for what follows; null at the end."""

    jobs: list[JobSummary]
    cursor: str | None


class JobEventView(BaseModel):
    """What every event of a job says; `status` and `stage` are the job's after it. Its kind adds fields."""

    event: str
    event_id: str
    job_id: str
    sequence: int
    timestamp: str
    status: Status
    stage: str


class JobStartedFields(BaseModel):
    """`attempts` where a queue worker runs the kind, which may start more than once."""

    attempts: int | None = None


class JobRetriedFields(BaseModel):
    """Another attempt is made, or will be; `error` says why, where that is known."""

    attempts: int
    error: Failure | None = None
    not_before: str | None = None


class JobProgressedFields(Progress):
    """How far the stage is."""


class JobFailedFields(BaseModel):
    """Why the job failed."""

    error: Failure


COMMON_EVENTS: dict[str, type[BaseModel]] = {
    "started": JobStartedFields,
    "retried": JobRetriedFields,
    "progressed": JobProgressedFields,
    "failed": JobFailedFields,
}
"""The fields of events that every kind logs. `canceled` has none."""


class EventLog(BaseModel):
    """A job's events from `after` on, in order."""

    events: list[dict[str, Any]]


class Upload(BaseModel):
    """Where to PUT the file, with exactly these headers, within the hour."""

    s3_key: str
    url: str
    method: Literal["PUT"] = "PUT"
    headers: dict[str, str]
    expires_at: str
    curl: str


class UploadPart(BaseModel):
    """PUT these bytes of the file to `url`, with no header but their `Content-Length`."""

    number: int
    size: int
    url: str


class MultipartUpload(BaseModel):
    """Where to PUT the parts of the file, in any order and several at a time, within the hour.

    Part 1 begins at byte 0 and part n at (n - 1) × `part_size`. Then POST `links.complete`.
    """

    s3_key: str
    upload_id: str
    part_size: int
    parts: list[UploadPart]
    expires_at: str
    links: dict[str, str]


class Uploaded(BaseModel):
    """A file that is complete."""

    s3_key: str
    size: int
    etag: str


class Problem(BaseModel):
    """https://www.rfc-editor.org/rfc/rfc9457"""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
