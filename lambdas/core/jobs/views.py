"""Jobs as the API shows them to their owner."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from core import events
from core.jobs import Job, Snapshot
from core.jobs.links import make_token
from core.jobs.polling_interval import History, expected_duration, next_poll
from core.jobs.results import result_files
from core.jobs.usage import usage_view

RESULT_LINK_SECONDS = 300
"""No revocation ends links to files, so they live as long as a revoked key may. The next reading has new ones."""


@dataclass(frozen=True, slots=True)
class LinkMaker:
    """Makes links to the API at `root` and to the WebSocket API at `live`.

    Tokens in links are valid for `hours`. `sign(key, seconds=…)` makes a URL that reads an object. `epoch`: of the
    job's owner, see `links`.
    """

    root: str
    live: str
    hours: int
    sign: Callable[..., str]
    epoch: int = 0

    def of(self, job: Job) -> dict[str, str]:
        """`self` needs an API key; the others need no headers."""
        token = make_token(job, now=time.time(), hours=self.hours, epoch=self.epoch)
        follow = f"{self.root}/follow/{token}"
        links = {
            "self": f"{self.root}/jobs/{job.job_id}",
            "status": f"{follow}/status",
            "events": f"{follow}/events",
            "live": f"{self.live}?token={token}",
        }
        if job.result_key:
            links["result"] = self.sign(job.result_key, seconds=RESULT_LINK_SECONDS)
        return links

    def files(self, job: Job) -> dict[str, str]:
        """A link to each file of the result."""
        return {label: self.sign(key, seconds=RESULT_LINK_SECONDS) for label, key in result_files(job).items()}


def status_view(snapshot: Snapshot, history: History) -> dict[str, Any]:
    """What a polling client needs. `history`: how long such jobs took."""
    job = snapshot.job
    done_total = snapshot.progress
    view = {
        "job_id": job.job_id,
        "status": job.status,
        "stage": job.stage,
        "progress": {"done": done_total[0], "total": done_total[1]} if done_total else None,
        "attempts": job.attempts,
        "sequence": job.sequence,
        "expected_completion": _expected_completion(snapshot, history),
    }
    if job.waiting_for:
        view |= {"waiting_for": job.waiting_for, "waiting_since": job.waiting_since}
    return view | ({"error": dict(job.error)} if job.error else {})


def job_view(snapshot: Snapshot, links: LinkMaker, history: History) -> dict[str, Any]:
    """The whole job without internal attributes: leases, keys of files, the item's version."""
    job = snapshot.job
    return status_view(snapshot, history) | {
        "kind": job.kind,
        **job.subject,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "metadata": dict(job.metadata),
        "retry_of": job.retry_of,
        "result": dict(job.result) if job.result is not None else None,
        "result_truncated": job.result_key is not None,
        "usage": usage_view(snapshot.usage),
        "webhook": _webhook(job, snapshot.webhook),
        "files": links.files(job),
        "links": links.of(job),
    }


def job_summary(job: Job, links: LinkMaker) -> dict[str, Any]:
    """One job of a list."""
    shown = ("job_id", "kind", "status", "stage", "created_at", "finished_at", "error")
    return {name: getattr(job, name) for name in shown} | {**job.subject, "links": links.of(job)}


def _webhook(job: Job, last: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The state of the last delivery, or that there is none yet; None for a job without a webhook."""
    if job.webhook_url is None:
        return None
    hidden = {"pk", "sk", "at", "expires_at"}
    known = {key: _plain(value) for key, value in (last or {}).items() if key not in hidden}
    return {"url": job.webhook_url, "status": None, "attempts": 0} | known


def _plain(value: Any) -> Any:
    """DynamoDB returns numbers as Decimal, which JSON cannot encode."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return int(value) if isinstance(value, Decimal) else value


def etag(snapshot: Snapshot) -> str:
    """Changes if and only if the job's item or its progress changes."""
    state = f"{snapshot.job.job_id} {snapshot.job.version} {snapshot.progress}"
    return f'"{hashlib.sha256(state.encode()).hexdigest()[:24]}"'


def retry_after(snapshot: Snapshot, history: History) -> int:
    """Seconds until the next poll."""
    # The batch in progress may be almost done: without it, a job of few batches would be polled too late.
    return next_poll(_age(snapshot.job), history=history, progress=_progress(snapshot, in_progress=1))


def _expected_completion(snapshot: Snapshot, history: History) -> str | None:
    if snapshot.job.is_final:
        return None
    length = expected_duration(_age(snapshot.job), history=history, progress=_progress(snapshot))
    return None if length is None else events.timestamp(_created(snapshot.job) + length)


def _progress(snapshot: Snapshot, *, in_progress: int = 0) -> float | None:
    """The share of the job's batches that are done: the stage with batches takes most of the time."""
    done, total = snapshot.progress or (0, 0)
    return min(done + in_progress, total) / total if total else None


def _age(job: Job) -> float:
    return max(0.0, time.time() - _created(job))


def _created(job: Job) -> float:
    return datetime.fromisoformat(job.created_at).timestamp()
