"""Jobs: the declaration of a kind (`kind`), the state machine (`machine`) and the jobs table (`store`)."""

from core.jobs.idempotency import Idempotency, fingerprint
from core.jobs.inputs import Inputs
from core.jobs.job import FINAL, Job
from core.jobs.kind import Attempt, Completion, Kind, Services, Wait
from core.jobs.machine import begin, cancel, claim, complete, defer, expire_lease, fail, release_lease, step
from core.jobs.polling_interval import History
from core.jobs.store import JobStore, Snapshot, Submission, valid_job_id

__all__ = [
    "FINAL",
    "Attempt",
    "Completion",
    "History",
    "Idempotency",
    "Inputs",
    "Job",
    "JobStore",
    "Kind",
    "Services",
    "Snapshot",
    "Submission",
    "Wait",
    "begin",
    "cancel",
    "claim",
    "complete",
    "defer",
    "expire_lease",
    "fail",
    "fingerprint",
    "release_lease",
    "step",
    "valid_job_id",
]
