"""Jobs as the API shows them (core.jobs.views)."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from core import events
from core.jobs import History, Job, Snapshot, links, polling_interval, views
from core.jobs.models import JobStatus, JobSummary, JobView
from tests.unit.examples import NOW, job, replay

ROOT = "https://api.example.com/v1"
HOURS = 48
LIVE = "wss://live.example.com/v1"


def signed(key: str, *, seconds: int) -> str:
    return f"https://data.example.com/{key}?seconds={seconds}"


LINKS = views.LinkMaker(ROOT, LIVE, HOURS, signed)
UNKNOWN, HOURLY = History(), History((3600.0,) * 5)
KEY = links.make_key()
RUNNING = job(status="running", stage="embed", attempts=2, sequence=4, version=7, lease="execution", link_key=KEY)
Moment = Any


@pytest.fixture(autouse=True)
def moment(monkeypatch: pytest.MonkeyPatch) -> Moment:
    """`moment(300)` sets the time to 300 s after the job's submission. It starts at 0."""

    def set_age(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: NOW + seconds)

    set_age(0)
    return set_age


def snapshot(subject: Job = RUNNING, progress: Any = (3, 8), webhook: Any = None) -> Snapshot:
    return Snapshot(subject, progress, webhook)


def test_status_view(moment: Moment) -> None:
    """The status has seven fields, and the error of a failed job."""
    moment(300)
    assert views.status_view(snapshot(), UNKNOWN) == {
        "job_id": RUNNING.job_id,
        "status": "running",
        "stage": "embed",
        "progress": {"done": 3, "total": 8},
        "attempts": 2,
        "sequence": 4,
        "expected_completion": events.timestamp(NOW + 800),
    }
    error = {"code": "no_text", "message": "Nothing.", "stage": "validate"}
    failed = views.status_view(snapshot(replace(RUNNING, status="failed", error=error), None), UNKNOWN)
    assert (failed["error"], failed["progress"]) == (error, None)


def test_internal_attributes_are_hidden() -> None:
    """The job's view contains no lease, file key, link key, version or expiry."""
    shown = views.job_view(snapshot(), LINKS, UNKNOWN)
    text = json.dumps(shown)
    assert not {"lease", "input", "version", "expires_at", "steps", "owner", "link_key"} & set(shown)
    assert "inputs/ana" not in text
    assert "execution" not in text
    assert KEY not in text


@pytest.mark.parametrize(
    ("subject", "named", "absent"),
    [
        (RUNNING, {"document_id": "notes"}, "webhook_id"),
        (replay(), {"webhook_id": "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C"}, "document_id"),
    ],
    ids=["document", "replay"],
)
def test_subject_in_views(subject: Job, named: dict[str, str], absent: str) -> None:
    """A view has the field of its kind's subject, and none of other kinds, also after validation."""
    for model, view in (
        (JobView, views.job_view(snapshot(subject), LINKS, UNKNOWN)),
        (JobSummary, views.job_summary(subject, LINKS)),
    ):
        for shown in (view, model.model_validate(view).model_dump(mode="json")):
            assert named.items() <= shown.items()
            assert absent not in shown
            assert shown["kind"] == subject.kind


def test_links() -> None:
    """Links are absolute, below the root of the request. All except `self` contain the token."""
    token = links.make_token(RUNNING, now=NOW, hours=HOURS)
    follow = f"{ROOT}/follow/{token}"
    assert LINKS.of(RUNNING) == {
        "self": f"{ROOT}/jobs/{RUNNING.job_id}",
        "status": f"{follow}/status",
        "events": f"{follow}/events",
        "live": f"{LIVE}?token={token}",
    }
    assert views.job_summary(RUNNING, LINKS)["links"] == LINKS.of(RUNNING)
    assert views.job_view(snapshot(), LINKS, UNKNOWN)["links"] == LINKS.of(RUNNING)


def test_webhook() -> None:
    """A job without a webhook shows null, then no attempts, then the state of the last delivery."""
    hooked = replace(RUNNING, webhook_url="https://example.com/x")
    assert views.job_view(snapshot(), LINKS, UNKNOWN)["webhook"] is None
    assert views.job_view(snapshot(hooked), LINKS, UNKNOWN)["webhook"] == {
        "url": "https://example.com/x",
        "status": None,
        "attempts": 0,
    }
    row = {
        "pk": "JOB#1",
        "sk": "WEBHOOK",
        "expires_at": Decimal(9),
        "status": "pending",
        "attempts": Decimal(2),
        "last_attempt": {"status": Decimal(500), "duration_ms": Decimal(12), "error": "http_5xx", "body": None},
    }
    shown = views.job_view(snapshot(hooked, webhook=row), LINKS, UNKNOWN)["webhook"]
    assert json.loads(json.dumps(shown)) == {
        "url": "https://example.com/x",
        "status": "pending",
        "attempts": 2,
        "last_attempt": {"status": 500, "duration_ms": 12, "error": "http_5xx", "body": None},
    }


