from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.errors import Conflict, JobClosed
from core.jobs import FINAL, STAGES, Job, begin, cancel, complete, fail, step
from core.jobs.machine import ANNOUNCED, SUBJECTS, Change, Transition, report_progress
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
    begun = after(begin(stage="validate", lease=LEASE), job())
    assert begun.verb == "started"
    assert begun.job == replace(
        begun.job, status="running", stage="validate", attempts=1, lease=LEASE, started_at=THEN
    )


def test_next_stage_is_not_announced() -> None:
    """A later stage starts without an event of its own, and counts its attempts from one."""
    begun = after(begin(stage="embed", lease=LEASE), running(attempts=3, started_at="earlier"))
    assert begun.verb is None
    assert (begun.job.stage, begun.job.attempts, begun.job.started_at) == ("embed", 1, "earlier")


def test_again() -> None:
    """A stage that its execution starts again is a retry, numbered and announced."""
    again = after(begin(stage="chunk", lease=LEASE), running(attempts=2))
    assert (again.verb, again.fields) == ("retried", {"stage": "chunk", "attempts": 3})
    assert again.job.attempts == 3


@pytest.mark.parametrize("stage", STAGES["document"][1:])
def test_another_execution_may_not(stage: str) -> None:
    """Nothing is begun, done or completed by an execution that does not hold the job."""
    other = "execution-2"
    for change in (
        begin(stage=stage, lease=other),
        step(verb="chunked", lease=other, next_stage="embed"),
        complete(lease=other, result={}),
    ):
        with pytest.raises(JobClosed, match="another execution holds the job"):
            change(running(stage=stage), THEN)


def test_a_stage_that_is_over_may_be_done_again() -> None:
    """An execution whose answer got lost after its step was logged repeats the stage, and nothing is logged."""
    stepped = after(step(verb="chunked", lease=LEASE, next_stage="embed"), running()).job
    assert begin(stage="chunk", lease=LEASE)(stepped, THEN) is None
    assert step(verb="chunked", lease=LEASE, next_stage="embed")(stepped, THEN) is None


def test_step() -> None:
    """A step is logged with its facts, and the job moves on to the next stage's first attempt."""
    done = after(step(verb="chunked", lease=LEASE, next_stage="embed", chunks=3), running(attempts=2))
    assert (done.verb, done.fields) == ("chunked", {"chunks": 3})
    assert (done.job.stage, done.job.attempts, done.job.steps) == ("embed", 1, ("chunked",))


@pytest.mark.parametrize(
    "change", [step(verb="chunked", lease=LEASE, next_stage="embed"), complete(lease=LEASE, result={})]
)
def test_nothing_is_done_before_the_start(change: Change) -> None:
    """An execution that never began the job can neither log a step nor complete it."""
    with pytest.raises(JobClosed):
        change(job(), THEN)


def test_complete() -> None:
    """Completing ends the job with its result, and the event carries the same result."""
    done = after(complete(lease=LEASE, result={"chunks": 3}), running())
    assert (done.verb, done.fields) == ("indexed", {"chunks": 3})
    assert (done.job.status, done.job.result, done.job.finished_at) == ("completed", {"chunks": 3}, THEN)


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
    for change in (begin(stage="chunk", lease=LEASE), step(verb="chunked", lease=LEASE, next_stage="embed")):
        with pytest.raises(JobClosed, match=f"the job is {status}"):
            change(ended, THEN)
    assert fail(code="late", message="")(ended, THEN) is None
    assert report_progress(1, 2)(ended, THEN) is None


def test_the_same_end_twice() -> None:
    """Completing what is completed and canceling what is canceled does nothing; any other mixture is refused."""
    assert complete(lease=LEASE, result={})(running(status="completed"), THEN) is None
    assert cancel(running(status="canceled"), THEN) is None
    for status in ("failed", "completed"):
        with pytest.raises(Conflict, match=f"The job is {status} already"):
            cancel(running(status=status), THEN)
    for status in ("failed", "canceled"):
        with pytest.raises(JobClosed, match=f"the job is {status}"):
            complete(lease=LEASE, result={})(running(status=status), THEN)


def test_progress() -> None:
    """A report changes nothing of the job but says how far its stage is."""
    reported = after(report_progress(3, 8), running(stage="embed"))
    assert (reported.verb, reported.fields) == ("progressed", {"stage": "embed", "done": 3, "total": 8})
    assert reported.job == running(stage="embed", job_id=reported.job.job_id)


