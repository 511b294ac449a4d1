"""Jobs: the state machine (`machine`) and its table (`store`)."""

from core.jobs.machine import FINAL, STAGES, Job, begin, cancel, complete, fail, step
from core.jobs.pace import History
from core.jobs.store import Idempotency, JobStore, Snapshot, Submission, fingerprint, well_formed

__all__ = [
    "FINAL",
    "STAGES",
    "History",
    "Idempotency",
    "Job",
    "JobStore",
    "Snapshot",
    "Submission",
    "begin",
    "cancel",
    "complete",
    "fail",
    "fingerprint",
    "step",
    "well_formed",
]
