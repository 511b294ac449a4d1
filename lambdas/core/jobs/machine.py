"""The job and its state machine, free of any storage.

    queued ──begin──▶ running ──complete──▶ completed
       │                 ├──────fail──────▶ failed
       └─────cancel──────┴─────cancel─────▶ canceled      the last three are final

A *change* is a pure function of the job as it is; `JobStore.apply` writes what it decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core import events, ids
from core.errors import Conflict, JobClosed

FINAL = frozenset({"completed", "failed", "canceled"})
STAGES = {
    "document": ("queued", "validate", "chunk", "embed", "store", "notify"),
    "replay": ("queued", "send"),
}
SUBJECTS = {"document": "document_id", "replay": "webhook_id"}
"""For each kind, the field of its input that says what the job is about."""

ANNOUNCED = {"document": ("bytes",), "replay": ("mode", "since", "until", "statuses", "events")}
"""For each kind, the fields of its input that its first event tells beside the subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The row `JOB#{job_id}` / `META`. Times are RFC 3339 UTC; `expires_at` is epoch seconds."""

    job_id: str
    owner: str
    kind: str
    input: Mapping[str, Any]
    created_at: str
    updated_at: str
    deadline: str
    expires_at: int
    status: str = "queued"
    stage: str = "queued"
    attempts: int = 0
    version: int = 1
    sequence: int = 0
    steps: tuple[str, ...] = ()
    lease: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    link_key: str = ""
    webhook_url: str | None = None
    webhook_events: tuple[str, ...] = ()
    retry_of: str | None = None
    result: Mapping[str, Any] | None = None
    error: Mapping[str, str] | None = None

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def subject(self) -> dict[str, str]:
        """What the job is about, as events and views show it: `{"document_id": …}` or `{"webhook_id": …}`."""
        name = SUBJECTS[self.kind]
        return {name: str(self.input[name])}

    @property
    def announced(self) -> dict[str, Any]:
        """What the first event tells of the input. Where files lie is not among it."""
        return {name: self.input[name] for name in ANNOUNCED[self.kind]}

    @property
    def document_id(self) -> str:
        return str(self.input["document_id"])

    @property
    def document_version(self) -> str:
        """Versions of a document are ordered as their jobs were submitted."""
        return ids.ulid_of(self.job_id)


@dataclass(frozen=True, slots=True)
class Transition:
    """What a change decided: the job as it shall be, and the event that says so (`verb`), if any."""

    job: Job
    verb: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


Change = Callable[[Job, str], Transition | None]
"""(job, now) -> what to write, or None where there is nothing left to do."""


def begin(*, stage: str, lease: str) -> Change:
    """Start a stage, or start it again: the first execution to do so holds the job, and no other may.

    A stage that is over leaves the job as it is. The execution that holds it repeats the work when the answer
    was lost that said it was done, and its step is logged no second time.
    """

    def change(job: Job, now: str) -> Transition | None:
        if job.is_final or job.lease is not None:
            _require_lease(job, lease)
        order = STAGES[job.kind]
        if order.index(stage) < order.index(job.stage):
            return None
        if stage == job.stage:
            again = replace(job, attempts=job.attempts + 1)
            return Transition(again, "retried", {"stage": stage, "attempts": again.attempts})
        started = replace(job, stage=stage, attempts=1, lease=lease, status="running")
        if job.status == "queued":
            return Transition(replace(started, started_at=now), "started")
        return Transition(started)

    return change


def step(*, verb: str, lease: str, next_stage: str, **facts: Any) -> Change:
    """Log that a step is done, once, and move to the next stage."""

    def change(job: Job, now: str) -> Transition | None:
        _require_lease(job, lease)
        if verb in job.steps:
            return None
        moved = replace(job, stage=next_stage, attempts=1, steps=(*job.steps, verb))
        return Transition(moved, verb, facts)

    return change


def complete(*, lease: str, result: Mapping[str, Any]) -> Change:
    """The execution that holds the job ends it well."""

    def change(job: Job, now: str) -> Transition | None:
        if job.status == "completed":
            return None
        _require_lease(job, lease)
        done = _end(job, "completed", now, result=result)
        return Transition(done, events.ending(job.kind, "completed"), result)

    return change


def fail(*, code: str, message: str, stage: str | None = None) -> Change:
    """End an open job badly. A job that has ended stays as it is: a late failure overwrites nothing."""

    def change(job: Job, now: str) -> Transition | None:
        if job.is_final:
            return None
        error = {"code": code, "message": message, "stage": stage or job.stage}
        return Transition(_end(job, "failed", now, error=error), "failed", {"error": error})

    return change


def cancel(job: Job, now: str) -> Transition | None:
    """End an open job because its owner wants so; canceling twice is the same as once."""
    if job.status == "canceled":
        return None
    if job.is_final:
        raise Conflict(f"The job is {job.status} already, so there is nothing to cancel.")
    return Transition(_end(job, "canceled", now), "canceled")


def report_progress(done: int, total: int) -> Change:
    def change(job: Job, now: str) -> Transition | None:
        if job.is_final:
            return None
        return Transition(job, "progressed", {"stage": job.stage, "done": done, "total": total})

    return change


def _require_lease(job: Job, lease: str) -> None:
    if job.is_final:
        raise JobClosed(f"the job is {job.status}")
    if job.lease != lease:
        raise JobClosed("another execution holds the job")


def _end(job: Job, status: str, now: str, **outcome: Any) -> Job:
    return replace(job, status=status, finished_at=now, **outcome)
