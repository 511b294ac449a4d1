"""Routes under /jobs (rest.api.jobs)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from core import events
from core.dependencies import Dependencies
from core.jobs import History, begin, views
from kinds.document.kind import DOCUMENT
from tests.unit.examples import NOW, job
from tests.unit.http_calls import Answer, problem

Api = Callable[..., Answer]
TEXT = {"kind": "document", "input": {"text": "x"}}


def test_get(api: Api, deployed: Dependencies) -> None:
    """The job has links below the caller's root, and is not cached."""
    job_id = api("POST", "/jobs", TEXT).json["job_id"]
    deployed.jobs.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))
    answer = api("GET", f"/jobs/{job_id}", headers={"Host": "jobs.example.org"})
    snapshot = deployed.jobs.snapshot(job_id, owner="ana")
    maker = views.LinkMaker(
        "https://jobs.example.org/v1",
        deployed.settings.live_url,
        deployed.settings.link_hours,
        deployed.blobs.presign_get,
    )
    shown = views.job_view(snapshot, maker, History()) | {"error": None}
    assert (shown.pop("result_truncated"), shown.pop("files")) == (False, {})
    assert answer.json == shown
    assert answer.headers["cache-control"] == "no-store"


def test_expected_completion(api: Api, deployed: Dependencies) -> None:
    """A job has an estimate once jobs of the kind have completed, except in the 202."""
    for _ in range(5):
        ended = job(status="completed", finished_at=events.timestamp(NOW + 600))
        deployed.jobs.durations.record(ended)
    accepted = api("POST", "/jobs", TEXT).json
    shown = api("GET", f"/jobs/{accepted['job_id']}").json
    created, expected = (datetime.fromisoformat(shown[at]) for at in ("created_at", "expected_completion"))
    assert (expected - created).total_seconds() == pytest.approx(600)
    assert accepted["expected_completion"] is None


@pytest.mark.parametrize(
    "job_id", ["x", "job_1", "evt_01JDXQ3V8N2M4K6H8G0F2E4D6C", "job_01JDXQ3V8N2M4K6H8G0F2E4D6C"]
)
@pytest.mark.parametrize(("method", "action"), [("GET", ""), ("POST", "/cancel"), ("POST", "/retry")])
def test_unknown_job(api: Api, method: str, action: str, job_id: str) -> None:
    """A malformed or unknown id is a 404."""
    problem(api(method, f"/jobs/{job_id}{action}"), 404, "not_found")
