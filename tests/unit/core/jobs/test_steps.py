"""The steps of jobs in the table (core.jobs.steps)."""

from __future__ import annotations

from typing import Any

import pytest

from core.aws.dynamodb import UnexpiredItems
from core.errors import JobClosed
from core.jobs.steps import StepStore, done_payload
from tests.unit.examples import FakeClock, job


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(0.0)


@pytest.fixture
def steps(dynamodb: Any, jobs_table: str, clock: FakeClock) -> StepStore:
    return StepStore(dynamodb, jobs_table, UnexpiredItems(dynamodb, jobs_table, clock))


def test_order(steps: StepStore) -> None:
    """Steps are read in order, after any number, with the sequence of the event before them."""
    one = job(sequence=2)
    for number in range(1, 13):
        steps.append(one, number, {"type": "thinking", "content": f"{number} ñ"})
    assert [step.number for step in steps.read(one.job_id)] == list(range(1, 13))
    found = steps.read(one.job_id, after=9)
    assert [(step.number, step.sequence) for step in found] == [(10, 2), (11, 2), (12, 2)]
    assert found[0].payload == {"type": "thinking", "content": "10 ñ"}
    assert steps.read("job_other") == []


def test_two_writers(steps: StepStore) -> None:
    """A step that is written again is the same; another one of its number means that another worker writes."""
    one = job()
    steps.append(one, 1, {"type": "thinking"})
    steps.append(one, 1, {"type": "thinking"})
    with pytest.raises(JobClosed):
        steps.append(one, 1, {"type": "token"})
    assert [step.payload for step in steps.read(one.job_id)] == [{"type": "thinking"}]


def test_expiry(steps: StepStore, clock: FakeClock) -> None:
    """Steps expire with their job."""
    one = job()
    steps.append(one, 1, {"type": "thinking"})
    clock.now = one.expires_at
    assert steps.read(one.job_id) == []


@pytest.mark.parametrize("failure", [{}, {"error": {"code": "internal", "message": "No.", "stage": "answer"}}])
def test_done(failure: dict[str, Any]) -> None:
    """`done` has the job's status, and its error if it has failed."""
    last = {"event": "agent.failed", "status": "failed", "sequence": 3, **failure}
    assert done_payload("job_1", last) == {"type": "done", "job_id": "job_1", "status": "failed", **failure}
