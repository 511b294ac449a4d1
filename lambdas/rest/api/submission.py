"""From a valid request to a job that is written: where its text goes, what its webhook is signed with."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core import events, ids
from core.dependencies import DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS, dependencies
from core.errors import ConditionFailed, Conflict, Contended, InvalidRequest, PayloadTooLarge, Refused
from core.jobs import Idempotency, Inputs, Job, Kind, Submission, fingerprint, links
from core.models import JobRequest, ReplayMode
from core.webhooks.transport.guard import check_url
from kinds.registry import KINDS
from kinds.replay.kind import REPLAY

MAX_KEY_CHARACTERS = 255
MASK = "whsec_…"
MAX_INPUT_BYTES = 32 * 1024
MAX_TRIES = 3


@dataclass(frozen=True, slots=True)
class Accepted:
    """`webhook_secret`: the new secret, a mask where it has been shown before, None without a webhook."""

    submission: Submission
    webhook_secret: str | None


def submit(kind: Kind, request: JobRequest, *, owner: str, idempotency_key: str | None, body: Any) -> Accepted:
    """Write the job. `body` is the JSON as it came, which an idempotency key is bound to."""
    if request.webhook_url:
        check_webhook(request.webhook_url, field="webhook_url")
    config, job_id = dependencies.settings, ids.new("job")
    inputs = Inputs(
        owner=owner,
        job_id=job_id,
        blobs=dependencies.blobs,
        max_inline_bytes=config.max_inline_bytes,
        max_upload_bytes=config.max_upload_bytes,
    )
    job = _draft(
        kind,
        job_id,
        owner=owner,
        input=_of_a_row(kind.prepare(request.input, inputs)),
        metadata=request.metadata,
        webhook_url=request.webhook_url,
        webhook_events=tuple(request.webhook_events or ()),
    )
    return write(kind, job, idempotency=_idempotency(idempotency_key, body))


def _of_a_row(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Every event of a job writes its row anew, so what is large belongs into an upload."""
    try:
        size = len(events.encode(stored))
    except ValueError:  # infinity, or what is no number: Python reads both, and JSON knows neither
        raise InvalidRequest("input: a number in it is not finite", field="input") from None
    if size > MAX_INPUT_BYTES:
        raise PayloadTooLarge(
            f"The input has {size} bytes as JSON, and {MAX_INPUT_BYTES} is the limit. "
            "Send what is large through POST /uploads.",
            field="input",
        )
    return stored


def submit_replay(
    *,
    owner: str,
    endpoint_id: str,
    mode: ReplayMode,
    since: str,
    until: str | None,
    statuses: Sequence[str],
    events: Sequence[str],
    idempotency_key: str | None,
) -> Accepted:
    """Write a job that sends an endpoint's webhooks again: those of `since` ≤ time < `until`, as events name it.

    Without `until` it is the moment of submission, or the job would run after what it logs itself. A key is
    bound to what was asked for, so it holds although that moment is another each time.
    """
    asked = {
        "webhook_id": endpoint_id,
        "mode": mode,
        "since": since,
        "until": until,
        "statuses": list(statuses),
        "events": list(events),
    }
    job = _draft(REPLAY, ids.new("job"), owner=owner, input=asked)
    job = replace(job, input=asked | {"until": until or job.created_at})
    return write(REPLAY, job, idempotency=_idempotency(idempotency_key, asked))


def retry(job: Job, *, idempotency_key: str | None) -> Accepted:
    """Run a job that failed or was canceled again, as a new job of the same input."""
    if job.status not in ("failed", "canceled"):
        raise Conflict(f"The job is {job.status}; only a failed or canceled one can be retried.")
    kind = KINDS.get(job.kind)
    if kind is None:
        raise Conflict(f"Jobs of the kind {job.kind} cannot be run any more.")
    again = _draft(
        kind,
        ids.new("job"),
        owner=job.owner,
        input=job.input,
        metadata=job.metadata,
        webhook_url=job.webhook_url,
        webhook_events=job.webhook_events,
        retry_of=job.job_id,
    )
    return write(kind, again, idempotency=_idempotency(idempotency_key, {"retry_of": job.job_id}))


def write(kind: Kind, job: Job, *, idempotency: Idempotency | None) -> Accepted:
    """One transaction: the job, its first event, its key, and the owner's webhook secret if it is the first."""
    for _ in range(MAX_TRIES):
        secret, operations = _first_secret(job)
        try:
            submission = dependencies.jobs.submit(kind, job, idempotency=idempotency, also=operations)
        except ConditionFailed:  # another job of this owner made the secret in the meantime
            continue
        except Contended:
            if idempotency is None:
                raise
            raise Conflict("Another request with this Idempotency-Key is being answered. Try again.") from None
        shown = secret if secret and not submission.replayed else MASK
        return Accepted(submission, shown if submission.job.webhook_url else None)
    raise Conflict("Another request is making this owner's webhook secret. Try again.")


def _first_secret(job: Job) -> tuple[str | None, Sequence[dict[str, Any]]]:
    if job.webhook_url is None or dependencies.endpoints.find(job.owner):
        return None, ()
    secret, operation = dependencies.endpoints_with_secrets.draft_default(job.owner)
    return secret, (operation,)


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
        raise InvalidRequest(f"A key has 1 to {MAX_KEY_CHARACTERS} characters.", field="Idempotency-Key")
    return Idempotency(key, fingerprint(body), dependencies.settings.idempotency_hours * HOUR_SECONDS)


def check_webhook(url: str, *, field: str) -> None:
    """Raise InvalidRequest, naming the field, for a URL that webhooks may not reach."""
    try:
        check_url(url, dependencies.policy)
    except Refused as error:
        raise InvalidRequest(str(error), field=field) from None
