"""Tasks of state machines (core.tasks)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from core.dependencies import dependencies
from core.errors import JobClosed, JobFailure, Unavailable
from core.jobs import FINAL, Attempt, Job, JobStore, Kind, cancel, fail
from core.jobs.results import MAX_RESULT_BYTES, result_of
from core.tasks import task
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import Echoed, EchoRequested, FakeClock, echo_kind, job

EXECUTION = "arn:execution"
SECONDS_LEFT = 12.5
Work = Callable[[Attempt], Mapping[str, Any]]


class Context:
    """A function with some seconds left."""

    def get_remaining_time_in_millis(self) -> int:
        return int(SECONDS_LEFT * 1000)


class Bench:
    """A queued job with two stages, and a Task for the first of them."""

    def __init__(self) -> None:
        self.blobs = MemoryBlobs()
        self.store = JobStore(MemoryTable(), "jobs", clock=FakeClock(), sleep=lambda seconds: None)
        self.kind: Kind = echo_kind(
            stages=("read", "say"),
            runs_on="machine",
            work=None,
            events={"requested": EchoRequested, "said": EchoRequested, "completed": Echoed},
        )
        draft = job(kind="echo", input={"text": "hello"}, subject={})
        self.job_id = self.store.submit(self.kind, draft).job.job_id

    @property
    def job(self) -> Job:
        return self.store.get(self.job_id)

    @property
    def log(self) -> list[str]:
        return [event.name.removeprefix("echo.") for event in self.store.log.read(self.job_id)]

    def do(self, work: Work) -> dict[str, Any]:
        return task(self.kind, "read", work)({"job_id": self.job_id, "execution": EXECUTION}, Context())

    def file(self, name: str = "x") -> str:
        """Writes an intermediate file of the job."""
        key = f"work/{self.job_id}/{name}"
        self.blobs.put(key, b"x")
        return key


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    dependencies.cache_clear()
    monkeypatch.setitem(vars(dependencies), "jobs", bench.store)
    monkeypatch.setitem(vars(dependencies), "blobs", bench.blobs)
    return bench


def never(attempt: Attempt) -> Mapping[str, Any]:
    pytest.fail("the work is not done")


# ── beginning ────────────────────────────────────────────────────────────────────────────────────────────────


def test_stage(bench: Bench) -> None:
    """The Task begins the stage, does the work and returns the result."""
    seen: list[Attempt] = []

    def work(attempt: Attempt) -> Mapping[str, Any]:
        seen.append(attempt)
        assert bench.job == attempt.job
        return {"words": 3}

    assert bench.do(work) == {"words": 3}
    (attempt,) = seen
    assert (attempt.job.status, attempt.job.stage, attempt.job.attempts) == ("running", "read", 1)
    assert (attempt.job.lease, attempt.blobs) == (EXECUTION, bench.blobs)
    assert attempt.seconds_left() == SECONDS_LEFT
    assert bench.job == attempt.job
    assert bench.log == ["requested", "started"]


@pytest.mark.parametrize("change", [cancel, fail(code="x", message="y")], ids=["canceled", "failed"])
def test_ended_job(bench: Bench, change: Any) -> None:
    """No work is done for a job that has ended."""
    ended = bench.store.apply(bench.job_id, change)
    with pytest.raises(JobClosed, match=f"the job is {ended.status}"):
        bench.do(never)
    assert bench.job == ended


# ── the result ───────────────────────────────────────────────────────────────────────────────────────────────


def of_size(size: int) -> dict[str, str]:
    return {"said": "x" * (size - len('{"said":""}'))}


def test_large_result(bench: Bench) -> None:
    """A larger result is stored, and its key is returned."""
    result = of_size(MAX_RESULT_BYTES + 1)
    handed_on = bench.do(lambda attempt: result)
    assert handed_on == {"result_key": f"results/ana/{bench.job_id}/result.json"}
    assert result_of(bench.blobs, handed_on) == result


@pytest.mark.parametrize(
    "result", [{}, {"words": 3}, {"result_key": "x", "words": 3}, {"words": {"result_key": "x"}}], ids=json.dumps
)
def test_small_result(result: dict[str, Any]) -> None:
    """A small result is not read from S3."""
    blobs = MemoryBlobs()
    assert result_of(blobs, result) == result
    assert blobs.reads == []


# ── what work may do ─────────────────────────────────────────────────────────────────────────────────────────


def test_step(bench: Bench) -> None:
    """A step is logged once, also over several attempts."""

    def work(attempt: Attempt) -> Mapping[str, Any]:
        attempt.step("said", times=3)
        attempt.step("said", times=4)
        return {}

    bench.do(work)
    bench.do(work)
    assert bench.log == ["requested", "started", "said", "retried"]
    assert bench.store.log.read(bench.job_id)[2].payload["times"] == 3
    assert (bench.job.stage, bench.job.attempts) == ("read", 2)


def test_progress(bench: Bench) -> None:
    """Progress is stored at once."""

    def work(attempt: Attempt) -> Mapping[str, Any]:
        attempt.report(3, 40)
        assert bench.store.snapshot(bench.job_id).progress == (3, 40)
        return {}

    bench.do(work)


# ── canceled meanwhile ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("result", [{"words": 3}, of_size(MAX_RESULT_BYTES + 1)], ids=["small", "large"])
@pytest.mark.parametrize(
    "change", [cancel, fail(code="deadline_exceeded", message="y")], ids=["canceled", "failed"]
)
def test_end_during_work(bench: Bench, change: Any, result: dict[str, Any]) -> None:
    """Files of a job that ended meanwhile are deleted, and no result is returned."""
    other = bench.blobs.put("work/job_other/x", b"x")

    def work(attempt: Attempt) -> Mapping[str, Any]:
        bench.file("before")
        bench.store.apply(bench.job_id, change)
        bench.file("after")
        return result

    with pytest.raises(JobClosed):
        bench.do(work)
    assert (list(bench.blobs.objects), other) == (["work/job_other/x"], '"etag"')
    assert bench.job.status in FINAL


@pytest.mark.parametrize("how", ["step", "failure", "crash"])
def test_end_and_error_during_work(bench: Bench, how: str) -> None:
    """Files are also deleted if the work raises an error after the job's end."""

    def work(attempt: Attempt) -> Mapping[str, Any]:
        bench.store.apply(bench.job_id, cancel)
        bench.file()
        if how == "step":
            attempt.step("said")
        raise JobFailure("no use") if how == "failure" else RuntimeError("broken")

    with pytest.raises((JobClosed, JobFailure, RuntimeError)):
        bench.do(work)
    assert bench.blobs.objects == {}


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [JobFailure("The text is empty."), ValueError("secret")])
def test_errors(bench: Bench, error: Exception) -> None:
    """An error is raised with its own class, which the state machine handles, and the job stays open."""

    def work(attempt: Attempt) -> Mapping[str, Any]:
        bench.file()
        raise error

    with pytest.raises(type(error)) as caught:
        bench.do(work)
    assert caught.value is error
    assert (bench.job.status, len(bench.blobs.objects)) == ("running", 1)


@pytest.mark.parametrize(("code", "raised"), [("ThrottlingException", Unavailable), ("AccessDenied", ClientError)])
def test_transient_errors(bench: Bench, code: str, raised: type[Exception]) -> None:
    """Transient errors of AWS are raised as Unavailable."""

    def work(attempt: Attempt) -> Mapping[str, Any]:
        raise ClientError({"Error": {"Code": code}}, "GetObject")

    with pytest.raises(raised):
        bench.do(work)
