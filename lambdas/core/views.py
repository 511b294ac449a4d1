"""How a job looks to its owner."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from core.jobs import Job, Snapshot

RETRY_AFTER_MAX_SECONDS = 60


def small(snapshot: Snapshot) -> dict[str, Any]:
    """What polling needs."""
    job = snapshot.job
    done_total = snapshot.progress
    view = {
        "job_id": job.job_id,
        "status": job.status,
        "stage": job.stage,
        "progress": {"done": done_total[0], "total": done_total[1]} if done_total else None,
        "attempts": job.attempts,
        "sequence": job.sequence,
    }
    return view | ({"error": dict(job.error)} if job.error else {})


def whole(snapshot: Snapshot, root: str) -> dict[str, Any]:
    """Everything but what is internal: leases, keys of files, versions of the row."""
    job = snapshot.job
    return small(snapshot) | {
        "kind": job.kind,
        **job.subject,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "metadata": dict(job.metadata),
        "retry_of": job.retry_of,
        "result": dict(job.result) if job.result else None,
        "webhook": _webhook(job, snapshot.webhook),
        "links": links(job, root),
    }


def summary(job: Job, root: str) -> dict[str, Any]:
    """A line of a list."""
    shown = ("job_id", "kind", "status", "stage", "created_at", "finished_at", "error")
    return {name: getattr(job, name) for name in shown} | job.subject | {"links": links(job, root)}


def links(job: Job, root: str) -> dict[str, str]:
    here = f"{root}/jobs/{job.job_id}"
    return {"self": here, "status": f"{here}/status", "events": f"{here}/events"}


def _webhook(job: Job, last: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The last delivery's state, or that there has been none yet."""
    if job.webhook_url is None:
        return None
    hidden = {"pk", "sk", "at", "expires_at"}
    known = {key: _plain(value) for key, value in (last or {}).items() if key not in hidden}
    return {"url": job.webhook_url, "status": None, "attempts": 0} | known


def _plain(value: Any) -> Any:
    """DynamoDB gives every number as a Decimal, which JSON does not know."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return int(value) if isinstance(value, Decimal) else value


def etag(snapshot: Snapshot) -> str:
    """Changes with the row and its progress, and only then."""
    state = f"{snapshot.job.job_id} {snapshot.job.version} {snapshot.progress}"
    return f'"{hashlib.sha256(state.encode()).hexdigest()[:24]}"'


def retry_after(job: Job, now: float) -> int:
    """Seconds until the next look is worth it: a tenth of the job's age, between 1 and 60."""
    age = now - datetime.fromisoformat(job.created_at).timestamp()
    return max(1, min(RETRY_AFTER_MAX_SECONDS, round(age / 10)))
