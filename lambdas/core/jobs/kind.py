"""A kind of job: one declaration, from which everything else follows.

The registry (`kinds.registry.KINDS`) maps names to declarations; nothing in `core` imports it, it is handed in. A hook that
is left out does the ordinary thing, so the shortest kind has a name, two models, its stages and its events.
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
"""The stage of a job that nobody has taken yet, and that of a state machine which tells how the job ended."""

REPEATABLE = ("retried", "progressed")
COMMON_VERBS = ("started", "failed", "canceled", *REPEATABLE)
"""What every kind logs by itself."""

ENVELOPE = ("event", "event_id", "job_id", "sequence", "timestamp", "status", "stage")
RESERVED = frozenset(
    {*ENVELOPE, "type", "kind", "owner", "lifecycle", "metadata", "error"}
    | {"result_key", "result_truncated", "truncated"}
)
"""Names that no field of an event or a result may have: events are flat, and these mean something already."""

RESERVED_SUBJECTS = RESERVED | {
    *("attempts", "created_at", "expected_completion", "finished_at", "links", "progress", "result", "retry_of"),
    *("started_at", "updated_at", "waiting_for", "waiting_since", "webhook", "webhook_secret"),
}
"""A subject is shown beside the fields of a job as well."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


@dataclass(frozen=True, slots=True)
class Services:
    """What hooks may use: the data bucket, and the jobs table with the client of a resource for it."""

    blobs: Blobs
    dynamodb: Any
    jobs_table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What completes a job: the result that is shown, and writes that go into the very same transaction.

    `otherwise` is raised where one of `also` found its condition broken.
    """

    result: Mapping[str, Any]
    also: Sequence[dict[str, Any]] = ()
    otherwise: JobFailure | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A worker must not begin yet: why (`rate_limit`, `provider_circuit`), and for how many seconds."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a job, by a worker or by a Task of a state machine.

    `seconds_left()` until the function is ended. `step(verb, **fields)` logs an event of the kind, once however
    often it is called. `report(done, total)` says how far the job is.
    """

    job: Job
    blobs: Blobs
    seconds_left: Callable[[], float]
    step: Callable[..., None]
    report: Callable[[int, int], None]


Result = Mapping[str, Any]
Work = Callable[[Attempt], Result]
"""Does the job and returns the result. A JobFailure ends the job; after anything else it is tried again."""


def _as_it_came(asked: Any, inputs: Inputs) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = asked.model_dump(mode="json", exclude_none=True)
    return fields


def _nothing_more(job: Job) -> Mapping[str, Any]:
    return {}


def _as_it_is(job: Job, result: Result, services: Services) -> Completion:
    return Completion(result=result)


