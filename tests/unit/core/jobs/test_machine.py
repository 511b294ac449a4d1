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
    """The first stage of a queued job makes it running, gives its lease to the execution, and is announced."""
    begun = after(begin(DOCUMENT, stage="validate", lease=LEASE), job())
    assert begun.verb == "started"
    assert begun.job == replace(
        begun.job, status="running", stage="validate", attempts=1, lease=LEASE, started_at=THEN
    )


def test_next_stage_is_not_announced() -> None:
    """A later stage starts without an event of its own, and counts its attempts from one."""
    begun = after(begin(DOCUMENT, stage="embed", lease=LEASE), running(attempts=3, started_at="earlier"))
    assert begun.verb is None
    assert (begun.job.stage, begun.job.attempts, begun.job.started_at) == ("embed", 1, "earlier")


def test_again() -> None:
    """A stage that its execution starts again is a retry, numbered and announced."""
    again = after(begin(DOCUMENT, stage="chunk", lease=LEASE), running(attempts=2))
    assert (again.verb, again.fields) == ("retried", {"attempts": 3})
    assert again.job.attempts == 3


@pytest.mark.parametrize("stage", DOCUMENT.order[1:])
def test_another_execution_may_not(stage: str) -> None:
    """Nothing is begun, done or completed by an execution that does not hold the job."""
    other = "execution-2"
    for change in (
        begin(DOCUMENT, stage=stage, lease=other),
        step(verb="chunked", lease=other, next_stage="embed"),
        complete(DOCUMENT, lease=other, result={}),
    ):
        with pytest.raises(JobClosed, match="another execution holds the job"):
            change(running(stage=stage), THEN)


def test_a_stage_that_is_over_may_be_done_again() -> None:
    """An execution whose answer got lost after its step was logged repeats the stage, and nothing is logged."""
    stepped = after(step(verb="chunked", lease=LEASE, next_stage="embed"), running()).job
    assert begin(DOCUMENT, stage="chunk", lease=LEASE)(stepped, THEN) is None
    assert step(verb="chunked", lease=LEASE, next_stage="embed")(stepped, THEN) is None


def test_step() -> None:
    """A step is logged with its facts, and the job moves on to the next stage's first attempt."""
    done = after(step(verb="chunked", lease=LEASE, next_stage="embed", chunks=3), running(attempts=2))
    assert (done.verb, done.fields) == ("chunked", {"chunks": 3})
    assert (done.job.stage, done.job.attempts, done.job.steps) == ("embed", 1, ("chunked",))


@pytest.mark.parametrize(
    "change", [step(verb="chunked", lease=LEASE, next_stage="embed"), complete(DOCUMENT, lease=LEASE, result={})]
)
def test_nothing_is_done_before_the_start(change: Change) -> None:
    """An execution that never began the job can neither log a step nor complete it."""
    with pytest.raises(JobClosed):
        change(job(), THEN)


def test_complete() -> None:
    """Completing ends the job with its result, and the event carries the same result."""
    done = after(complete(DOCUMENT, lease=LEASE, result={"chunks": 3}), running())
    assert (done.verb, done.fields) == ("indexed", {"chunks": 3})
    assert (done.job.status, done.job.result, done.job.finished_at) == ("completed", {"chunks": 3}, THEN)


def test_complete_with_a_large_result() -> None:
    """A result that lies in S3 is in neither the row nor the event, which says that it is missing."""
    large = complete(DOCUMENT, lease=LEASE, result={"text": "x"}, result_key="results/ana/1/result.json")
    done = after(large, running())
    assert (done.verb, done.fields) == ("indexed", {"result_truncated": True})
    assert (done.job.status, done.job.result) == ("completed", None)
    assert done.job.result_key == "results/ana/1/result.json"


def test_fail() -> None:
    """Failing says why and at which stage: the one named, or else the job's own."""
    for stage, shown in ((None, "chunk"), ("store", "store")):
        failed = after(fail(code="no_text", message="Nothing.", stage=stage), running())
        error = {"code": "no_text", "message": "Nothing.", "stage": shown}
        assert (failed.verb, failed.fields) == ("failed", {"error": error})
        assert (failed.job.status, failed.job.error, failed.job.finished_at) == ("failed", error, THEN)


