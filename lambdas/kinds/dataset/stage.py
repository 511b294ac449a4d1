"""What the stages share: a folder on the disk, a watch over the job, and the files for the next stage."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.aws.blobs import results_of, work_folder
from core.dependencies import dependencies
from core.errors import JobClosed, JobDeleted
from core.jobs import Attempt
from core.tasks import task
from kinds.dataset.kind import DATASET
from kinds.dataset.scratch import folder
from kinds.dataset.watch import JobWatch, Watch

CONTENT_TYPES = {
    ".parquet": "application/vnd.apache.parquet",
    ".jsonl": "application/x-ndjson",
    ".json": "application/json",
    ".csv": "text/csv; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
THOUSAND = 1000
SHARES = {
    "clean": (0.0, 0.44),
    "train": (0.44, 0.23),
    "predict": (0.67, 0.22),
    "export": (0.89, 0.08),
    "report": (0.97, 0.03),
}
"""Where each stage begins in the time of a job, and how much of it it takes; of ten million rows, measured."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One run of a stage. `folder` is empty and is deleted afterwards."""

    attempt: Attempt
    folder: Path
    watch: Watch

    @property
    def input(self) -> Mapping[str, Any]:
        return self.attempt.job.input

    def result_key(self, name: str) -> str:
        return f"{results_of(self.attempt.job.owner, self.attempt.job.job_id)}{name}"

    def work_key(self, name: str) -> str:
        return f"{work_folder(self.attempt.job.job_id)}{name}"

    def upload(self, key: str, path: Path) -> None:
        self.attempt.blobs.upload(key, path, content_type=CONTENT_TYPES[path.suffix])

    def download(self, key: str) -> Path:
        target = self.folder / key.rpartition("/")[2]
        self.attempt.blobs.download(key, target)
        return target

    def save(self, name: str, facts: Mapping[str, Any]) -> None:
        """Hand facts to the next stages, or to another attempt at this one."""
        self.attempt.blobs.put(self.work_key(name), json.dumps(facts).encode(), content_type="application/json")

    def load(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.attempt.blobs.get(self.work_key(name)))
        return found

    def has(self, name: str) -> bool:
        return self.attempt.blobs.exists(self.work_key(name))


def handler_of(name: str, work: Callable[[Stage], Mapping[str, Any]]) -> Callable[[Mapping[str, Any], Any], Any]:
    """The handler of a stage. If the job ends meanwhile, nothing that the stage wrote is left."""

    def run(attempt: Attempt) -> Mapping[str, Any]:
        try:
            with folder(attempt.job.job_id) as place:
                watch = JobWatch(attempt.require_open, partial(_report, attempt, name))
                result = work(Stage(attempt, place, watch))
            attempt.require_open()
        except JobClosed:
            _delete_if_ended(attempt)
            raise
        return result

    return task(DATASET, name, run)


def _report(attempt: Attempt, name: str, share: float) -> None:
    """In thousandths of the whole job, so that its end can be estimated."""
    begin, part = SHARES[name]
    attempt.report(round(THOUSAND * (begin + part * share)), THOUSAND)


def _delete_if_ended(attempt: Attempt) -> None:
    job = attempt.job
    try:
        ended = dependencies.jobs.get(job.job_id).is_final
    except JobDeleted:
        ended = True
    if ended:
        for prefix in (work_folder(job.job_id), results_of(job.owner, job.job_id)):
            attempt.blobs.delete_all(prefix)
