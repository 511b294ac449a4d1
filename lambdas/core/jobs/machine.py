"""The job's state machine, free of any storage.

    queued ──begin, claim──▶ running ──complete──▶ completed
       │  ◀──give back──────  │ ├──────fail──────▶ failed
       └─────cancel───────────┴─────cancel───────▶ canceled      the last three are final

A kind that a state machine runs is begun stage by stage and stays `running`; the execution is its lease. A kind
that a queue worker runs is claimed as a whole by one invocation, whose lease ends with it, and goes back to
`queued` between its attempts.

A *change* is a pure function of the job as it is; `JobStore.apply` writes what it decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.errors import Conflict, JobClosed, NotDue
from core.jobs.job import Job
from core.jobs.kind import QUEUED, Kind

BACKOFF = "backoff"
EXHAUSTED = {"code": "attempts_exhausted", "message": "The worker was lost at every attempt. Retry the job."}
LOST = {"code": "worker_lost", "message": "The worker was lost. The job is tried again."}


@dataclass(frozen=True, slots=True)
class Transition:
    """What a change decided: the job as it shall be, and the event that says so (`verb`), if any."""

    job: Job
    verb: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


Change = Callable[[Job, str], Transition | None]
"""(job, now) -> what to write, or None where there is nothing left to do."""


# ── stage by stage: a state machine ──────────────────────────────────────────────────────────────────────


def begin(kind: Kind, *, stage: str, lease: str) -> Change:
    """Start a stage, or start it again: the first execution to do so holds the job, and no other may.

    A stage that is over leaves the job as it is. The execution that holds it repeats the work when the answer
    was lost that said it was done, and its step is logged no second time.
    """

    def change(job: Job, now: str) -> Transition | None:
        if job.is_final or job.lease is not None:
            _require_lease(job, lease)
        if kind.order.index(stage) < kind.order.index(job.stage):
            return None
        if stage == job.stage:
            again = replace(job, attempts=job.attempts + 1)
            return Transition(again, "retried", {"attempts": again.attempts})
        started = replace(job, stage=stage, attempts=1, lease=lease, status="running")
        if job.status == QUEUED:
            return Transition(replace(started, started_at=now), "started")
        return Transition(started)

    return change


def step(*, verb: str, lease: str, next_stage: str | None = None, **facts: Any) -> Change:
    """Log that a step is done, once, and move to the next stage, if one is named."""

    def change(job: Job, now: str) -> Transition | None:
        _require_lease(job, lease)
        if verb in job.steps:
            return None
        moved = replace(job, steps=(*job.steps, verb))
        if next_stage is not None:
            moved = replace(moved, stage=next_stage, attempts=1)
        return Transition(moved, verb, facts)

    return change


# ── as a whole: a queue worker ───────────────────────────────────────────────────────────────────────────


def claim(kind: Kind, *, lease: str, lease_until: str) -> Change:
    """An invocation, whose time is up at `lease_until`, takes a queued job.

    `lease` is made anew for each invocation: copies of one message share an id. Raises NotDue where the job is
    not to be taken yet, or another invocation may still be at it, and JobClosed where it has ended.
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


def give_back(kind: Kind, *, lease: str, error: Mapping[str, str], not_before: str) -> Change:
    """The invocation that holds the job has not done it: queue it for another attempt, or fail it after the last.

    `error`: `{code, message}`, which the job fails with if this was the last attempt.
    """

    def change(job: Job, now: str) -> Transition | None:
        _require_lease(job, lease)
        return _try_again(kind, job, now, error=error, last_error=error, not_before=not_before)

    return change


def expire_lease(kind: Kind) -> Change:
    """Take a job from an invocation that must have ended without a word, as its time is up."""

    def change(job: Job, now: str) -> Transition | None:
        if job.status != "running" or job.lease_until is None or job.lease_until > now:
            return None
        return _try_again(kind, job, now, error=LOST, last_error=EXHAUSTED, not_before=now)

    return change


def defer(*, waiting_for: str, not_before: str) -> Change:
    """Note that a queued job waits, and for what. Nothing was tried, so nothing is logged."""

    def change(job: Job, now: str) -> Transition | None:
        _require_due(job, now)
        since = job.waiting_since if job.waiting_for == waiting_for else now
        until = min(not_before, job.deadline)
        return Transition(replace(job, not_before=until, waiting_for=waiting_for, waiting_since=since))

    return change


def _require_due(job: Job, now: str) -> None:
    """Nobody is at it, and its time has come."""
    if job.is_final:
        raise JobClosed(f"the job is {job.status}")
    if job.status == "running":
        raise NotDue(job.lease_until or job.deadline)
    if job.not_before is not None and job.not_before > now:
        raise NotDue(job.not_before)


def _try_again(
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
    until = min(not_before, job.deadline)
    waits: dict[str, Any] = {"waiting_for": BACKOFF, "waiting_since": now} if until > now else _NOT_WAITING
    queued = replace(job, status=QUEUED, stage=QUEUED, lease=None, lease_until=None, **waits)
    queued = replace(queued, not_before=until)
    facts = {"attempts": job.attempts, "error": {**error, "stage": job.stage}, "not_before": until}
    return Transition(queued, "retried", facts)


_NOT_WAITING: dict[str, Any] = {"not_before": None, "waiting_for": None, "waiting_since": None}


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────


def complete(kind: Kind, *, lease: str, result: Mapping[str, Any], result_key: str | None = None) -> Change:
    """Whoever holds the job ends it well. A result that lies at `result_key` is too large for row and event."""

    def change(job: Job, now: str) -> Transition | None:
        if job.status == "completed":
            return None
        _require_lease(job, lease)
        if result_key is None:
            return Transition(_end(job, "completed", now, result=result), kind.good_end, result)
        return Transition(
            _end(job, "completed", now, result_key=result_key), kind.good_end, {"result_truncated": True}
        )

    return change


def fail(*, code: str, message: str, stage: str | None = None, lease: str | None = None) -> Change:
    """End an open job badly. A job that has ended stays as it is: a late failure overwrites nothing.

    With a `lease`, only if that holds the job.
    """

    def change(job: Job, now: str) -> Transition | None:
        if job.is_final:
            return None
        if lease is not None:
            _require_lease(job, lease)
        return _failed(job, now, {"code": code, "message": message, "stage": stage or job.stage})

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
        return Transition(job, "progressed", {"done": done, "total": total})

    return change


def _require_lease(job: Job, lease: str) -> None:
    if job.is_final:
        raise JobClosed(f"the job is {job.status}")
    if job.lease != lease:
        raise JobClosed("another execution holds the job")


def _failed(job: Job, now: str, error: Mapping[str, str]) -> Transition:
    return Transition(_end(job, "failed", now, error=error), "failed", {"error": error})


def _end(job: Job, status: str, now: str, **outcome: Any) -> Job:
    return replace(job, status=status, finished_at=now, **_NOT_WAITING, **outcome)