changes = st.one_of(
    st.builds(begin, stage=st.sampled_from(STAGES["document"][1:]), lease=st.sampled_from(["a", "b"])),
    st.builds(
        step,
        verb=st.sampled_from(["chunked", "embedded"]),
        lease=st.sampled_from(["a", "b"]),
        next_stage=st.sampled_from(["embed", "notify"]),
    ),
    st.builds(complete, lease=st.sampled_from(["a", "b"]), result=st.just({})),
    st.builds(fail, code=st.just("x"), message=st.just("y")),
    st.just(cancel),
    st.builds(report_progress, st.just(1), st.just(2)),
)


changes_of_a_replay = st.one_of(
    st.builds(begin, stage=st.just("send"), lease=st.sampled_from(["a", "b"])),
    st.builds(complete, lease=st.sampled_from(["a", "b"]), result=st.just({"sent": 2})),
    st.builds(fail, code=st.just("x"), message=st.just("y")),
    st.just(cancel),
    st.builds(report_progress, st.just(1), st.just(2)),
)


@given(st.lists(changes, max_size=12))
def test_every_decision_is_sound(sequence: list[Change]) -> None:
    """Whatever is asked in any order: endings stay, leases stay, and the verb says what was decided."""
    check_decisions(job(), sequence)


@given(st.lists(changes_of_a_replay, max_size=12))
def test_every_decision_about_a_replay_is_sound(sequence: list[Change]) -> None:
    """A replay goes by the same rules, and announces each change by a name of its own kind."""
    check_decisions(replay(), sequence)


def check_decisions(subject: Job, sequence: list[Change]) -> None:
    endings = {f"{subject.kind}.{events.ending(subject.kind, status)}" for status in FINAL}
    for change in sequence:
        try:
            transition = change(subject, THEN)
        except (JobClosed, Conflict):
            continue
        if transition is None:
            continue
        assert not subject.is_final
        new, verb = transition.job, transition.verb
        assert verb is None or f"{subject.kind}.{verb}" in events.names(subject.kind)
        assert new.is_final == (f"{subject.kind}.{verb}" in endings)
        assert (new.finished_at is not None) == new.is_final
        assert subject.lease in (None, new.lease)
        assert (new.lease is not None) == (new.started_at is not None)
        assert verb not in subject.steps
        assert new.stage in STAGES[subject.kind]
        assert new.subject == subject.subject
        subject = new


def test_a_replay() -> None:
    """A replay starts, may start again, and completes under that very name with what it came to."""
    begun = after(begin(stage="send", lease=LEASE), replay())
    assert (begun.verb, begun.job.status, begun.job.stage) == ("started", "running", "send")
    assert after(begin(stage="send", lease=LEASE), begun.job).verb == "retried"
    done = after(complete(lease=LEASE, result={"sent": 3}), begun.job)
    assert (done.verb, done.fields, done.job.status) == ("completed", {"sent": 3}, "completed")


@pytest.mark.parametrize(
    ("change", "verb"), [(cancel, "canceled"), (fail(code="x", message="y"), "failed")], ids=["cancel", "fail"]
)
@pytest.mark.parametrize("stage", STAGES["replay"])
def test_a_replay_that_ends_early(change: Change, verb: str, stage: str) -> None:
    """A replay can be canceled and can fail, queued or running, and starts no more after that."""
    subject = replay() if stage == "queued" else after(begin(stage=stage, lease=LEASE), replay()).job
    ended = after(change, subject)
    assert (ended.verb, ended.job.status, ended.job.stage) == (verb, verb, stage)
    with pytest.raises(JobClosed):
        begin(stage="send", lease=LEASE)(ended.job, THEN)


def test_kinds() -> None:
    """Every kind of job has its stages, its subject, what it announces, and events; all stages begin queued."""
    assert set(STAGES) == set(SUBJECTS) == set(ANNOUNCED)
    for kind, stages in STAGES.items():
        assert stages[0] == "queued"
        assert f"{kind}.started" in events.names(kind)


def test_subject() -> None:
    """A document's job is about the document, a replay about the endpoint, and each says only that."""
    assert job().subject == {"document_id": "notes"}
    assert replay().subject == {"webhook_id": "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C"}


def test_announced() -> None:
    """The first event tells a document's size but not where its file lies, and all that a replay was asked."""
    assert job().announced == {"bytes": 12}
    asked = dict(replay().input)
    assert replay().announced | replay().subject == asked


def test_versions_of_a_document() -> None:
    """A document's version is the sortable part of its job's id, so later submissions are later versions."""
    subject = job(job_id="job_01JDXQ3V8N2M4K6H8G0F2E4D6C", input={"document_id": "a/b", "bytes": 1})
    assert (subject.document_id, subject.document_version) == ("a/b", "01JDXQ3V8N2M4K6H8G0F2E4D6C")