def test_large_result() -> None:
    """A large result is not shown. Its link is valid for five minutes, for its object only."""
    key = f"results/ana/{RUNNING.job_id}/result.json"
    done = replace(RUNNING, status="completed", result_key=key)
    shown = views.job_view(snapshot(done), LINKS, UNKNOWN)
    assert (shown["result"], shown["result_truncated"]) == (None, True)
    assert shown["links"]["result"] == f"https://data.example.com/{key}?seconds=300"
    assert shown["links"] == views.job_summary(done, LINKS)["links"] == LINKS.of(done)
    assert JobView.model_validate(shown).model_dump(mode="json")["result_truncated"] is True
    assert "result_key" not in shown


@pytest.mark.parametrize("result", [None, {"chunks": 3}])
def test_small_result(result: Any) -> None:
    """A small or missing result is not truncated and has no link."""
    shown = views.job_view(snapshot(replace(RUNNING, result=result)), LINKS, UNKNOWN)
    assert (shown["result"], shown["result_truncated"]) == (result, False)
    assert "result" not in shown["links"]
    assert "result_truncated" not in JobView.model_validate(shown).model_dump(mode="json")


def test_files_of_a_result() -> None:
    """A result of several files has a link to each, valid for five minutes, in the job's own folder."""
    done = replace(RUNNING, status="completed", result={"lines": 3, "files": {"errors": "errors.jsonl"}})
    shown = views.job_view(snapshot(done), LINKS, UNKNOWN)
    key = f"results/ana/{RUNNING.job_id}/errors.jsonl"
    assert shown["files"] == {"errors": f"https://data.example.com/{key}?seconds=300"}
    assert shown["result"]["files"] == {"errors": "errors.jsonl"}


@pytest.mark.parametrize("result", [None, {"chunks": 3}, {"files": 3}])
def test_no_files(result: Any) -> None:
    """A job without files does not show the field."""
    shown = views.job_view(snapshot(replace(RUNNING, result=result)), LINKS, UNKNOWN)
    assert "files" not in JobView.model_validate(shown).model_dump(mode="json")


def test_waiting_job() -> None:
    """A waiting job shows the reason and the time; another job omits both fields."""
    since = events.timestamp(NOW + 5)
    waiting = replace(RUNNING, waiting_for="rate_limit", waiting_since=since, not_before=events.timestamp(NOW + 9))
    for subject, expected in (
        (waiting, {"waiting_for": "rate_limit", "waiting_since": since}),
        (RUNNING, {}),
    ):
        status_view = views.status_view(snapshot(subject), UNKNOWN)
        job_view = views.job_view(snapshot(subject), LINKS, UNKNOWN)
        status, view = JobStatus.model_validate(status_view), JobView.model_validate(job_view)
        for shown in (status_view, job_view, status.model_dump(mode="json"), view.model_dump(mode="json")):
            assert {key: shown[key] for key in ("waiting_for", "waiting_since") if key in shown} == expected
            assert "not_before" not in shown


def test_etag() -> None:
    """The ETag depends on the job, its version and its progress, and on nothing else."""
    tag = views.etag(snapshot())
    assert tag == views.etag(snapshot())
    assert tag.startswith('"')
    assert tag.endswith('"')
    others = [
        snapshot(replace(RUNNING, version=8)),
        snapshot(progress=(4, 8)),
        snapshot(progress=None),
        snapshot(replace(RUNNING, job_id="job_2")),
    ]
    assert len({tag, *map(views.etag, others)}) == 5


ESTIMATES = [
    (0, None, UNKNOWN),
    (60, None, UNKNOWN),
    (4000, None, UNKNOWN),
    (60, (0, 8), UNKNOWN),
    (60, (3, 8), UNKNOWN),
    (60, (0, 0), UNKNOWN),
    (60, None, HOURLY),
    (60, (3, 8), HOURLY),
    (7200, None, HOURLY),
]


@pytest.mark.parametrize(("age", "done", "history"), ESTIMATES)
def test_retry_after_and_expected_completion(moment: Moment, age: float, done: Any, history: History) -> None:
    """They depend on age, progress and history. `Retry-After` counts the batch in progress as done."""
    moment(age)
    known, possible = ((done[0] + more) / done[1] if done and done[1] else None for more in (0, 1))
    seen = snapshot(progress=done)
    assert views.retry_after(seen, history) == polling_interval.next_poll(age, history=history, progress=possible)
    length = polling_interval.expected_duration(age, history=history, progress=known)
    expected = None if length is None else events.timestamp(NOW + length)
    assert views.status_view(seen, history)["expected_completion"] == expected


def test_clock_behind(moment: Moment) -> None:
    """A job that was created in the future, by another clock, has the age 0."""
    just_now = views.retry_after(snapshot(progress=None), HOURLY)
    moment(-5)
    assert views.retry_after(snapshot(progress=None), HOURLY) == just_now
    assert views.status_view(snapshot(progress=None), HOURLY)["expected_completion"] == events.timestamp(
        NOW + 3600
    )


@pytest.mark.parametrize("status", ["completed", "failed", "canceled"])
def test_no_expected_completion_after_end(status: str) -> None:
    """A job that has ended has no expected completion."""
    ended = snapshot(replace(RUNNING, status=status))
    assert views.status_view(ended, HOURLY)["expected_completion"] is None
