"""The objects of the API, as frozen dataclasses.

Each has its JSON as `raw`, which also contains fields of newer versions of the service. Times are RFC 3339 text
in UTC.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from recado.errors import BadAnswer, RecadoError

Status = Literal["queued", "running", "completed", "failed", "canceled"]
FINAL = frozenset({"completed", "failed", "canceled"})
T = TypeVar("T", bound="Record")


@dataclass(frozen=True, kw_only=True)
class Record:
    """An object of the API."""

    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls: type[T], data: Any, **expected: str) -> T:
        """From its JSON. Raises BadAnswer if a required field is missing.

        `expected`: what the request named, such as `job_id`. Another value raises BadAnswer, because the response
        is then that of another request.
        """
        if not isinstance(data, Mapping):
            raise BadAnswer(f"The response is a {type(data).__name__}, not an object of type {cls.__name__}.")
        record: Any = cls
        types = _field_types(record)
        values = {name: _convert(data[name], types[name]) for name in types if name in data}
        missing = _required_fields(record) - values.keys()
        if missing:
            raise BadAnswer(f"The response lacks fields of {cls.__name__}: {', '.join(sorted(missing))}.")
        for name, value in expected.items():
            if values.get(name) != value:
                raise BadAnswer(f"{value!r} was asked for. The response has the {name} {values.get(name)!r}.")
        return cls(raw=data, **values)


@functools.cache
def _field_types(cls: type[Record]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls) if item.name != "raw"}


@functools.cache
def _required_fields(cls: type[Record]) -> frozenset[str]:
    return frozenset(
        item.name
        for item in fields(cls)
        if item.name != "raw" and item.default is MISSING and item.default_factory is MISSING
    )


def _convert(value: Any, to: Any) -> Any:
    """The value as the field's type: objects become records, lists become tuples, other values stay."""
    if value is None:
        return None
    if get_origin(to) in (Union, UnionType):
        to = next(part for part in get_args(to) if part is not NoneType)
    if get_origin(to) is tuple and isinstance(value, list):
        return tuple(_convert(item, get_args(to)[0]) for item in value)
    if isinstance(to, type) and issubclass(to, Record):
        return to.of(value)
    return value


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Progress(Record):
    """The progress of the stage."""

    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Failure(Record):
    """Why a job failed. `code` is stable."""

    code: str
    message: str
    stage: str


@dataclass(frozen=True, kw_only=True)
class ModelUsage(Record):
    """What all calls of models for a job have used, those of failed attempts included.

    `cost_usd`: None if it is not known; with `cost_estimated` it is the most that the calls can cost.
    `partial_text`: what came of an answer that was interrupted.
    """

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = None
    cost_estimated: bool = False
    partial_text: str | None = None


@dataclass(frozen=True, kw_only=True)
class _HasStatus(Record):
    job_id: str
    status: Status

    @property
    def is_final(self) -> bool:
        """Whether the job has ended. It does not change any more then."""
        return self.status in FINAL


@dataclass(frozen=True, kw_only=True)
class JobStatus(_HasStatus):
    """The status of a job, for polling.

    `waiting_for`: why a queued job does not run yet, such as `rate_limit`, `running_jobs` or `backoff`.
    """

    stage: str
    progress: Progress | None = None
    attempts: int = 0
    sequence: int = 0
    error: Failure | None = None
    expected_completion: str | None = None
    waiting_for: str | None = None
    waiting_since: str | None = None


@dataclass(frozen=True, kw_only=True)
class _HasKind(Record):
    kind: str

    @property
    def subject(self) -> tuple[str, str] | None:
        """The job's subject: the field's name and value, such as ("document_id", "notes"). None if it has none.

        The name of the field depends on the kind, so it is found as a text field that not all jobs have. If
        there are several, `<kind>_id` is preferred, then any other `…_id`.
        """
        own = {
            name: value
            for name, value in self.raw.items()
            if name not in _common_fields() and isinstance(value, str)
        }
        ids = [name for name in own if name.endswith("_id")]
        preferred = [name for name in ids if name == f"{self.kind}_id"] or ids or list(own)
        return (preferred[0], own[preferred[0]]) if preferred else None

    @property
    def document_id(self) -> str | None:
        """The job's document, None if it has none."""
        name: str | None = self.raw.get("document_id")
        return name


@functools.cache
def _common_fields() -> frozenset[str]:
    """The fields of jobs of all kinds."""
    return frozenset(_field_types(Job)) | frozenset(_field_types(JobSummary))


@dataclass(frozen=True, kw_only=True)
class JobSummary(_HasKind, _HasStatus):
    """A job in a list of jobs."""

    stage: str
    created_at: str
    finished_at: str | None = None
    error: Failure | None = None
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Job(_HasKind, JobStatus):
    """A job with all fields. `webhook_secret` is complete only in the response that created the job's endpoint.

    `result_truncated`: the result is too large for the job, so `result` is None. `client.result(job)` downloads it
    from `links["result"]`. `files`: links to the files of the result, valid for five minutes. `usage`: None if the
    job has called no language model.
    """

    created_at: str = ""
    updated_at: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_of: str | None = None
    result: Mapping[str, Any] | None = None
    result_truncated: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    usage: ModelUsage | None = None
    webhook: Mapping[str, Any] | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    webhook_secret: str | None = None


class JobEnded(RecadoError):
    """The job ended without completing. `job` is the job after its end."""

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(self._message())

    def _message(self) -> str:
        return f"{self.job.job_id} was {self.job.status}."


