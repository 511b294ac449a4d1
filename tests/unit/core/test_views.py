from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import views
from core.jobs import Job, Snapshot
from core.models import JobSummary, JobView
from tests.unit.examples import NOW, job, replay

ROOT = "https://api.example.com/v1"
RUNNING = job(status="running", stage="embed", attempts=2, sequence=4, version=7, lease="execution")


def snapshot(subject: Job = RUNNING, progress: Any = (3, 8), webhook: Any = None) -> Snapshot:
    return Snapshot(subject, progress, webhook)


def test_small() -> None:
    """Polling gets six fields, and the error of a job that failed."""
    assert views.small(snapshot()) == {
        "job_id": RUNNING.job_id,
        "status": "running",
        "stage": "embed",
        "progress": {"done": 3, "total": 8},
        "attempts": 2,
        "sequence": 4,
    }
    error = {"code": "no_text", "message": "Nothing.", "stage": "validate"}
    failed = views.small(snapshot(replace(RUNNING, status="failed", error=error), None))
    assert (failed["error"], failed["progress"]) == (error, None)


def test_whole_hides_what_is_internal() -> None:
    """The whole job shows no lease, no key of a file, no version of the row and no expiry."""
    shown = views.whole(snapshot(), ROOT)
    text = json.dumps(shown)
    assert not {"lease", "input", "version", "expires_at", "steps", "owner"} & set(shown)
    assert "inputs/ana" not in text
    assert "execution" not in text


@pytest.mark.parametrize(
    ("subject", "named", "absent"),
    [
        (RUNNING, {"document_id": "notes"}, "webhook_id"),
        (replay(), {"webhook_id": "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C"}, "document_id"),
    ],
    ids=["document", "replay"],
)
def test_what_a_job_is_about(subject: Job, named: dict[str, str], absent: str) -> None:
    """A job names what it is about; the field of another kind is absent, also after its model, and not null."""
    for model, view in (
        (JobView, views.whole(snapshot(subject), ROOT)),
        (JobSummary, views.summary(subject, ROOT)),
    ):
        for shown in (view, model.model_validate(view).model_dump(mode="json")):
            assert named.items() <= shown.items()
            assert absent not in shown
            assert shown["kind"] == subject.kind


def test_progress_of_a_replay() -> None:
    """What a replay was asked is not shown, but how far it is."""
    shown = views.whole(snapshot(replay(), (50, 120)), ROOT)
    assert shown["progress"] == {"done": 50, "total": 120}
    assert "input" not in shown


def test_links() -> None:
    """Links are absolute, and under the root that the caller used."""
    assert views.links(RUNNING, ROOT) == {
        "self": f"{ROOT}/jobs/{RUNNING.job_id}",
        "status": f"{ROOT}/jobs/{RUNNING.job_id}/status",
        "events": f"{ROOT}/jobs/{RUNNING.job_id}/events",
    }
    assert views.summary(RUNNING, ROOT)["links"] == views.links(RUNNING, ROOT)


def test_webhook() -> None:
    """A job without a webhook has none; one that was never called says so; then its last delivery is shown."""
    hooked = replace(RUNNING, webhook_url="https://example.com/x")
    assert views.whole(snapshot(), ROOT)["webhook"] is None
    assert views.whole(snapshot(hooked), ROOT)["webhook"] == {
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
    shown = views.whole(snapshot(hooked, webhook=row), ROOT)["webhook"]
    assert json.loads(json.dumps(shown)) == {
        "url": "https://example.com/x",
        "status": "pending",
        "attempts": 2,
        "last_attempt": {"status": 500, "duration_ms": 12, "error": "http_5xx", "body": None},
    }


def test_everything_is_json() -> None:
    """Whatever a job holds can be answered as JSON."""
    done = replace(RUNNING, status="completed", result={"score": 0.5}, metadata={"a": "b"})
    assert json.loads(json.dumps(views.whole(snapshot(done), ROOT)))["result"] == {"score": 0.5}
    assert json.dumps(views.summary(done, ROOT))


def test_etag() -> None:
    """A tag is the same for the same row and progress, and no other for anything that a caller sees."""
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


@pytest.mark.parametrize(
    ("age", "seconds"), [(-5, 1), (0, 1), (4, 1), (16, 2), (100, 10), (599, 60), (600, 60), (1e7, 60)]
)
def test_retry_after(age: float, seconds: int) -> None:
    """A tenth of the job's age, from one second to sixty; a clock that is behind does no harm."""
    assert views.retry_after(job(at=NOW), NOW + age) == seconds


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=2).map(sorted))
def test_retry_after_grows(ages: list[float]) -> None:
    """An older job is never looked at more often."""
    one, two = (views.retry_after(job(at=NOW), NOW + age) for age in ages)
    assert 1 <= one <= two <= views.RETRY_AFTER_MAX_SECONDS


def test_looks_per_hour() -> None:
    """Whoever obeys looks about 100 times in an hour, not 3,600 times."""
    now, looks = NOW, 0
    while now < NOW + 3600:
        now += views.retry_after(job(at=NOW), now)
        looks += 1
    assert looks < 120
