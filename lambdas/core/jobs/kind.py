"""A kind of job: one declaration.

The registry (`kinds.registry.KINDS`) maps names to declarations. `core` does not import it: it is passed in. Every
hook has a default, so the shortest declaration has a name, two models, stages and events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ValidationError

from core.aws.blobs import Blobs
from core.errors import JobFailure
from core.events import OWNER_EVENTS, OWNER_KIND
from core.jobs.inputs import Inputs
from core.jobs.job import Job

if TYPE_CHECKING:
    from aws_lambda_powertools.event_handler.api_gateway import Router

QUEUED, NOTIFY = "queued", "notify"
"""The stage of a job that has not started, and the last stage of every state machine."""

REPEATABLE = ("retried", "progressed")
COMMON_VERBS = ("started", "failed", "canceled", *REPEATABLE)
"""The verbs that every kind logs."""

ENVELOPE = ("event", "event_id", "job_id", "sequence", "timestamp", "status", "stage")
RESERVED = frozenset(
    {*ENVELOPE, "type", "kind", "owner", "lifecycle", "metadata", "error"}
    | {"result_key", "result_truncated", "truncated"}
)
"""Names that a field of an event or a result may not have: events are flat and use them already."""

RESERVED_SUBJECTS = RESERVED | {
    *(
        "attempts",
        "created_at",
        "expected_completion",
        "files",
        "finished_at",
        "links",
        "progress",
        "result",
        "retry_of",
    ),
    *("started_at", "updated_at", "usage", "waiting_for", "waiting_since", "webhook", "webhook_secret"),
}
"""Names that a subject may not have: it is shown beside the fields of a job, too."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


@dataclass(frozen=True, slots=True)
class Services:
    """What hooks may use: the data bucket, the jobs table, and a resource's client for the table."""

    blobs: Blobs
    dynamodb: Any
    jobs_table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What completes a job: the result that is shown, and `writes` that go into the same transaction.

    `on_condition_failed` is raised if the condition of one of `writes` fails.
    """

    result: Mapping[str, Any]
    writes: Sequence[dict[str, Any]] = ()
    on_condition_failed: JobFailure | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A worker may not start the job yet. `reason`: `rate_limit` or `provider_circuit`, for example."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a job, by a worker or by a Task of a state machine.

    `seconds_left()`: until Lambda ends the function. `require_open()` raises JobClosed if the job was canceled or
    another attempt holds it: call it before what costs money. `step(verb, **fields)` logs an event of the kind;
    calling it again logs nothing. `report(done, total)` reports progress.
    """

    job: Job
    blobs: Blobs
    seconds_left: Callable[[], float]
    require_open: Callable[[], None]
    step: Callable[..., None]
    report: Callable[[int, int], None]


Result = Mapping[str, Any]
Work = Callable[[Attempt], Result]
"""Does the job and returns the result.

A JobFailure fails the job; after Postponed it is tried again, and the attempt is not counted; after any other
exception it is tried again, at most `max_attempts` times.
"""


def _store_input(request: Any, inputs: Inputs) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = request.model_dump(mode="json", exclude_none=True)
    return fields


def _no_execution_input(job: Job) -> Mapping[str, Any]:
    return {}


def _complete(job: Job, result: Result, services: Services) -> Completion:
    return Completion(result=result)


