"""The state machine of jobs (core.jobs.machine)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Conflict, JobClosed
from core.jobs import FINAL, Job, Kind, begin, cancel, complete, fail, step
from core.jobs.machine import Change, Transition, report_progress
from kinds.document.kind import DOCUMENT
from kinds.replay.kind import REPLAY
from tests.unit.examples import job, replay

THEN, LEASE = "2026-11-30T09:00:01.000Z", "execution-1"


def running(**facts: Any) -> Job:
    defaults = {"status": "running", "stage": "chunk", "attempts": 1, "lease": LEASE, "started_at": THEN}
    return job(**defaults | facts)


def after(change: Change, subject: Job) -> Transition:
    transition = change(subject, THEN)
    assert transition is not None
    return transition


def test_start() -> None:
    """The first stage makes a queued job running, gives its lease to the execution, and logs `started`."""
    started = after(begin(DOCUMENT, stage="validate", lease=LEASE), job())
    assert started.verb == "started"
    assert started.job == replace(
        started.job, status="running", stage="validate", attempts=1, lease=LEASE, started_at=THEN
    )


def test_next_stage() -> None:
    """A later stage logs no event, and counts attempts from one."""
    started = after(begin(DOCUMENT, stage="embed", lease=LEASE), running(attempts=3, started_at="earlier"))
    assert started.verb is None
    assert (started.job.stage, started.job.attempts, started.job.started_at) == ("embed", 1, "earlier")


def test_retry_of_stage() -> None:
    """A stage that its execution starts again is counted and logged as a retry."""
    again = after(begin(DOCUMENT, stage="chunk", lease=LEASE), running(attempts=2))
    assert (again.verb, again.fields) == ("retried", {"attempts": 3})
    assert again.job.attempts == 3


@pytest.mark.parametrize("stage", DOCUMENT.all_stages[1:])
def test_another_execution(stage: str) -> None:
    """An execution that does not hold the job cannot begin, log steps or complete."""
    other = "execution-2"
    for change in (
        begin(DOCUMENT, stage=stage, lease=other),
        step(verb="chunked", lease=other, next_stage="embed"),
        complete(DOCUMENT, lease=other, result={}),
    ):
        with pytest.raises(JobClosed, match="another execution holds the job"):
            change(running(stage=stage), THEN)


def test_repeated_stage() -> None:
    """A stage whose response was lost can be repeated, and nothing is logged."""
    stepped = after(step(verb="chunked", lease=LEASE, next_stage="embed"), running()).job
    assert begin(DOCUMENT, stage="chunk", lease=LEASE)(stepped, THEN) is None
    assert step(verb="chunked", lease=LEASE, next_stage="embed")(stepped, THEN) is None


def test_step() -> None:
    """A step is logged with its fields, and the job moves to the first attempt of the next stage."""
    done = after(step(verb="chunked", lease=LEASE, next_stage="embed", chunks=3), running(attempts=2))
    assert (done.verb, done.fields) == ("chunked", {"chunks": 3})
    assert (done.job.stage, done.job.attempts, done.job.steps) == ("embed", 1, ("chunked",))


@pytest.mark.parametrize(
    "change", [step(verb="chunked", lease=LEASE, next_stage="embed"), complete(DOCUMENT, lease=LEASE, result={})]
)
def test_before_the_start(change: Change) -> None:
    """An execution that has not started the job cannot log steps or complete it."""
    with pytest.raises(JobClosed):
        change(job(), THEN)


def test_complete() -> None:
    """Completing a job stores the result and logs it."""
    done = after(complete(DOCUMENT, lease=LEASE, result={"chunks": 3}), running())
    assert (done.verb, done.fields) == ("indexed", {"chunks": 3})
    assert (done.job.status, done.job.result, done.job.finished_at) == ("completed", {"chunks": 3}, THEN)


def test_fail() -> None:
    """The error has the given stage, or else the job's stage."""
    for stage, shown in ((None, "chunk"), ("store", "store")):
        failed = after(fail(code="no_text", message="Nothing.", stage=stage), running())
        error = {"code": "no_text", "message": "Nothing.", "stage": shown}
        assert (failed.verb, failed.fields) == ("failed", {"error": error})
        assert (failed.job.status, failed.job.error, failed.job.finished_at) == ("failed", error, THEN)