class JobFailed(JobEnded):
    """The job failed. `code` is stable, `message` is for people, `stage` is the stage that failed."""

    @property
    def code(self) -> str:
        return self.job.error.code if self.job.error else "unknown"

    @property
    def message(self) -> str:
        return self.job.error.message if self.job.error else "The service gives no reason."

    @property
    def stage(self) -> str:
        return self.job.error.stage if self.job.error else self.job.stage

    def _message(self) -> str:
        return f"{self.job.job_id} failed in stage {self.stage} ({self.code}): {self.message}"


class JobCanceled(JobEnded):
    """The job was canceled."""


def raise_unless_completed(job: Job) -> None:
    """Raises JobFailed or JobCanceled if the job has ended so."""
    if job.status == "failed":
        raise JobFailed(job)
    if job.status == "canceled":
        raise JobCanceled(job)


@dataclass(frozen=True, kw_only=True)
class JobEvent(Record):
    """An event of a job's log. Fields of the kind are in `raw`; `event["chunks"]` reads them.

    `status` and `stage` are those of the job after the event. Older services do not send them; then they are
    empty.
    """

    event: str
    event_id: str
    job_id: str
    sequence: int
    timestamp: str
    status: str = ""
    stage: str = ""

    @property
    def verb(self) -> str:
        """`indexed` of `document.indexed`."""
        return self.event.rpartition(".")[2]

    @property
    def is_final(self) -> bool:
        """Whether the job ended with this event."""
        return self.status in FINAL

    def __getitem__(self, name: str) -> Any:
        return self.raw[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.raw.get(name, default)


@dataclass(frozen=True, kw_only=True)
class Delta(Record):
    """A piece of a text that a job is writing. `index` is its number; a snapshot contains all pieces up to it.

    Append a delta to the text, and replace the text by a snapshot. Snapshots are sent at the beginning of a
    subscription, after missed deltas, and when the job restarts the text. The last deltas may be missing; the
    complete text is in the job's result.
    """

    index: int
    text: str
    is_snapshot: bool = False


@dataclass(frozen=True, kw_only=True)
class Passage(Record):
    """A chunk of a document that an agent has found or read. `start` and `end` are offsets in characters.

    `score`: the cosine similarity to the query, None if the passage was read and not found.
    """

    document_id: str
    version: str
    chunk: int
    start: int
    end: int
    text: str
    heading: str = ""
    score: float | None = None


@dataclass(frozen=True, kw_only=True)
class Step(Record):
    """What a job tells while it works. An agent has these types:

    - `thinking`: `content` says what it does next.
    - `tool_use`: it calls the `tool` with `input`.
    - `tool_result`: the `passages` that the `tool` has found, or its `error`.
    - `token`: `content` is the next part of the answer.
    """

    type: str
    content: str = ""
    tool: str = ""
    input: Mapping[str, Any] = field(default_factory=dict)
    passages: tuple[Passage, ...] = ()
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class LiveTicket(Record):
    """Opens the WebSocket at `url` once, until `expires_at`. `url` contains the ticket."""

    ticket: str = field(repr=False)
    url: str = field(repr=False)
    expires_at: str


# ── documents ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Upload(Record):
    """The URL to PUT a file to, with exactly these headers."""

    s3_key: str
    url: str
    headers: Mapping[str, str]
    expires_at: str = ""
    curl: str = ""


@dataclass(frozen=True, kw_only=True)
class UploadPart(Record):
    """The URL to PUT a part to. `size` is in bytes."""

    number: int
    size: int
    url: str


@dataclass(frozen=True, kw_only=True)
class MultipartUpload(Record):
    """The URLs to PUT the parts of a file to. All parts but the last have `part_size` bytes."""

    s3_key: str
    upload_id: str
    part_size: int
    parts: tuple[UploadPart, ...]
    expires_at: str = ""
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Document(Record):
    """A searchable document."""

    document_id: str
    version: str
    job_id: str
    chunks: int
    characters: int
    media_type: str
    indexed_at: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Hit(Record):
    """A matching chunk. `score` is the cosine similarity; `start` and `end` are offsets in characters."""

    document_id: str
    version: str
    chunk: int
    score: float
    text: str
    start: int
    end: int
    heading: str = ""


# ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Circuit(Record):
    """The circuit of an endpoint or of its host. While it is open, deliveries wait without using up attempts."""

    state: str
    next_probe_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class Webhook(Record):
    """A webhook endpoint. `secret` is only in the response that created it."""

    webhook_id: str
    url: str | None
    events: tuple[str, ...]
    enabled: bool
    description: str = ""
    filter: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_limit: float | None = None
    format: str = "recado"
    ordered: bool = False
    signing: str = "hmac"
    disabled_reason: str | None = None
    failing_since: str | None = None
    circuit: Circuit | None = None
    host_circuit: Circuit | None = None
    counters: Mapping[str, Any] | None = None
    created_at: str = ""
    secret: str | None = None
    public_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Attempt(Record):
    """One HTTP request of a delivery. `error` is an error class such as `timeout`, None for a 2xx status."""

    number: int
    at: str
    trigger: str
    duration_ms: int
    status: int | None = None
    error: str | None = None
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Delivery(Record):
    """One event sent to one endpoint. `attempts` and `payload` are only in the response for a single delivery."""

    delivery_id: str
    webhook_id: str
    event: str
    event_id: str
    status: str
    attempt_count: int
    created_at: str
    job_id: str | None = None
    sequence: int | None = None
    next_attempt_at: str | None = None
    waits_for: str | None = None
    last_attempt: Attempt | None = None
    attempts: tuple[Attempt, ...] = ()
    payload: str | None = None


@dataclass(frozen=True, kw_only=True)
class Pending(Record):
    """A test without a response yet. Get the result with `client.webhooks.delivery(delivery_id)`."""

    delivery_id: str
