"""The job's state machine. It reads and writes no storage.

    queued ──begin, claim──▶ running ──complete──▶ completed
       │  ◀──release────────  │ ├──────fail──────▶ failed
       └─────cancel───────────┴─────cancel───────▶ canceled      the last three are final

A state machine begins a job stage by stage, and the job stays `running`; its lease is the execution. On a queue
worker, one invocation claims the whole job, and its lease ends with it; between attempts the job is `queued`.

A *change* is a pure function of the present job; `JobStore.apply` writes the transition that it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.errors import Conflict, JobClosed, ModelUnavailable, NotDue
from core.jobs.job import Job
from core.jobs.kind import QUEUED, Kind

BACKOFF = "backoff"
PLACE = "running_jobs"
"""A job waits for a place among the owner's jobs that run on state machines."""
PROVIDER_CIRCUIT = "provider_circuit"
"""A job waits because the provider of its model failed."""
PROVIDER_THROTTLED = "provider_throttled"
"""A job waits because the provider of its model throttled it."""
OVERDUE = "The job took too long. Retry it, or split its input."
NEVER_STARTED = "The job waited too long for your other jobs to end. Submit fewer jobs at once, and retry it."
NO_MODEL = "The provider of the model failed until the job's deadline. Retry the job later."
EXHAUSTED = {"code": "attempts_exhausted", "message": "The worker was lost in every attempt. Retry the job."}
LOST = {"code": "worker_lost", "message": "The worker was lost. The job is tried again."}


@dataclass(frozen=True, slots=True)
class Transition:
    """What a change decides: the changed job, and the event to log, if `verb` is not None."""

    job: Job
    verb: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


Change = Callable[[Job, str], Transition | None]
"""(job, now) -> what to write, or None if there is nothing to do."""


# ── jobs on a state machine ──────────────────────────────────────────────────────────────────────────────


def begin(kind: Kind, *, stage: str, lease: str) -> Change:
    """Start a stage, or start it again. The first execution to start one holds the job; others raise JobClosed.

    A stage that is over does not change the job: the execution repeats a Task whose response was lost, and the
    Task's step is not logged again.
    """

    def change(job: Job, now: str) -> Transition | None:
        if job.is_final or job.lease is not None:
            require_lease(job, lease)
        if kind.all_stages.index(stage) < kind.all_stages.index(job.stage):
            return None
        if stage == job.stage:
            again = replace(job, attempts=job.attempts + 1)
            return Transition(again, "retried", {"attempts": again.attempts})
        started = replace(job, stage=stage, attempts=1, lease=lease, status="running", **_NOT_WAITING)
        if job.status == QUEUED:
            return Transition(replace(started, started_at=now), "started")
        return Transition(started)

    return change


def wait_for_place(job: Job, now: str) -> Transition | None:
    """Write once that a queued job waits because too many jobs of its owner run."""
    if job.status != QUEUED or job.waiting_for == PLACE:
        return None
    return Transition(replace(job, waiting_for=PLACE, waiting_since=now))


def note_wait(waiting_for: str | None) -> Change:
    """Write what a running job waits for, or that it goes on (None). No event is logged."""

    def change(job: Job, now: str) -> Transition | None:
        if job.status != "running" or job.waiting_for == waiting_for:
            return None
        return Transition(replace(job, waiting_for=waiting_for, waiting_since=now if waiting_for else None))

    return change


def step(*, verb: str, lease: str, next_stage: str | None = None, **facts: Any) -> Change:
    """Log a step once, and move to `next_stage`, if given."""

    def change(job: Job, now: str) -> Transition | None:
        require_lease(job, lease)
        if verb in job.steps:
            return None
        moved = replace(job, steps=(*job.steps, verb))
        if next_stage is not None:
            moved = replace(moved, stage=next_stage, attempts=1)
        return Transition(moved, verb, facts)

    return change


# ── jobs on a queue worker ───────────────────────────────────────────────────────────────────────────────


def claim(kind: Kind, *, lease: str, lease_until: str) -> Change:
    """An invocation that ends at `lease_until` takes a queued job.

    Each invocation has its own `lease`, since copies of a message share an id. Raises NotDue if the job may not
    start yet or another invocation may still hold it, and JobClosed if it has ended.
    """

    def change(job: Job, now: str) -> Transition | None:
        if job.lease == lease and not job.is_final:
            return None
        _require_due(job, now)
        taken = replace(
            job,
            status="running",
            stage=kind.stages[0],
            attempts=job.attempts + 1,
            lease=lease,
            lease_until=lease_until,
            started_at=job.started_at or now,
            **_NOT_WAITING,
        )
        return Transition(taken, "started", {"attempts": taken.attempts})

    return change


def release_lease(kind: Kind, *, lease: str, error: Mapping[str, str], not_before: str) -> Change:
    """The invocation that holds the job failed: queue it for the next attempt, or fail it after the last.

    `error`: `{code, message}`, the job's error if this was the last attempt.
    """

    def change(job: Job, now: str) -> Transition | None:
        require_lease(job, lease)
        return _retry_or_fail(kind, job, now, error=error, last_error=error, not_before=not_before)

    return change


