"""What the service answers, as frozen dataclasses.

Each keeps the JSON that it was read from as `raw`, so a field that a newer service has is there too. Times are RFC
3339 text in UTC, as they came.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
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
    def of(cls: type[T], data: Any) -> T:
        """From its JSON. Raises BadAnswer where a field that must be there is not."""
        if not isinstance(data, Mapping):
            raise BadAnswer(f"expected a {cls.__name__}, got {type(data).__name__}")
        record: Any = cls
        values = {name: _read(kind, data[name]) for name, kind in _kinds(record).items() if name in data}
        missing = _required(record) - values.keys()
        if missing:
            raise BadAnswer(f"a {cls.__name__} without {', '.join(sorted(missing))}")
        return cls(raw=data, **values)


@functools.cache
def _kinds(cls: type[Record]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls) if item.name != "raw"}


@functools.cache
def _required(cls: type[Record]) -> frozenset[str]:
    return frozenset(
        item.name
        for item in fields(cls)
        if item.name != "raw" and item.default is MISSING and item.default_factory is MISSING
    )


def _read(kind: Any, value: Any) -> Any:
    """The value as this type has it: records are made of objects, everything else stays."""
    if value is None:
        return None
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(part for part in get_args(kind) if part is not types.NoneType)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_read(get_args(kind)[0], item) for item in value)
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.of(value)
    return value


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Progress(Record):
    """How far the stage is."""

    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Failure(Record):
    """Why a job failed; `code` is stable."""

    code: str
    message: str
    stage: str


@dataclass(frozen=True, kw_only=True)
class _HasStatus(Record):
    job_id: str
    status: Status

    @property
    def is_final(self) -> bool:
        """Whether it has ended: nothing changes any more."""
        return self.status in FINAL


@dataclass(frozen=True, kw_only=True)
class JobStatus(_HasStatus):
    """The small answer for polling.

    `waiting_for`: why nobody works at a queued job yet, such as `rate_limit`, `provider_circuit` or `backoff`.
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
        """What the job is about: a field of it and its value, such as ("document_id", "notes"); None for nothing.

        Each kind has a name of its own for that field, so it is found as one that not every job has. Where a newer
        service sends several, `<kind>_id` comes first, and then any other id.
        """
        own = {name: value for name, value in self.raw.items() if name not in _common() and isinstance(value, str)}
        ids = [name for name in own if name.endswith("_id")]
        names = [name for name in ids if name == f"{self.kind}_id"] or ids or list(own)
        return (names[0], own[names[0]]) if names else None

    @property
    def document_id(self) -> str | None:
        """The document, where the job is about one."""
        name: str | None = self.raw.get("document_id")
        return name


@functools.cache
def _common() -> frozenset[str]:
    """The fields that jobs of all kinds have."""
    return frozenset(_kinds(Job)) | frozenset(_kinds(JobSummary))


@dataclass(frozen=True, kw_only=True)
class JobSummary(_HasKind, _HasStatus):
    """A job in a list."""

    stage: str
    created_at: str
    finished_at: str | None = None
    error: Failure | None = None
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Job(_HasKind, JobStatus):
    """The whole job. `webhook_secret` is there in full once: in the answer that made it.

    `result_truncated`: the result is too large to be in the job. `client.result(job)` fetches it from
    `links["result"]`, and `result` is None.
    """

    created_at: str = ""
    updated_at: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_of: str | None = None
    result: Mapping[str, Any] | None = None
    result_truncated: bool = False
    webhook: Mapping[str, Any] | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    webhook_secret: str | None = None


class JobEnded(RecadoError):
    """The job ended without being completed; `job` is how it ended."""

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(self._say())

    def _say(self) -> str:
        return f"{self.job.job_id} {self.job.status}"


class JobFailed(JobEnded):
    """`code` is stable, `message` is for people, `stage` is where."""

    @property
    def code(self) -> str:
        return self.job.error.code if self.job.error else "unknown"

    @property
    def message(self) -> str:
        return self.job.error.message if self.job.error else "no reason is given"

    @property
    def stage(self) -> str:
        return self.job.error.stage if self.job.error else self.job.stage

    def _say(self) -> str:
        return f"{self.job.job_id} failed in stage {self.stage} ({self.code}): {self.message}"


class JobCanceled(JobEnded):
    """Somebody canceled it."""


def raise_unless_completed(job: Job) -> None:
    """Raises JobFailed or JobCanceled where that is how the job ended."""
    if job.status == "failed":
        raise JobFailed(job)
    if job.status == "canceled":
        raise JobCanceled(job)


@dataclass(frozen=True, kw_only=True)
class JobEvent(Record):
    """One fact in a job's log. The fields of its kind are in `raw`, and `event["chunks"]` reads them.

    `status` and `stage` are the job's after the event. Both are empty where a service does not say them.
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
        """Whether it is the last event: the job has ended with it."""
        return self.status in FINAL

    def __getitem__(self, name: str) -> Any:
        return self.raw[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.raw.get(name, default)


@dataclass(frozen=True, kw_only=True)
class Delta(Record):
    """A piece of text while it is being made, number `index` of it; a snapshot has all through that number.

    A snapshot replaces what was there: it comes to who comes late or has missed something, and where the text
    is begun again. The last pieces may be missing; the whole text is in the job's result.
    """

    index: int
    text: str
    is_snapshot: bool = False


@dataclass(frozen=True, kw_only=True)
class LiveTicket(Record):
    """Lets its bearer in once, until `expires_at`, to the WebSocket at `url`, which has the ticket in it."""

    ticket: str = field(repr=False)
    url: str = field(repr=False)
    expires_at: str


# ── documents ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Upload(Record):
    """Where to PUT a file, with exactly these headers."""

    s3_key: str
    url: str
    headers: Mapping[str, str]
    expires_at: str = ""
    curl: str = ""


@dataclass(frozen=True, kw_only=True)
class UploadPart(Record):
    """Where to PUT the part with this number, of this many bytes."""

    number: int
    size: int
    url: str


@dataclass(frozen=True, kw_only=True)
class MultipartUpload(Record):
    """Where to PUT the parts of a file, all but the last of `part_size` bytes."""

    s3_key: str
    upload_id: str
    part_size: int
    parts: tuple[UploadPart, ...]
    expires_at: str = ""
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Document(Record):
    """A document that can be found."""

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
    """A chunk near the query. `score` is the cosine; `start` and `end` count characters of the text."""

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
    """While it is open, deliveries wait and spend no attempts."""

    state: str
    next_probe_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class Webhook(Record):
    """An endpoint. `secret` is there once: in the answer that made it."""

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
    counters: Mapping[str, Any] | None = None
    created_at: str = ""
    secret: str | None = None
    public_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Attempt(Record):
    """One HTTP request of a delivery. `error` is a class such as `timeout`; None for a 2xx."""

    number: int
    at: str
    trigger: str
    duration_ms: int
    status: int | None = None
    error: str | None = None
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Delivery(Record):
    """One event to one endpoint. `attempts` and `payload` are there where a single one is asked for."""

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
    last_attempt: Attempt | None = None
    attempts: tuple[Attempt, ...] = ()
    payload: str | None = None


@dataclass(frozen=True, kw_only=True)
class Pending(Record):
    """A test that was not answered in time; its delivery will be found under this id."""

    delivery_id: str