def _clean_up_nothing(job: Job, services: Services) -> None:
    """The caller deletes the job's work folder."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The declaration.

    - `input`: the model of `input` in `POST /jobs`; its docstring is the description in OpenAPI.
    - `example`: a valid input. OpenAPI shows it, and the tests of all kinds submit it.
    - `result`: the model of a completed job's result, and of the last event.
    - `subject`: the field of the stored input that events and jobs show: a name or an id, never free text.
    - `exclusive`: whether only one open job of an owner may have the same subject. Another one is refused.
    - `stages`: in order, without `queued`, and without `notify`, the last stage of every state machine.
    - `events`: verb -> the fields of that event. The first event is logged at submission, and its fields are taken
      from the stored input. The last is logged when the job completes, and has the fields of the result.
    - `runs_on`: a state machine, or a queue worker. A `submittable` kind on a worker has `work`.
    - `deadline`: the setting `job_deadline_minutes` if None.
    - `has_steps`: the work writes steps (`core.jobs.steps`), which are sent to those who follow the job.
    - `large_uploads`: its uploads may have `max_upload_bytes`, and not only `max_document_bytes`.
    - `headline`: fields of events with numbers that a one-line message (Slack) contains.

    Hooks:

    - `prepare(request, inputs)`: returns what is stored as the job's input. It stores texts and pins uploads.
    - `execution_input(job)`: the input of the state machine, in addition to the job's id and owner.
    - `on_batch(job, message, seconds_left)`: handles a message that the state machine sent with a task token. A
      message whose hook raises Postponed is sent again.
    - `admit(job, services)`: returns a Wait if a worker may not start the job yet.
    - `work(attempt)`: what a worker does.
    - `on_complete(job, result, services)`: the result, and what is written with it.
    - `on_ended(job, services)`: cleans up after the end; called again until it does not raise.
    - `on_message(message, services)`: handles the messages `<kind>.<what>` that the kind's routes send to the
      indexing queue.
    - `on_question(query, session)`: the input of a job that answers a question from a WebSocket. One kind has it.
    - `routes()`: routes that the API function serves.
    - `function_routes()`: routes that a function of the kind's own construct serves.
    """

    name: str
    input: type[BaseModel]
    result: type[BaseModel]
    stages: tuple[str, ...]
    events: Mapping[str, type[BaseModel]]
    runs_on: Literal["machine", "worker"]
    example: Mapping[str, Any] = field(default_factory=dict)
    subject: str | None = None
    exclusive: bool = False
    deadline: timedelta | None = None
    max_attempts: int = 3
    submittable: bool = True
    has_steps: bool = False
    large_uploads: bool = False
    headline: tuple[str, ...] = ()
    prepare: Callable[[Any, Inputs], Mapping[str, Any]] = _store_input
    execution_input: Callable[[Job], Mapping[str, Any]] = _no_execution_input
    on_batch: Callable[[Job, Mapping[str, Any], Callable[[], float]], None] | None = None
    admit: Callable[[Job, Services], Wait | None] | None = None
    work: Work | None = None
    on_complete: Callable[[Job, Result, Services], Completion] = _complete
    on_ended: Callable[[Job, Services], None] = _clean_up_nothing
    on_message: Callable[[Mapping[str, Any], Services], None] | None = None
    on_question: Callable[[str, str | None], Mapping[str, Any]] | None = None
    routes: Callable[[], Sequence[Router]] = tuple
    function_routes: Callable[[], Sequence[Router]] = tuple

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(f"kind {self.name!r}: {problem}")

    # ── derived ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def all_stages(self) -> tuple[str, ...]:
        """Every stage that a job can be in, in order."""
        return (QUEUED, *self.stages, *((NOTIFY,) if self.runs_on == "machine" else ()))

    @property
    def submitted_verb(self) -> str:
        """The verb of the event that is logged at submission."""
        return next(iter(self.events))

    @property
    def completed_verb(self) -> str:
        """The verb of the event that is logged when the job completes."""
        return list(self.events)[-1]

    @property
    def submitted_event(self) -> str:
        return f"{self.name}.{self.submitted_verb}"

    @property
    def event_names(self) -> tuple[str, ...]:
        """The name of every event that a job of this kind can log."""
        verbs = (self.submitted_verb, "started", *list(self.events)[1:], "failed", "canceled", *REPEATABLE)
        return tuple(f"{self.name}.{verb}" for verb in verbs)

    @property
    def final_events(self) -> tuple[str, ...]:
        """The names of the events that end a job: completed, failed, canceled."""
        return tuple(f"{self.name}.{verb}" for verb in (self.completed_verb, "failed", "canceled"))

    @property
    def is_queued_to_worker(self) -> bool:
        """Whether a job is a message of the embedding queue."""
        return self.work is not None

    @property
    def needs_clean_up(self) -> bool:
        """Whether a job may leave files or an execution behind when it ends."""
        return self.runs_on == "machine" or self.is_queued_to_worker

    def subject_of(self, stored: Mapping[str, Any]) -> dict[str, str]:
        """The subject of a job with this stored input, by its field; empty if the kind has none."""
        value = stored.get(self.subject) if self.subject else None
        return {} if value is None else {str(self.subject): str(value)}

    def exclusive_subject_of(self, stored: Mapping[str, Any]) -> str | None:
        """What no other open job of the owner and kind may be about; None if that is allowed."""
        return next(iter(self.subject_of(stored).values()), None) if self.exclusive else None

    def submitted_fields(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the first event. They never contain the keys of files."""
        return {name: stored[name] for name in self.events[self.submitted_verb].model_fields if name in stored}

    # ── validation ───────────────────────────────────────────────────────────────────────────────────────

    def _problems(self) -> Iterator[str]:
        if not _NAME.fullmatch(self.name) or self.name in (OWNER_KIND, *OWNER_EVENTS):
            yield "the name must be 1 to 32 of a-z, 0-9 and _, begin with a letter, and not be endpoint or ping"
        if len(self.events) < 2:
            yield "events: declare at least two, the first and the last"
        if self.events and self.events[self.completed_verb] is not self.result:
            yield f"events: the last one, {self.completed_verb}, must have the model {self.result.__name__}"
        if self.subject in RESERVED_SUBJECTS:
            yield f"subject: {self.subject} is a field of every event or job; choose another name"
        if self.exclusive and self.subject is None:
            yield "exclusive: declare the subject that only one open job may have"
        if not self.stages or {QUEUED, NOTIFY} & set(self.stages) or len(set(self.stages)) < len(self.stages):
            yield f"stages: declare at least one, each once, and not {QUEUED} or {NOTIFY}"
        for stage in self.stages:
            if not _NAME.fullmatch(stage):
                yield f"stages: {stage!r} is not a name of 1 to 32 of a-z, 0-9 and _"
        if "completed" in list(self.events)[:-1]:
            yield "events: only the last one may be named completed: patterns of webhooks rely on it"
        if self.max_attempts < 1:
            yield "max_attempts: at least 1"
        if self.submittable:
            yield from self._problems_of_example()
        yield from self._problems_of_running()
        for verb, model in self.events.items():
            yield from self._problems_of_event(verb, model)

    def _problems_of_example(self) -> Iterator[str]:
        try:
            self.input.model_validate(self.example)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, ("example", *first["loc"])))
            yield f"{place}: {first['msg']}; give a valid {self.input.__name__}"

    def _problems_of_running(self) -> Iterator[str]:
        on_worker = self.runs_on == "worker"
        if self.work and not on_worker:
            yield "work: only a worker calls it; a state machine calls Tasks"
        if self.submittable and on_worker and not self.work:
            yield "work: a kind that runs on a worker needs it"

    def _problems_of_event(self, verb: str, model: type[BaseModel]) -> Iterator[str]:
        if not _NAME.fullmatch(verb) or verb in COMMON_VERBS:
            yield f"events: {verb!r} is not a verb of 1 to 32 of a-z, 0-9 and _, or every kind logs it already"
        for name in sorted(RESERVED & model.model_fields.keys()):
            yield f"{model.__name__}.{name}: every event has a field of this name; choose another"