def _nothing_left(job: Job, services: Services) -> None:
    """The job's work folder is removed in any case."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The declaration.

    - `input`: what `POST /jobs` takes as `input`; its docstring is what OpenAPI says of the kind.
    - `example`: an input that works. OpenAPI shows it, and the tests of all kinds submit it.
    - `result`: what the job shows when it has completed; its fields are those of the last event, too.
    - `subject`: the field of the stored input that says what the job is about: a name or an id, never free text.
    - `stages`: in order, without `queued`, and without `notify`, which every state machine has at its end.
    - `events`: verb -> the fields of that event. The first is logged at submission, and its fields are taken from
      the stored input; the last is the good end, and has the fields of the result.
    - `runs_on`: a state machine, or a queue worker. One that is `submittable` and run by a worker has `work`.
    - `deadline`: the knob `job_deadline_minutes` if None.
    - `headline`: fields of its events with numbers that a one-line message (Slack) tells.

    Hooks:

    - `prepare(asked, inputs)`: what is stored as the job's input. It stores texts and pins uploads.
    - `execution_input(job)`: what the state machine is given beside the job's id and owner.
    - `on_batch(job, message, seconds_left)`: the work of a message that its state machine sent with a task token.
    - `admit(job, services)`: whether a worker may begin now; a Wait if not.
    - `work(attempt)`: what a worker does.
    - `on_complete(job, result, services)`: the result, and what is written with it.
    - `on_ended(job, services)`: cleans up after the end; called again until it has not raised.
    - `on_message(message, services)`: what its routes send to the indexing queue as `<kind>.<what>`.
    - `routes()`: routes of its own, which the API answers; `function_routes()`: those that a function of its own
      answers, as its construct says.
    """

    name: str
    input: type[BaseModel]
    result: type[BaseModel]
    stages: tuple[str, ...]
    events: Mapping[str, type[BaseModel]]
    runs_on: Literal["machine", "worker"]
    example: Mapping[str, Any] = field(default_factory=dict)
    subject: str | None = None
    deadline: timedelta | None = None
    max_attempts: int = 3
    submittable: bool = True
    headline: tuple[str, ...] = ()
    prepare: Callable[[Any, Inputs], Mapping[str, Any]] = _as_it_came
    execution_input: Callable[[Job], Mapping[str, Any]] = _nothing_more
    on_batch: Callable[[Job, Mapping[str, Any], Callable[[], float]], None] | None = None
    admit: Callable[[Job, Services], Wait | None] | None = None
    work: Work | None = None
    on_complete: Callable[[Job, Result, Services], Completion] = _as_it_is
    on_ended: Callable[[Job, Services], None] = _nothing_left
    on_message: Callable[[Mapping[str, Any], Services], None] | None = None
    routes: Callable[[], Sequence[Router]] = tuple
    function_routes: Callable[[], Sequence[Router]] = tuple

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(f"kind {self.name!r}: {problem}")

    # ── what follows from it ─────────────────────────────────────────────────────────────────────────────

    @property
    def order(self) -> tuple[str, ...]:
        """Every stage that a job can be in, in order."""
        return (QUEUED, *self.stages, *((NOTIFY,) if self.runs_on == "machine" else ()))

    @property
    def first(self) -> str:
        """The verb that is logged at submission."""
        return next(iter(self.events))

    @property
    def good_end(self) -> str:
        """The verb that says that a job has completed."""
        return list(self.events)[-1]

    @property
    def first_name(self) -> str:
        return f"{self.name}.{self.first}"

    @property
    def names(self) -> tuple[str, ...]:
        """Every event name that a job of this kind can log."""
        verbs = (self.first, "started", *list(self.events)[1:], "failed", "canceled", *REPEATABLE)
        return tuple(f"{self.name}.{verb}" for verb in verbs)

    @property
    def final_names(self) -> tuple[str, ...]:
        """The events that end a job of this kind."""
        return tuple(f"{self.name}.{verb}" for verb in (self.good_end, "failed", "canceled"))

    @property
    def is_queued_to_worker(self) -> bool:
        """Whether its jobs are messages of the embedding queue."""
        return self.work is not None

    @property
    def leaves_files(self) -> bool:
        """Whether something may have to be cleaned up after a job."""
        return self.runs_on == "machine" or self.is_queued_to_worker

    def subject_of(self, stored: Mapping[str, Any]) -> dict[str, str]:
        """What a job with this input is about."""
        value = stored.get(self.subject) if self.subject else None
        return {} if value is None else {str(self.subject): str(value)}

    def announced(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """What the first event tells of the input. Where files lie is not among it."""
        return {name: stored[name] for name in self.events[self.first].model_fields if name in stored}

    # ── what is wrong with it ────────────────────────────────────────────────────────────────────────────

    def _problems(self) -> Iterator[str]:
        if not _NAME.fullmatch(self.name) or self.name in (OWNER_KIND, *OWNER_EVENTS):
            yield "a name has 1 to 32 of a-z, 0-9 and _, begins with a letter, and is neither endpoint nor ping"
        if len(self.events) < 2:
            yield "events: name the first and the good end at least"
        if self.events and self.events[self.good_end] is not self.result:
            yield f"events: the last one, {self.good_end}, has the result's model, {self.result.__name__}"
        if self.subject in RESERVED_SUBJECTS:
            yield f"subject: {self.subject} means something else in events and jobs; choose another name"
        if not self.stages or {QUEUED, NOTIFY} & set(self.stages) or len(set(self.stages)) < len(self.stages):
            yield f"stages: name at least one, each once, and leave {QUEUED} and {NOTIFY} out"
        for stage in self.stages:
            if not _NAME.fullmatch(stage):
                yield f"stages: {stage!r} is no name of 1 to 32 of a-z, 0-9 and _"
        if "completed" in list(self.events)[:-1]:
            yield "events: only the good end can be called completed, which patterns of webhooks rely on"
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
            yield f"{place}: {first['msg']}; give an input that {self.input.__name__} takes"

    def _problems_of_running(self) -> Iterator[str]:
        on_worker = self.runs_on == "worker"
        if self.work and not on_worker:
            yield "work: only a worker calls it; a state machine calls its Tasks"
        if self.submittable and on_worker and not self.work:
            yield "work: a kind that a worker runs needs it"

    def _problems_of_event(self, verb: str, model: type[BaseModel]) -> Iterator[str]:
        if not _NAME.fullmatch(verb) or verb in COMMON_VERBS:
            yield f"events: {verb!r} is no verb of 1 to 32 of a-z, 0-9 and _, or every kind has it anyway"
        for name in sorted(RESERVED & model.model_fields.keys()):
            yield f"{model.__name__}.{name}: every event has a field of this name already; choose another"
