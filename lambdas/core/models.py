"""What callers send and get: the models behind validation and /openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from core import events

Status = Literal["queued", "running", "completed", "failed", "canceled"]
Kind = Literal["document"]
"""What can be asked for by POST /jobs."""

AnyKind = Literal["document", "replay"]
"""What a list shows: also the jobs that other routes make."""

ReplayMode = Literal["recover", "replay"]


def encodable(text: str) -> str:
    """JSON can say half a surrogate pair, which is no character and has no UTF-8."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("the text has half a surrogate pair (\\ud800 to \\udfff), which is no character")
    return text


Text = Annotated[str, AfterValidator(encodable)]
ShortText = Annotated[Text, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]


def _fits_key(text: str) -> str:
    """A sort key of DynamoDB has at most 1,024 bytes, of which the name's prefix takes some."""
    if len(text.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"the name has more than {MAX_NAME_BYTES} bytes in UTF-8")
    return text


MAX_NAME_BYTES = 1000
DocumentName = Annotated[ShortText, AfterValidator(_fits_key)]

# \w would let in letters that no header can carry
_TOKEN = "[A-Za-z0-9_.+-]+"  # noqa: S105 a word of a media type
MediaType = Annotated[
    str, StringConstraints(pattern=rf"^{_TOKEN}/{_TOKEN}(; ?{_TOKEN}={_TOKEN})?$", max_length=128)
]


class Request(BaseModel):
    """A misspelt field is an error, not a wish that goes unheard."""

    model_config = ConfigDict(extra="forbid")


class DocumentInput(Request):
    """A document: its text, or the key of an upload."""

    text: Text | None = Field(None, description="The document itself: plain text, Markdown or HTML.")
    s3_key: Text | None = Field(None, max_length=1024, description="The `s3_key` that POST /uploads answered.")
    document_id: DocumentName | None = Field(
        None,
        description="Your name for the document; a later job of that name replaces it.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> DocumentInput:
        if (self.text is None) == (self.s3_key is None):
            raise ValueError("give either text or s3_key")
        return self


class JobRequest(Request):
    """A job to run."""

    kind: Kind
    input: DocumentInput
    webhook_url: Text | None = Field(None, max_length=2048, description="Called with the final events, signed.")
    webhook_events: list[str] | None = Field(
        None, max_length=20, description="The events to be called with instead, such as `document.chunked`."
    )
    metadata: dict[ShortText, Annotated[Text, StringConstraints(max_length=1024)]] = Field(
        default_factory=dict,
        max_length=16,
        description="Your own notes; searches can be narrowed by them.",
    )

    @field_validator("webhook_events")
    @classmethod
    def _known_events(cls, value: list[str] | None) -> list[str] | None:
        known = [name for kind in get_args(Kind) for name in events.names(kind)]
        unknown = [name for name in value or [] if name not in known]
        if unknown or value == []:
            raise ValueError(f"choose from {', '.join(known)}")
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
    error: Failure | None = None


class LiveTicket(BaseModel):
    """What lets one WebSocket in."""

    ticket: str
    url: str = Field(description="With the ticket in it: connect here.")
    expires_at: str


Subject = Annotated[str | None, Field(exclude_if=lambda value: value is None)]
"""What a job of one kind is about. Jobs of another kind lack the field rather than have it as null."""


class JobSummary(BaseModel):
    """A job in a list."""

    job_id: str
    kind: AnyKind
    status: Status
    stage: str
    document_id: Subject = None
    webhook_id: Subject = None
    created_at: str
    finished_at: str | None
    error: Failure | None
    links: dict[str, str]


class JobView(JobStatus):
    """The whole job."""

    kind: AnyKind
    document_id: Subject = None
    webhook_id: Subject = None
    created_at: str
    updated_at: str
    started_at: str | None
    finished_at: str | None
    metadata: dict[str, str]
    retry_of: str | None
    result: dict[str, Any] | None
    webhook: dict[str, Any] | None
    links: dict[str, str]


class JobAccepted(JobView):
    """The job, just accepted. `webhook_secret` is shown in full once: when it is made."""

    webhook_secret: str | None = None


class JobPage(BaseModel):
    """Jobs, newest first. `cursor` asks for what follows; null at the end."""

    jobs: list[JobSummary]
    cursor: str | None


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


class DocumentView(BaseModel):
    """A document that can be found."""

    document_id: str
    version: str
    job_id: str
    chunks: int
    characters: int
    media_type: str
    indexed_at: str
    metadata: dict[str, str]


class DocumentPage(BaseModel):
    documents: list[DocumentView]


class SearchFilter(Request):
    """Only these documents, and only those with all of this metadata."""

    document_ids: list[ShortText] = Field(default_factory=list, max_length=100)
    metadata: dict[ShortText, Text] = Field(default_factory=dict, max_length=16)


class SearchRequest(Request):
    """A question in any language."""

    query: Annotated[
        str,
        StringConstraints(min_length=1, max_length=8000, strip_whitespace=True),  # in this order, or " " passes
        AfterValidator(encodable),
    ]
    top_k: int = Field(10, ge=1, le=100)
    filter: SearchFilter = Field(default_factory=SearchFilter)


class SearchHit(BaseModel):
    """A chunk near the query; `score` is the cosine."""

    document_id: str
    version: str
    chunk: int
    score: float
    text: str
    start: int
    end: int
    heading: str


class SearchAnswer(BaseModel):
    hits: list[SearchHit]


class Problem(BaseModel):
    """https://www.rfc-editor.org/rfc/rfc9457"""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