def postpone(*, lease: str, waiting_for: str, not_before: str, error: Mapping[str, str]) -> Change:
    """The invocation that holds the job cannot go on yet: queue the job again, and do not count the attempt.

    `error`: `{code, message}`, why.
    """

    def change(job: Job, now: str) -> Transition | None:
        require_lease(job, lease)
        queued = _queued_again(job, until=min(not_before, job.deadline))
        queued = replace(queued, attempts=job.attempts - 1, waiting_for=waiting_for, waiting_since=now)
        return _retried(queued, {**error, "stage": job.stage})

    return change


def expire_lease(kind: Kind) -> Change:
    """Queue or fail a job whose invocation has timed out without releasing it."""

    def change(job: Job, now: str) -> Transition | None:
        if job.status != "running" or job.lease_until is None or job.lease_until > now:
            return None
        return _retry_or_fail(kind, job, now, error=LOST, last_error=EXHAUSTED, not_before=now)

    return change


def defer(*, waiting_for: str, not_before: str) -> Change:
    """Write why a queued job waits, and until when. No attempt was made, so no event is logged."""

    def change(job: Job, now: str) -> Transition | None:
        _require_due(job, now)
        since = job.waiting_since if job.waiting_for == waiting_for else now
        until = min(not_before, job.deadline)
        return Transition(replace(job, not_before=until, waiting_for=waiting_for, waiting_since=since))

    return change


def _require_due(job: Job, now: str) -> None:
    """Raise unless the job is queued and its `not_before` has passed."""
    if job.is_final:
        raise JobClosed(f"the job is {job.status}")
    if job.status == "running":
        raise NotDue(job.lease_until or job.deadline)
    if job.not_before is not None and job.not_before > now:
        raise NotDue(job.not_before)


def _retry_or_fail(
    kind: Kind,
    job: Job,
    now: str,
    *,
    error: Mapping[str, str],
    last_error: Mapping[str, str],
    not_before: str,
) -> Transition:
    if job.attempts >= kind.max_attempts:
        return _failed(job, now, {**last_error, "stage": job.stage})
    queued = _queued_again(job, until=min(not_before, job.deadline))
    if queued.not_before and queued.not_before > now:
        queued = replace(queued, waiting_for=BACKOFF, waiting_since=now)
    return _retried(queued, {**error, "stage": job.stage})


def _queued_again(job: Job, *, until: str) -> Job:
    queued = replace(job, status=QUEUED, stage=QUEUED, lease=None, lease_until=None, **_NOT_WAITING)
    return replace(queued, not_before=until)


def _retried(queued: Job, error: Mapping[str, str]) -> Transition:
    facts = {"attempts": queued.attempts, "error": error, "not_before": queued.not_before}
    return Transition(queued, "retried", facts)


_NOT_WAITING: dict[str, Any] = {"not_before": None, "waiting_for": None, "waiting_since": None}


# ── end ──────────────────────────────────────────────────────────────────────────────────────────────────


def complete(kind: Kind, *, lease: str, result: Mapping[str, Any], result_key: str | None = None) -> Change:
    """Complete a job that this lease holds. A result at `result_key` is too large for the item and the event."""

    def change(job: Job, now: str) -> Transition | None:
        if job.status == "completed":
            return None
        require_lease(job, lease)
        if result_key is None:
            return Transition(_end(job, "completed", now, result=result), kind.completed_verb, result)
        return Transition(
            _end(job, "completed", now, result_key=result_key), kind.completed_verb, {"result_truncated": True}
        )

    return change


def fail(*, code: str, message: str, stage: str | None = None, lease: str | None = None) -> Change:
    """Fail an open job. A job that has ended does not change.

    With a `lease`, raises JobClosed unless it holds the job.
    """

    def change(job: Job, now: str) -> Transition | None:
        if job.is_final:
            return None
        if lease is not None:
            require_lease(job, lease)
        return _failed(job, now, {"code": code, "message": message, "stage": stage or job.stage})

    return change


def expire(job: Job, now: str) -> Transition | None:
    """Fail an open job whose deadline has passed. A job that has ended does not change."""
    if job.waiting_for == PROVIDER_CIRCUIT:
        return fail(code=ModelUnavailable.code, message=NO_MODEL)(job, now)
    message = NEVER_STARTED if job.waiting_for == PLACE else OVERDUE
    return fail(code="deadline_exceeded", message=message)(job, now)


def cancel(job: Job, now: str) -> Transition | None:
    """Cancel an open job. Canceling it again changes nothing. Raises Conflict if it has ended otherwise."""
    if job.status == "canceled":
        return None
    if job.is_final:
        raise Conflict(f"The job is {job.status} already and cannot be canceled.")
    return Transition(_end(job, "canceled", now), "canceled")


def report_progress(done: int, total: int) -> Change:
    def change(job: Job, now: str) -> Transition | None:
        if job.is_final:
            return None
        return Transition(job, "progressed", {"done": done, "total": total})

    return change


def require_lease(job: Job, lease: str) -> None:
    """Raises JobClosed if the job has ended, or another invocation or execution holds it."""
    if job.is_final:
        raise JobClosed(f"the job is {job.status}")
    if job.lease != lease:
        raise JobClosed("another execution holds the job")


def _failed(job: Job, now: str, error: Mapping[str, str]) -> Transition:
    return Transition(_end(job, "failed", now, error=error), "failed", {"error": error})


def _end(job: Job, status: str, now: str, **outcome: Any) -> Job:
    return replace(job, status=status, finished_at=now, **_NOT_WAITING, **outcome)
