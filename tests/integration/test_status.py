"""Polling: ETags, long polls, and the log."""

from __future__ import annotations

import time
from typing import Any

import pytest

from core.jobs import JobStore
from core.jobs.machine import report_progress
from tests.simulated_cloud.cloud import Cloud
from tests.simulated_cloud.rest_api import Response
from tests.support.problems import assert_problem
from tests.support.service import Service


def get_status(service: Service, job_id: str, query: str = "", **headers: str) -> Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return service.call("GET", f"/jobs/{job_id}/status{query}", headers=sent)


def jobs(service: Service) -> JobStore:
    table = service.cloud.table("Jobs")
    return JobStore(table.meta.client, table.name)


@pytest.fixture
def job_id(service: Service) -> str:
    """A job that stays queued: no messages are delivered."""
    service.cloud.pause("publisher")
    return service.submit()


@pytest.fixture(autouse=True)
def virtual(monkeypatch: pytest.MonkeyPatch, cloud: Cloud) -> None:
    """The real time of the tests does not count as waiting."""
    monkeypatch.setattr(time, "monotonic", lambda: cloud.clock.time)


def timed(cloud: Cloud, request: Any) -> tuple[Response, float]:
    """The response, and after how many seconds it was sent."""
    start = cloud.clock.time
    return request(), cloud.clock.time - start


class TestPolling:
    def test_fields(self, service: Service, job_id: str) -> None:
        """The status has the fields that polling needs, and no others."""
        assert get_status(service, job_id).json() == {
            "job_id": job_id,
            "status": "queued",
            "stage": "queued",
            "progress": None,
            "attempts": 0,
            "sequence": 1,
            "expected_completion": None,
            "error": None,
        }

    def test_failed_job(self, service: Service) -> None:
        """`error` has a stable code, a message and the stage."""
        job_id = service.submit(" ")
        service.cloud.settle(within=60)
        status = get_status(service, job_id).json()
        assert (status["status"], status["stage"], status["error"]["code"]) == ("failed", "validate", "empty")
        assert set(status["error"]) == {"code", "message", "stage"}

    def test_not_modified(self, service: Service, job_id: str) -> None:
        """With the ETag, an unchanged job is a 304, and a changed one a 200."""
        etag = get_status(service, job_id).headers["ETag"]
        for known in (etag, f"W/{etag}", f'"other", {etag}'):
            same = get_status(service, job_id, If_None_Match=known)
            assert (same.status, same.body, same.headers["ETag"]) == (304, b"", etag)
        service.cancel(job_id)
        changed = get_status(service, job_id, If_None_Match=etag)
        assert (changed.status, changed.json()["status"]) == (200, "canceled")
        assert changed.headers["ETag"] != etag

    def test_progress_is_a_change(self, service: Service, job_id: str) -> None:
        """A batch that is done changes the ETag, although the job's item does not change."""
        before = get_status(service, job_id)
        store = jobs(service)
        store.progress.mark_batch(store.get(job_id), 0, total=2)
        after = get_status(service, job_id)
        assert (before.json()["progress"], after.json()["progress"]) == (None, {"done": 1, "total": 2})
        assert before.headers["ETag"] != after.headers["ETag"]

    def test_retry_after(self, service: Service, job_id: str) -> None:
        """Without a history, polls are after 5 s, 30 s, and then 5 % of the age."""
        found = []
        for seconds in (0, 5, 25, 120, 3440):
            service.cloud.clock.advance(seconds)
            found.append(int(get_status(service, job_id).headers["Retry-After"]))
        assert found == [5, 25, 30, 30, 179]

    def test_no_retry_after_at_the_end(self, service: Service, job_id: str) -> None:
        """A job that has ended has no Retry-After."""
        service.cancel(job_id)
        assert "Retry-After" not in get_status(service, job_id).headers

    def test_no_cache(self, service: Service, job_id: str) -> None:
        """The response is not cached."""
        assert get_status(service, job_id).headers["Cache-Control"] == "no-store"

    @pytest.mark.parametrize(
        "job_id", ["job_x", "job_01JDX000000000000000000000", "evt_01JDX000000000000000000000"]
    )
    def test_unknown_jobs(self, service: Service, job_id: str) -> None:
        """A malformed or unknown id, or one of another kind, is a 404 at once, also with a wait."""
        for query in ("", "?wait=25"):
            answer, seconds = timed(service.cloud, lambda query=query: get_status(service, job_id, query))
            assert_problem(answer, 404, "not_found")
            assert seconds < 1


