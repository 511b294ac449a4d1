"""A store with a job, and a clock, for long polls."""

from __future__ import annotations

import time
from typing import Any

import pytest

from core.jobs import JobStore, links
from kinds.document.kind import DOCUMENT
from tests.unit.examples import FakeClock, job


@pytest.fixture
def store(environment: dict[str, str], dynamodb: Any, jobs_table: str, keys_table: str) -> JobStore:
    return JobStore(dynamodb, jobs_table)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """A clock for the function, whose sleep takes exactly its time."""
    clock = FakeClock(time.time())
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


@pytest.fixture
def job_id(store: JobStore) -> str:
    return store.submit(DOCUMENT, job(at=time.time(), link_key=links.make_key())).job.job_id
