"""A job store for tests, over a table in memory or in moto."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs import Job, JobStore
from core.jobs.progress import EVENT_SECONDS
from kinds.document.kind import DOCUMENT
from tests.unit.core.jobs.fault_injection import FaultyClient
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.examples import FakeClock, job

TABLE = "jobs"


A, B = "execution-a", "execution-b"


class Bench:
    """A store over a table in memory or in moto, a client that injects faults, and a second writer."""

    def __init__(self, table: Any = None) -> None:
        self.table = table or MemoryTable()
        self.client = FaultyClient(self.table)
        self.clock = FakeClock()
        self.store = JobStore(self.client, TABLE, clock=self.clock, sleep=lambda seconds: None)
        self.other_store = JobStore(self.table, TABLE, clock=self.clock, sleep=lambda seconds: None)

    def submitted(self, **facts: Any) -> Job:
        return self.store.submit(DOCUMENT, job(**facts)).job

    def item(self, pk: str, sk: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.table.get_item(TableName=TABLE, Key={"pk": pk, "sk": sk}).get("Item")
        return found

    def log(self, job_id: str) -> list[str]:
        return [event.name.removeprefix("document.") for event in self.store.log.read(job_id)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def cloud_bench(dynamodb: Any, jobs_table: str) -> Bench:
    """A bench over moto."""
    return Bench(dynamodb)


def report_progress_now(bench: Bench, subject: Job) -> None:
    """Two batches with enough time between them to log the second."""
    bench.store.progress.mark_batch(subject, 0, total=2)
    bench.clock.now += EVENT_SECONDS
    bench.store.progress.mark_batch(subject, 1, total=2)