@pytest.mark.parametrize("subject", [job(), running()], ids=["queued", "running"])
def test_cancel(subject: Job) -> None:
    """An open job can be canceled in any stage, which is kept."""
    ended = after(cancel, subject)
    assert (ended.verb, ended.job.status, ended.job.stage) == ("canceled", "canceled", subject.stage)


@pytest.mark.parametrize("status", sorted(FINAL))
def test_final_job(status: str) -> None:
    """A job that has ended cannot begin a stage, and does not fail or report progress."""
    ended = running(status=status)
    for change in (
        begin(DOCUMENT, stage="chunk", lease=LEASE),
        step(verb="chunked", lease=LEASE, next_stage="embed"),
    ):
        with pytest.raises(JobClosed, match=f"the job is {status}"):
            change(ended, THEN)
    assert fail(code="late", message="")(ended, THEN) is None
    assert report_progress(1, 2)(ended, THEN) is None


def test_repeated_end() -> None:
    """Completing or canceling twice changes nothing. Other ends are refused."""
    assert complete(DOCUMENT, lease=LEASE, result={})(running(status="completed"), THEN) is None
    assert cancel(running(status="canceled"), THEN) is None
    for status in ("failed", "completed"):
        with pytest.raises(Conflict, match=f"The job is {status} already"):
            cancel(running(status=status), THEN)
    for status in ("failed", "canceled"):
        with pytest.raises(JobClosed, match=f"the job is {status}"):
            complete(DOCUMENT, lease=LEASE, result={})(running(status=status), THEN)


def test_progress() -> None:
    """Progress is logged and does not change the job."""
    reported = after(report_progress(3, 8), running(stage="embed"))
    assert (reported.verb, reported.fields) == ("progressed", {"done": 3, "total": 8})
    assert reported.job == running(stage="embed", job_id=reported.job.job_id)


changes = st.one_of(
    st.builds(
        begin, st.just(DOCUMENT), stage=st.sampled_from(DOCUMENT.all_stages[1:]), lease=st.sampled_from(["a", "b"])
    ),
    st.builds(
        step,
        verb=st.sampled_from(["chunked", "embedded"]),
        lease=st.sampled_from(["a", "b"]),
        next_stage=st.sampled_from(["embed", "notify"]),
    ),
    st.builds(complete, st.just(DOCUMENT), lease=st.sampled_from(["a", "b"]), result=st.just({})),
    st.builds(fail, code=st.just("x"), message=st.just("y")),
    st.just(cancel),
    st.builds(report_progress, st.just(1), st.just(2)),
)


changes_of_a_replay = st.one_of(
    st.builds(begin, st.just(REPLAY), stage=st.just("send"), lease=st.sampled_from(["a", "b"])),
    st.builds(complete, st.just(REPLAY), lease=st.sampled_from(["a", "b"]), result=st.just({"sent": 2})),
    st.builds(fail, code=st.just("x"), message=st.just("y")),
    st.just(cancel),
    st.builds(report_progress, st.just(1), st.just(2)),
)


@given(st.lists(changes, max_size=12))
def test_any_changes(sequence: list[Change]) -> None:
    """In any order of changes, ends and leases are kept, and the event matches the transition."""
    check_decisions(DOCUMENT, job(), sequence)


@given(st.lists(changes_of_a_replay, max_size=12))
def test_any_changes_of_a_replay(sequence: list[Change]) -> None:
    """The same rules apply to a replay, with the event names of its kind."""
    check_decisions(REPLAY, replay(), sequence)


def check_decisions(kind: Kind, subject: Job, sequence: list[Change]) -> None:
    for change in sequence:
        try:
            transition = change(subject, THEN)
        except (JobClosed, Conflict):
            continue
        if transition is None:
            continue
        assert not subject.is_final
        new, verb = transition.job, transition.verb
        assert verb is None or f"{subject.kind}.{verb}" in kind.event_names
        assert new.is_final == (f"{subject.kind}.{verb}" in kind.final_events)
        assert (new.finished_at is not None) == new.is_final
        assert subject.lease in (None, new.lease)
        assert (new.lease is not None) == (new.started_at is not None)
        assert verb not in subject.steps
        assert new.stage in kind.all_stages
        assert new.subject == subject.subject
        subject = new