class TestWaiting:
    @pytest.mark.parametrize(
        "ask", [{"query": "?wait=20"}, {"Prefer": "wait=20"}, {"Prefer": "respond-async, wait=20"}]
    )
    def test_change(self, service: Service, job_id: str, ask: dict[str, str]) -> None:
        """A change is returned within a second."""
        for moment in (0.1, 3.3, 17.9):
            waiting = service.submit()
            service.cloud.clock.call_later(moment, lambda waiting=waiting: service.cancel(waiting))
            answer, seconds = timed(service.cloud, lambda waiting=waiting: get_status(service, waiting, **ask))
            assert answer.json()["status"] == "canceled"
            assert moment <= seconds <= moment + 1

    @pytest.mark.parametrize(("requested", "given"), [(0, 0), (1, 1), (7, 7), (25, 25), (26, 25), (999_999, 25)])
    def test_time_limit(self, service: Service, job_id: str, requested: int, given: int) -> None:
        """Without a change, the job is returned after N seconds, at most 25."""
        answer, seconds = timed(service.cloud, lambda: get_status(service, job_id, f"?wait={requested}"))
        assert (answer.status, answer.json()["status"]) == (200, "queued")
        assert given <= seconds < given + 0.3

    def test_intervals(self, service: Service, job_id: str) -> None:
        """Reads are 0.2 s to 0.9 s apart, about 30 in 25 s."""
        get_status(service, job_id, "?wait=25")
        sleeps = service.cloud.clock.sleeps
        assert (sleeps[0], max(sleeps)) == (0.2, 0.9)
        assert sleeps[:-1] == sorted(sleeps[:-1])
        assert sum(call.operation == "Query" for call in service.cloud.calls.of("long_poll")) < 36

    def test_if_none_match(self, service: Service, job_id: str) -> None:
        """A job with another ETag is returned at once; with the same, a 304 after the wait."""
        etag = get_status(service, job_id).headers["ETag"]
        same, seconds = timed(service.cloud, lambda: get_status(service, job_id, "?wait=5", If_None_Match=etag))
        assert (same.status, round(seconds)) == (304, 5)
        service.cancel(job_id)
        changed, seconds = timed(service.cloud, lambda: get_status(service, job_id, "?wait=5", If_None_Match=etag))
        assert changed.json()["status"] == "canceled"
        assert seconds < 0.2

    def test_final_job(self, service: Service, job_id: str) -> None:
        """A job that has ended is returned at once."""
        service.cancel(job_id)
        _, seconds = timed(service.cloud, lambda: get_status(service, job_id, "?wait=25"))
        assert seconds < 0.2

    def test_any_step_is_a_change(self, service: Service) -> None:
        """A client that waits with the last ETag sees the job start and end."""
        cloud, job_id = service.cloud, service.submit()
        cloud.pause("worker")
        queued = get_status(service, job_id)
        cloud.clock.call_later(2, cloud.settle)
        running = get_status(service, job_id, "?wait=25", If_None_Match=queued.headers["ETag"])
        cloud.resume()
        cloud.clock.call_later(2, cloud.settle)
        over = get_status(service, job_id, "?wait=25", If_None_Match=running.headers["ETag"])
        assert [answer.json()["status"] for answer in (queued, running, over)] == [
            "queued",
            "running",
            "completed",
        ]

    @pytest.mark.parametrize(
        ("prefer", "applied"),
        [
            ("wait=3", "wait=3"),
            ("wait=100", "wait=25"),
            ('Wait="2"', "wait=2"),
            ("respond-async", None),
            ("wait=x", None),
        ],
    )
    def test_preference_applied(self, service: Service, job_id: str, prefer: str, applied: str | None) -> None:
        """Preference-Applied has the wait that was applied (RFC 7240, section 3)."""
        answer, seconds = timed(service.cloud, lambda: get_status(service, job_id, Prefer=prefer))
        assert answer.headers.get("Preference-Applied") == applied
        assert round(seconds) == (int(applied.partition("=")[2]) if applied else 0)

    def test_query_takes_precedence(self, service: Service, job_id: str) -> None:
        """With both, `?wait` is applied, and the preference is not confirmed."""
        answer, seconds = timed(service.cloud, lambda: get_status(service, job_id, "?wait=2", Prefer="wait=9"))
        assert round(seconds) == 2
        assert "Preference-Applied" not in answer.headers

    @pytest.mark.parametrize("wait", ["-1", "x", "1.5", "9" * 5000])
    def test_invalid_wait(self, service: Service, job_id: str, wait: str) -> None:
        """An invalid wait is a 422 that names the parameter."""
        problem = assert_problem(get_status(service, job_id, f"?wait={wait}"), 422, "invalid_request")
        assert problem["field"].endswith("wait")

    def test_fault_of_the_table(self, service: Service, job_id: str) -> None:
        """A failed read during the wait is a 500 problem."""
        service.cloud.fail("dynamodb", "Query", "InternalServerError", function="long_poll", every=3)
        assert_problem(get_status(service, job_id, "?wait=9"), 500, "internal")


class TestEvents:
    def test_after(self, service: Service) -> None:
        """`after=N` returns the events after sequence N, in order."""
        job_id = service.submit()
        service.cloud.settle(within=60)
        log = service.events(job_id)
        assert [event["sequence"] for event in log] == [1, 2, 3, 4, 5]
        for after in (0, 1, 4, 5, 6, 999_999, 10**12):
            answer = service.call("GET", f"/jobs/{job_id}/events?after={after}").json()
            assert answer == {"events": log[after:]}

    def test_order(self, service: Service, job_id: str) -> None:
        """Sequences sort as numbers."""
        for done in range(10):
            jobs(service).apply(job_id, report_progress(done, 10))
        assert [event["sequence"] for event in service.events(job_id)] == list(range(1, 12))

    @pytest.mark.parametrize("after", ["-1", "x", ""])
    def test_invalid_after(self, service: Service, job_id: str, after: str) -> None:
        """An invalid `after` is a 422 that names the parameter."""
        answer = service.call("GET", f"/jobs/{job_id}/events?after={after}")
        assert assert_problem(answer, 422, "invalid_request")["field"].endswith("after")
