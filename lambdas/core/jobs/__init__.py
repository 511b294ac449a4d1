"""Jobs: what a kind declares (`kind`), the state machine (`machine`) and its table (`store`)."""

from core.jobs.inputs import Inputs
from core.jobs.job import FINAL, Job
from core.jobs.kind import Attempt, Completion, Kind, Services, Wait
from core.jobs.machine import begin, cancel, claim, complete, defer, expire_lease, fail, give_back, step
from core.jobs.polling_interval import History
from core.jobs.store import Idempotency, JobStore, Snapshot, Submission, fingerprint, well_formed

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
    "give_back",
    "step",
    "well_formed",
]
