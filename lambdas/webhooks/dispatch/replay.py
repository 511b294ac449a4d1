"""Runs jobs of kind `replay`, which send webhooks again in the background, slice by slice.

Slices are short, so that new events are not delayed. A slice ends with a new cursor in the job's progress and a
message that asks for the next slice. A delivery contains the id of the replay that requeued it, so a repeated
slice sends nothing twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from core import jobs
from core.dependencies import dependencies
from core.errors import JobClosed, NotFound
from core.jobs import Job
from core.log import logger
from core.webhooks.endpoints.model import Endpoint
from kinds.replay.kind import REPLAY
from webhooks.dispatch.replay_modes import MODES

REQUESTED, CONTINUED = REPLAY.submitted_event, f"{REPLAY.name}.continued"
SLICE = 100  # deliveries, or jobs whose logs are read


def run_slice(job_id: str) -> None:
    """Run the next slice of a replay."""
    try:
        job = dependencies.jobs.get(job_id)
        if job.status == "queued":
            job = dependencies.jobs.apply(job_id, jobs.begin(REPLAY, stage="send", lease=job_id))
    except NotFound:
        logger.warning("job has expired", job_id=job_id)
        return
    if job.is_final:
        return
    endpoint = dependencies.endpoints.find(job.owner, job.subject["webhook_id"])
    if endpoint is None:
        message = "The endpoint was deleted."
        dependencies.jobs.apply(job_id, jobs.fail(code="not_found", message=message))
        return
    try:
        _run(job, endpoint)
    except JobClosed:
        logger.info("replay has ended during a slice", job_id=job_id)


def _run(job: Job, endpoint: Endpoint) -> None:
    mode = MODES[job.input["mode"]]
    progress = dependencies.jobs.progress.load(job.job_id)
    done, total, before = progress or (0, mode.count(job), None)
    cursor = Cursor.read(before)
    if not cursor.ended:
        part = mode.run_slice(job, endpoint, cursor.position, limit=SLICE)
        cursor = Cursor(sent=cursor.sent + part.sent, position=part.position, ended=part.examined < SLICE)
        done += part.examined
        saved = dependencies.jobs.progress.save(
            job, done=done, total=max(total, done), cursor=cursor.text, was=before
        )
        if not saved:  # another worker has run this slice, and continues
            return
    if cursor.ended:
        result = {"sent": cursor.sent}
        dependencies.jobs.apply(job.job_id, jobs.complete(REPLAY, lease=job.job_id, result=result))
    else:
        _request_next_slice(job)


def _request_next_slice(job: Job) -> None:
    dependencies.sqs.send_message(
        QueueUrl=dependencies.settings.notify_queue_url,
        MessageBody=json.dumps({"event": CONTINUED, "job_id": job.job_id}),
        MessageGroupId=job.owner,
    )


@dataclass(frozen=True, slots=True)
class Cursor:
    """The number of deliveries sent so far, and the position of the next slice, in the form of the mode."""

    sent: int = 0
    position: str = ""
    ended: bool = False

    @classmethod
    def read(cls, text: str | None) -> Cursor:
        return cls(*json.loads(text)) if text else cls()

    @property
    def text(self) -> str:
        return json.dumps([self.sent, self.position, self.ended])
