"""Routes under /jobs (rest.api.jobs)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from core import events
from core.dependencies import Dependencies
from core.jobs import History, begin, cancel, fail, views
from kinds.document.kind import DOCUMENT
from tests.unit.examples import NOW, job
from tests.unit.http_calls import Answer, problem

Api = Callable[..., Answer]
TEXT = {"kind": "document", "input": {"text": "x"}}


@pytest.fixture
def job_ids(api: Api) -> list[str]:
    """Three jobs of an owner, newest first."""
    return sorted((api("POST", "/jobs", TEXT).json["job_id"] for _ in range(3)), reverse=True)


def test_get(api: Api, deployed: Dependencies, job_ids: list[str]) -> None:
    """The job has links below the caller's root, and is not cached."""
    deployed.jobs.apply(job_ids[0], begin(DOCUMENT, stage="validate", lease="x"))
    answer = api("GET", f"/jobs/{job_ids[0]}", headers={"Host": "jobs.example.org"})
    snapshot = deployed.jobs.snapshot(job_ids[0], owner="ana")
    maker = views.LinkMaker(
        "https://jobs.example.org/v1",
        deployed.settings.live_url,
        deployed.settings.link_hours,
        deployed.blobs.presign_get,
    )
    shown = views.job_view(snapshot, maker, History()) | {"error": None}
    assert not shown.pop("result_truncated")
    assert answer.json == shown
    assert answer.headers["cache-control"] == "no-store"


def test_failed(api: Api, deployed: Dependencies, job_ids: list[str]) -> None:
    """A failed job has a code, a message and the stage."""
    deployed.jobs.apply(job_ids[0], fail(code="no_text", message="Nothing.", stage="validate"))
    shown = api("GET", f"/jobs/{job_ids[0]}").json
    assert shown["error"] == {"code": "no_text", "message": "Nothing.", "stage": "validate"}
    assert api("GET", "/jobs").json["jobs"][0]["error"] == shown["error"]


def test_expected_completion(api: Api, deployed: Dependencies, job_ids: list[str]) -> None:
    """A job has an estimate once jobs of the kind have completed, except in the 202."""
    for _ in range(5):
        ended = job(status="completed", finished_at=events.timestamp(NOW + 600))
        deployed.jobs.durations.record(ended)
    accepted = api("POST", "/jobs", TEXT).json
    shown = api("GET", f"/jobs/{accepted['job_id']}").json
    created, expected = (datetime.fromisoformat(shown[at]) for at in ("created_at", "expected_completion"))
    assert (expected - created).total_seconds() == pytest.approx(600)
    assert accepted["expected_completion"] is None


def test_pages(api: Api, job_ids: list[str]) -> None:
    """Jobs are listed newest first. The cursor leads to the next page, and is null on the last."""
    first = api("GET", "/jobs", query={"limit": "2"}).json
    rest = api("GET", "/jobs", query={"limit": "2", "cursor": first["cursor"]}).json
    assert [shown["job_id"] for shown in first["jobs"] + rest["jobs"]] == job_ids
    assert rest["cursor"] is None
    assert api("GET", "/jobs", owner="ben").json == {"jobs": [], "cursor": None}


def test_filters(api: Api, deployed: Dependencies, job_ids: list[str]) -> None:
    """A list can be limited by status and kind."""
    deployed.jobs.apply(job_ids[1], cancel)

    def found(**query: str) -> list[str]:
        return [shown["job_id"] for shown in api("GET", "/jobs", query=query).json["jobs"]]

    assert found(status="canceled") == [job_ids[1]]
    assert found(status="queued", kind="document") == [job_ids[0], job_ids[2]]
    assert found(status="completed") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"status": "done"}, "status"),
        ({"kind": "x"}, "kind"),
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "job_01JDXQ3V8N2M4K6H8G0F2E4D6C#"}, "cursor"),
    ],
)
def test_invalid_parameters(api: Api, query: dict[str, str], field: str) -> None:
    """An invalid parameter is a 422 that names it."""
    assert problem(api("GET", "/jobs", query=query), 422, "invalid_request")["field"] == field


def test_cursor_of_other_owner(api: Api, job_ids: list[str]) -> None:
    """A cursor only determines a position in the caller's own list."""
    assert api("GET", "/jobs", query={"cursor": job_ids[0]}, owner="ben").json["jobs"] == []


@pytest.mark.parametrize(
    "job_id", ["x", "job_1", "evt_01JDXQ3V8N2M4K6H8G0F2E4D6C", "job_01JDXQ3V8N2M4K6H8G0F2E4D6C"]
)
@pytest.mark.parametrize(("method", "action"), [("GET", ""), ("POST", "/cancel"), ("POST", "/retry")])
def test_unknown_job(api: Api, method: str, action: str, job_id: str) -> None:
    """A malformed or unknown id is a 404."""
    problem(api(method, f"/jobs/{job_id}{action}"), 404, "not_found")


def test_scopes(api: Api, job_ids: list[str]) -> None:
    """Reading jobs needs the scope to read."""
    for path in ("/jobs", f"/jobs/{job_ids[0]}"):
        problem(api("GET", path, scopes="jobs:write search"), 403, "forbidden")


def test_health(api: Api) -> None:
    """/health needs no key."""
    answer = api("GET", "/health", owner=None)
    assert (answer.status, answer.json) == (200, {"status": "ok"})