@pytest.mark.parametrize("subject", [job(), running()], ids=["queued", "running"])
def test_cancel(subject: Job) -> None:
    """An open job can be canceled at any stage, which it keeps."""
    ended = after(cancel, subject)
    assert (ended.verb, ended.job.status, ended.job.stage) == ("canceled", "canceled", subject.stage)


@pytest.mark.parametrize("status", sorted(FINAL))
def test_final(status: str) -> None:
    """A job that has ended starts nothing, and a late failure or report leaves it as it is."""
    ended = running(status=status)
    for change in (
        begin(DOCUMENT, stage="chunk", lease=LEASE),
        step(verb="chunked", lease=LEASE, next_stage="embed"),
    ):
        with pytest.raises(JobClosed, match=f"the job is {status}"):
            change(ended, THEN)
    assert fail(code="late", message="")(ended, THEN) is None
    assert report_progress(1, 2)(ended, THEN) is None


def test_the_same_end_twice() -> None:
    """Completing what is completed and canceling what is canceled does nothing; any other mixture is refused."""
    assert complete(DOCUMENT, lease=LEASE, result={})(running(status="completed"), THEN) is None
    assert cancel(running(status="canceled"), THEN) is None
    for status in ("failed", "completed"):
        with pytest.raises(Conflict, match=f"The job is {status} already"):
            cancel(running(status=status), THEN)
    for status in ("failed", "canceled"):
        with pytest.raises(JobClosed, match=f"the job is {status}"):
            complete(DOCUMENT, lease=LEASE, result={})(running(status=status), THEN)


def test_progress() -> None:
    """A report changes nothing of the job but says how far its stage is."""
    reported = after(report_progress(3, 8), running(stage="embed"))
    assert (reported.verb, reported.fields) == ("progressed", {"done": 3, "total": 8})
    assert reported.job == running(stage="embed", job_id=reported.job.job_id)


changes = st.one_of(
    st.builds(
        begin, st.just(DOCUMENT), stage=st.sampled_from(DOCUMENT.order[1:]), lease=st.sampled_from(["a", "b"])
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
def test_every_decision_is_sound(sequence: list[Change]) -> None:
    """Whatever is asked in any order: endings stay, leases stay, and the verb says what was decided."""
    check_decisions(DOCUMENT, job(), sequence)


@given(st.lists(changes_of_a_replay, max_size=12))
def test_every_decision_about_a_replay_is_sound(sequence: list[Change]) -> None:
    """A replay goes by the same rules, and announces each change by a name of its own kind."""
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
        assert verb is None or f"{subject.kind}.{verb}" in kind.names
        assert new.is_final == (f"{subject.kind}.{verb}" in kind.final_names)
        assert (new.finished_at is not None) == new.is_final
        assert subject.lease in (None, new.lease)
        assert (new.lease is not None) == (new.started_at is not None)
        assert verb not in subject.steps
        assert new.stage in kind.order
        assert new.subject == subject.subject
        subject = new


def test_a_replay() -> None:
    """A replay starts, may start again, and completes under that very name with what it came to."""
    begun = after(begin(REPLAY, stage="send", lease=LEASE), replay())
    assert (begun.verb, begun.job.status, begun.job.stage) == ("started", "running", "send")
    assert after(begin(REPLAY, stage="send", lease=LEASE), begun.job).verb == "retried"
    done = after(complete(REPLAY, lease=LEASE, result={"sent": 3}), begun.job)
    assert (done.verb, done.fields, done.job.status) == ("completed", {"sent": 3}, "completed")


@pytest.mark.parametrize(
    ("change", "verb"), [(cancel, "canceled"), (fail(code="x", message="y"), "failed")], ids=["cancel", "fail"]
)
@pytest.mark.parametrize("stage", ["queued", "send"])
def test_a_replay_that_ends_early(change: Change, verb: str, stage: str) -> None:
    """A replay can be canceled and can fail, queued or running, and starts no more after that."""
    subject = replay() if stage == "queued" else after(begin(REPLAY, stage=stage, lease=LEASE), replay()).job
    ended = after(change, subject)
    assert (ended.verb, ended.job.status, ended.job.stage) == (verb, verb, stage)
    with pytest.raises(JobClosed):
        begin(REPLAY, stage="send", lease=LEASE)(ended.job, THEN)
