"""The completion and the clean-up of jobs (core.jobs.finish)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from core.errors import ConditionFailed, JobFailure
from core.jobs import Completion, Job, JobStore, Kind, Services, begin
from core.jobs.finish import clean_up, complete_job
from core.jobs.results import MAX_RESULT_BYTES
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import FakeClock, echo_kind, job

TABLE, LEASE = "jobs", "execution-1"
LARGE = {"said": "x" * MAX_RESULT_BYTES}


class Superseded(JobFailure):
    code = "superseded"


class Bench:
    """A running job, and the stores that its completion writes to."""

    def __init__(self) -> None:
        self.table, self.blobs = MemoryTable(), MemoryBlobs()
        self.store = JobStore(self.table, TABLE, clock=FakeClock(), sleep=lambda seconds: None)
        self.services = Services(self.blobs, self.table, TABLE)
        self.job = self.running()

    def running(self) -> Job:
        draft = job(kind="echo", input={"text": "hello"}, subject={})
        job_id = self.store.submit(echo_kind(), draft).job.job_id
        return self.store.apply(job_id, begin(echo_kind(), stage="say", lease=LEASE))

    def complete(
        self, kind: Kind | None = None, result: Mapping[str, Any] | None = None, lease: str = LEASE
    ) -> Job:
        found = {"said": "hello"} if result is None else result
        return complete_job(self.store, self.services, kind or echo_kind(), self.job, lease=lease, result=found)

    @property
    def last(self) -> dict[str, Any]:
        return self.store.log.read(self.job.job_id)[-1].payload


@pytest.fixture
def bench() -> Bench:
    return Bench()


def put(sk: str, *, new: bool = True) -> dict[str, Any]:
    """A write on the condition that the item does not exist."""
    item = {"pk": "OWNER#ana", "sk": sk}
    return {"Put": {"TableName": TABLE, "Item": item, "ConditionExpression": "attribute_not_exists(pk)"}}


# ── completion ───────────────────────────────────────────────────────────────────────────────────────────────


def test_small_result(bench: Bench) -> None:
    """A small result is in the job's item and in the last event, and no object is written."""
    completed = bench.complete()
    assert completed == bench.store.get(bench.job.job_id)
    assert (completed.status, completed.result, completed.result_key) == ("completed", {"said": "hello"}, None)
    assert (bench.last["event"], bench.last["said"], bench.last["status"]) == ("echo.said", "hello", "completed")
    assert "result_truncated" not in bench.last
    assert bench.blobs.objects == {}


def test_large_result(bench: Bench) -> None:
    """A large result is an object. The item has its key, and the event says that the result is truncated."""
    completed = bench.complete(result=LARGE)
    key = f"results/ana/{bench.job.job_id}/result.json"
    assert completed == bench.store.get(bench.job.job_id)
    assert (completed.status, completed.result, completed.result_key) == ("completed", None, key)
    assert json.loads(bench.blobs.objects[key]) == LARGE
    assert bench.last["result_truncated"] is True
    assert "said" not in bench.last


@pytest.mark.parametrize("result", [{"said": "hello"}, LARGE], ids=["small", "large"])
def test_completing_twice(bench: Bench, result: Mapping[str, Any]) -> None:
    """Completing a job again changes nothing."""
    completed = bench.complete(result=result)
    assert bench.complete(result=result) == completed
    assert bench.last["sequence"] == 3


def test_on_complete(bench: Bench) -> None:
    """The kind determines the result and adds writes to the transaction."""

    def on_complete(subject: Job, result: Mapping[str, Any], services: Services) -> Completion:
        assert (subject, services) == (bench.job, bench.services)
        return Completion(result={"said": result["said"].upper()}, writes=[put("A"), put("B")])

    writes = len(bench.table.items)
    assert bench.complete(echo_kind(on_complete=on_complete)).result == {"said": "HELLO"}
    assert ("OWNER#ana", "A") in bench.table.items
    assert len(bench.table.items) == writes + 3 - 1  # the job is not open any more


@pytest.mark.parametrize("result", [{"said": "hello"}, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("on_condition_failed", "raised"),
    [(Superseded("A newer one came first."), Superseded), (None, ConditionFailed)],
)
def test_failed_condition(
    bench: Bench, result: Mapping[str, Any], on_condition_failed: JobFailure | None, raised: type[Exception]
) -> None:
    """If the condition of a kind's write fails, nothing is written and the kind's error is raised."""
    bench.table.put_item(Item={"pk": "OWNER#ana", "sk": "A"})

    def on_complete(subject: Job, result: Mapping[str, Any], services: Services) -> Completion:
        return Completion(result=result, writes=[put("A"), put("B")], on_condition_failed=on_condition_failed)

    with pytest.raises(raised):
        bench.complete(echo_kind(on_complete=on_complete), result=result)
    assert bench.store.get(bench.job.job_id) == bench.job
    assert ("OWNER#ana", "B") not in bench.table.items


def test_error_in_on_complete(bench: Bench) -> None:
    """An error that a kind raises in on_complete is raised, and nothing is written."""

    def on_complete(subject: Job, result: Mapping[str, Any], services: Services) -> Completion:
        raise Superseded("Not this one.")

    with pytest.raises(Superseded):
        bench.complete(echo_kind(on_complete=on_complete), result=LARGE)
    assert bench.store.get(bench.job.job_id) == bench.job
    assert bench.blobs.objects == {}


# ── clean-up ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_clean_up(bench: Bench) -> None:
    """The job's work folder is deleted, and nothing else."""
    job_id = bench.job.job_id
    kept = [f"inputs/ana/{job_id}", f"results/ana/{job_id}/result.json", f"work/{job_id}0/x", "work/x"]
    for key in (*kept, f"work/{job_id}/a", f"work/{job_id}/b/c"):
        bench.blobs.put(key, b"x")
    clean_up(echo_kind(), bench.job, bench.services)
    clean_up(echo_kind(), bench.job, bench.services)
    assert sorted(bench.blobs.objects) == sorted(kept)


def test_on_ended_runs_first(bench: Bench) -> None:
    """The kind's hook runs before the work folder is deleted. If it fails, the clean-up can be repeated."""
    calls: list[str] = []
    bench.blobs.put(f"work/{bench.job.job_id}/index", b"x")

    def on_ended(subject: Job, services: Services) -> None:
        calls.append(subject.job_id)
        assert list(services.blobs.keys("work/")) == [f"work/{bench.job.job_id}/index"]
        if len(calls) == 1:
            raise OSError("not now")

    with pytest.raises(OSError, match="not now"):
        clean_up(echo_kind(on_ended=on_ended), bench.job, bench.services)
    assert len(bench.blobs.objects) == 1
    clean_up(echo_kind(on_ended=on_ended), bench.job, bench.services)
    assert (bench.blobs.objects, calls) == ({}, [bench.job.job_id] * 2)
