"""Submits jobs: writes the job of a valid request, with the secret of its webhook if it is the owner's first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core import events, ids
from core.dependencies import DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS, dependencies
from core.errors import (
    ConditionFailed,
    Conflict,
    Contended,
    InvalidRequest,
    PayloadTooLarge,
    QuotaExceeded,
)
from core.jobs import Idempotency, Inputs, Job, Kind, Submission, fingerprint, links
from core.jobs.inputs import copy_texts
from core.jobs.models import JobRequest

MAX_KEY_CHARACTERS = 255
MASK = "whsec_…"
MAX_INPUT_BYTES = 32 * 1024
MAX_TRIES = 3
FULL_RETRY_SECONDS = 15
"""When to try again if there are too many open jobs: one may have ended by then."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """`webhook_secret`: the new secret, a mask if it was shown before, None without a webhook."""

    submission: Submission
    webhook_secret: str | None


Secret = tuple[str | None, Sequence[dict[str, Any]]]
"""A new webhook secret and the writes that store it; nothing if the owner has one."""
FirstSecret = Callable[[Job], Secret]


def no_secret(job: Job) -> Secret:
    """For jobs that call no webhook of their own."""
    return None, ()


def submit(
    kind: Kind,
    request: JobRequest,
    *,
    owner: str,
    idempotency_key: str | None,
    body: Any,
    first_secret: FirstSecret = no_secret,
) -> Accepted:
    """Write the job. `body` is the JSON of the request, whose fingerprint is stored with the idempotency key."""
    idempotency = _idempotency(idempotency_key, body)
    if earlier := _check_open_jobs(owner, idempotency):
        return earlier
    config, job_id = dependencies.settings, ids.new("job")
    inputs = Inputs(
        owner=owner,
        job_id=job_id,
        blobs=dependencies.blobs,
        max_inline_bytes=config.max_inline_bytes,
        max_upload_bytes=upload_limit(kind),
    )
    job = _draft(
        kind,
        job_id,
        owner=owner,
        input=_check_size(kind.prepare(request.input, inputs)),
        metadata=request.metadata,
        webhook_url=request.webhook_url,
        webhook_events=tuple(request.webhook_events or ()),
    )
    return _write(kind, job, idempotency, first_secret)


def upload_limit(kind: Kind) -> int:
    """The most bytes of a file for a job of this kind."""
    config = dependencies.settings
    return config.max_upload_bytes if kind.large_uploads else config.max_document_bytes


def _check_open_jobs(owner: str, idempotency: Idempotency | None) -> Accepted | None:
    """Raise QuotaExceeded if the owner has too many open jobs.

    Then a repetition of an accepted request is answered with its job, as ever. Nothing is stored before this, and
    requests at the same moment do not count each other: a few more jobs do no harm.
    """
    limit = dependencies.settings.max_open_jobs
    if dependencies.jobs.open_jobs.count(owner, limit=limit) < limit:
        return None
    if earlier := dependencies.jobs.job_of_key(owner, idempotency):
        return _accepted(Submission(earlier, replayed=True), None)
    raise QuotaExceeded(
        f"You have {limit} open jobs, which is the limit. A job of any kind counts until it has completed, "
        "failed or been canceled. Wait until some have ended, or cancel some.",
        retry_after=FULL_RETRY_SECONDS,
    )


def _check_size(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Each event of a job writes its item, with the input, so a large input must be an upload."""
    try:
        size = len(events.encode(stored))
    except ValueError:  # Infinity or NaN, which Python parses although JSON does not have them
        raise InvalidRequest("input: it contains a number that is not finite", field="input") from None
    if size > MAX_INPUT_BYTES:
        raise PayloadTooLarge(
            f"The input has {size} bytes as JSON; the limit is {MAX_INPUT_BYTES}. "
            "Send large data through POST /uploads.",
            field="input",
        )
    return stored


def submit_input(
    kind: Kind,
    given: Mapping[str, Any],
    *,
    owner: str,
    idempotency_key: str | None,
    complete: Callable[[Job], Job] = lambda job: job,
) -> Accepted:
    """Write a job whose input is stored as it is given. `complete` adds what depends on the job, as defaults do.

    The fingerprint is that of `given`, so a repeated request has the same one.
    """
    idempotency = _idempotency(idempotency_key, dict(given))
    if earlier := _check_open_jobs(owner, idempotency):
        return earlier
    job = _draft(kind, ids.new("job"), owner=owner, input=given)
    return _write(kind, complete(job), idempotency, no_secret)


def retry(
    kind: Kind | None, job: Job, *, idempotency_key: str | None, first_secret: FirstSecret = no_secret
) -> Accepted:
    """Run a failed or canceled job again, as a new job with the same input. `kind`: None if it is gone."""
    if job.status not in ("failed", "canceled"):
        raise Conflict(f"The job is {job.status}. Only a failed or canceled job can be retried.")
    if kind is None:
        raise Conflict(f"Jobs of the kind {job.kind} are no longer supported.")
    idempotency = _idempotency(idempotency_key, {"retry_of": job.job_id})
    if earlier := _check_open_jobs(job.owner, idempotency):
        return earlier
    again_id = ids.new("job")
    again = _draft(
        kind,
        again_id,
        owner=job.owner,
        input=copy_texts(job.input, owner=job.owner, job_id=again_id, blobs=dependencies.blobs),
        metadata=job.metadata,
        webhook_url=job.webhook_url,
        webhook_events=job.webhook_events,
        retry_of=job.job_id,
    )
    return _write(kind, again, idempotency, first_secret)


def _write(kind: Kind, job: Job, idempotency: Idempotency | None, first_secret: FirstSecret) -> Accepted:
    """In one transaction: the job, its first event, its idempotency key, and the owner's first webhook secret."""
    for _ in range(MAX_TRIES):
        secret, operations = first_secret(job)
        try:
            submission = dependencies.jobs.submit(kind, job, idempotency=idempotency, writes=operations)
        except ConditionFailed:  # another job of this owner has created the secret
            continue
        except Contended:
            if idempotency is None:
                raise
            raise Conflict("Another request with this Idempotency-Key is in progress. Try again.") from None
        return _accepted(submission, secret)
    raise Conflict("Another request is creating your webhook secret. Try again.")


def _accepted(submission: Submission, secret: str | None) -> Accepted:
    shown = secret if secret and not submission.replayed else MASK
    return Accepted(submission, shown if submission.job.webhook_url else None)


def _draft(kind: Kind, job_id: str, **facts: Any) -> Job:
    config, now = dependencies.settings, time.time()
    seconds = kind.deadline.total_seconds() if kind.deadline else config.job_deadline_minutes * MINUTE_SECONDS
    return Job(
        job_id=job_id,
        kind=kind.name,
        link_key=links.make_key(),
        created_at=events.timestamp(now),
        updated_at=events.timestamp(now),
        deadline=events.timestamp(now + seconds),
        expires_at=int(now) + config.job_retention_days * DAY_SECONDS,
        **facts,
    )


def _idempotency(key: str | None, body: Any) -> Idempotency | None:
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY_CHARACTERS:
        raise InvalidRequest(f"A key must have 1 to {MAX_KEY_CHARACTERS} characters.", field="Idempotency-Key")
    return Idempotency(key, fingerprint(body), dependencies.settings.idempotency_hours * HOUR_SECONDS)
