"""Jobs and their events as items of the jobs table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from core import events, ids, jobs_table
from core.aws.dynamodb import Item
from core.jobs.job import Job

# Stored as JSON: DynamoDB has no floats and does not keep the order of a map.
_AS_JSON = ("input", "subject", "metadata", "result", "error", "steps", "webhook_events")
_NUMBERS = ("attempts", "version", "sequence", "expires_at")
_TUPLES = ("steps", "webhook_events")


def job_item(job: Job) -> Item:
    """The item of a job. Only an open job has a key of the index of open jobs."""
    item = {key: value for key, value in asdict(job).items() if value is not None}
    item |= {key: json.dumps(item[key]) for key in _AS_JSON if key in item}
    item |= {"entity": "job", **jobs_table.job_key(job.job_id), **jobs_table.job_gsi1(job.owner, job.job_id)}
    return item if job.is_final else item | jobs_table.open_job_gsi2(job.job_id, job.deadline)


def read_job(item: Mapping[str, Any]) -> Job:
    known = {f.name for f in fields(Job)}
    values = {key: value for key, value in item.items() if key in known}
    values |= {key: int(values[key]) for key in _NUMBERS}
    values |= {key: json.loads(values[key]) for key in _AS_JSON if key in values}
    values |= {key: tuple(values[key]) for key in _TUPLES}
    return Job(**values)


def event_item(job: Job, verb: str, facts: Mapping[str, Any], now: str) -> Item:
    """The item of the event that brought the job into its present state."""
    event_id = ids.new("evt")
    name = f"{job.kind}.{verb}"
    envelope = {
        "event": name,
        "event_id": event_id,
        "job_id": job.job_id,
        "sequence": job.sequence,
        "timestamp": now,
        "status": job.status,
        "stage": job.stage,
        **job.subject,
    }
    return {
        **jobs_table.event_key(job.job_id, job.sequence),
        "entity": "event",
        "event_id": event_id,
        "name": name,
        "job_id": job.job_id,
        "kind": job.kind,
        "owner": job.owner,
        "sequence": job.sequence,
        "status": job.status,
        "lifecycle": _lifecycle(job),
        "timestamp": now,
        "expires_at": job.expires_at,
        "body": events.encode({**facts, **envelope}),
    }


def _lifecycle(job: Job) -> str:
    if job.is_final:
        return events.ENDED
    return events.SUBMITTED if job.sequence == 1 else events.PROGRESS
