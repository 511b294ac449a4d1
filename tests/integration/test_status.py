"""Learning the outcome by asking: polls with ETags, held answers, and the log."""

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


def look(service: Service, job_id: str, query: str = "", **headers: str) -> Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return service.call("GET", f"/jobs/{job_id}/status{query}", headers=sent)


def jobs(service: Service) -> JobStore:
    table = service.cloud.table("Jobs")
    return JobStore(table.meta.client, table.name)


@pytest.fixture
def job_id(service: Service) -> str:
    """A job that stays queued: nothing is delivered to anybody."""
    service.cloud.pause("publisher")
    return service.submit()


@pytest.fixture(autouse=True)
def virtual(monkeypatch: pytest.MonkeyPatch, cloud: Cloud) -> None:
    """The time that this machine takes does not count as waiting."""
    monkeypatch.setattr(time, "monotonic", lambda: cloud.clock.time)


def timed(cloud: Cloud, request: Any) -> tuple[Response, float]:
    """The answer, and after how many seconds it came."""
    start = cloud.clock.time
    return request(), cloud.clock.time - start


class TestPolling:
    def test_the_answer_is_small(self, service: Service, job_id: str) -> None:
        """It has what polling needs, and nothing else."""
        assert look(service, job_id).json() == {
            "job_id": job_id,
            "status": "queued",
            "stage": "queued",
            "progress": None,
            "attempts": 0,
            "sequence": 1,
            "expected_completion": None,
            "error": None,
        }

    def test_a_failed_job_says_why(self, service: Service) -> None:
        """`error` has a stable code, a message and the stage."""
        job_id = service.submit(" ")
        service.cloud.settle(within=60)
        status = look(service, job_id).json()
        assert (status["status"], status["stage"], status["error"]["code"]) == ("failed", "validate", "empty")
        assert set(status["error"]) == {"code", "message", "stage"}

    def test_an_unchanged_job_is_a_304(self, service: Service, job_id: str) -> None:
        """With the ETag it has, a client gets no body until the job changes, and then the new state."""
        etag = look(service, job_id).headers["ETag"]
        for known in (etag, f"W/{etag}", f'"other", {etag}'):
            same = look(service, job_id, If_None_Match=known)
            assert (same.status, same.body, same.headers["ETag"]) == (304, b"", etag)
        service.cancel(job_id)
        changed = look(service, job_id, If_None_Match=etag)
        assert (changed.status, changed.json()["status"]) == (200, "canceled")
        assert changed.headers["ETag"] != etag

    def test_progress_is_a_change(self, service: Service, job_id: str) -> None:
        """A batch that is done changes the ETag, although the row stays as it is."""
        before = look(service, job_id)
        store = jobs(service)
        store.mark_batch(store.get(job_id), 0, total=2)
        after = look(service, job_id)
        assert (before.json()["progress"], after.json()["progress"]) == (None, {"done": 1, "total": 2})
        assert before.headers["ETag"] != after.headers["ETag"]

    def test_the_interval_grows_with_the_age(self, service: Service, job_id: str) -> None:
        """While nothing is known of such jobs, looks come ever later: after 5 s, 30 s, then 5 % of the age."""
        found = []
        for seconds in (0, 5, 25, 120, 3440):
            service.cloud.clock.advance(seconds)
            found.append(int(look(service, job_id).headers["Retry-After"]))
        assert found == [5, 25, 30, 30, 179]

    def test_a_job_that_has_ended_asks_for_no_more(self, service: Service, job_id: str) -> None:
        """No Retry-After where nothing can change."""
        service.cancel(job_id)
        assert "Retry-After" not in look(service, job_id).headers

    def test_no_cache_keeps_it(self, service: Service, job_id: str) -> None:
        """What belongs to one owner is not stored on the way."""
        assert look(service, job_id).headers["Cache-Control"] == "no-store"

    @pytest.mark.parametrize(
        "job_id", ["job_x", "job_01JDX000000000000000000000", "evt_01JDX000000000000000000000"]
    )
    def test_there_may_be_no_such_job(self, service: Service, job_id: str) -> None:
        """An id that is malformed, unknown or of another kind is a 404, also when waiting, at once."""
        for query in ("", "?wait=25"):
            answer, seconds = timed(service.cloud, lambda query=query: look(service, job_id, query))
            assert_problem(answer, 404, "not_found")
            assert seconds < 1


class TestWaiting:
    @pytest.mark.parametrize(
        "ask", [{"query": "?wait=20"}, {"Prefer": "wait=20"}, {"Prefer": "respond-async, wait=20"}]
    )
    def test_the_answer_comes_with_the_change(self, service: Service, job_id: str, ask: dict[str, str]) -> None:
        """Whoever waits hears of a change within a second."""
        for moment in (0.1, 3.3, 17.9):
            waiting = service.submit()
            service.cloud.clock.call_later(moment, lambda waiting=waiting: service.cancel(waiting))
            answer, seconds = timed(service.cloud, lambda waiting=waiting: look(service, waiting, **ask))
            assert answer.json()["status"] == "canceled"
            assert moment <= seconds <= moment + 1

    @pytest.mark.parametrize(("asked", "given"), [(0, 0), (1, 1), (7, 7), (25, 25), (26, 25), (999_999, 25)])
    def test_it_does_not_wait_for_longer_than_it_may(
        self, service: Service, job_id: str, asked: int, given: int
    ) -> None:
        """Without a change the answer is the unchanged job after N seconds, 25 at most."""
        answer, seconds = timed(service.cloud, lambda: look(service, job_id, f"?wait={asked}"))
        assert (answer.status, answer.json()["status"]) == (200, "queued")
        assert given <= seconds < given + 0.3

    def test_it_sleeps_less_than_a_second_at_a_time(self, service: Service, job_id: str) -> None:
        """Looking again gets slower, from 0.2 s to 0.9 s: about 30 reads in 25 s."""
        look(service, job_id, "?wait=25")
        sleeps = service.cloud.clock.sleeps
        assert (sleeps[0], max(sleeps)) == (0.2, 0.9)
        assert sleeps[:-1] == sorted(sleeps[:-1])
        assert len(service.cloud.calls.of("long_poll")) < 35

    def test_what_is_known_already_is_not_waited_for(self, service: Service, job_id: str) -> None:
        """A job that differs from If-None-Match is answered at once; one that does not is a 304 in the end."""
        etag = look(service, job_id).headers["ETag"]
        same, seconds = timed(service.cloud, lambda: look(service, job_id, "?wait=5", If_None_Match=etag))
        assert (same.status, round(seconds)) == (304, 5)
        service.cancel(job_id)
        news, seconds = timed(service.cloud, lambda: look(service, job_id, "?wait=5", If_None_Match=etag))
        assert news.json()["status"] == "canceled"
        assert seconds < 0.2

    def test_a_job_that_has_ended_is_not_waited_for(self, service: Service, job_id: str) -> None:
        """Nothing will change, so the answer comes at once."""
        service.cancel(job_id)
        _, seconds = timed(service.cloud, lambda: look(service, job_id, "?wait=25"))
        assert seconds < 0.2

    def test_any_step_is_a_change(self, service: Service) -> None:
        """A client that waits with the last ETag sees the job start, and then its end."""
        cloud, job_id = service.cloud, service.submit()
        cloud.pause("worker")
        queued = look(service, job_id)
        cloud.clock.call_later(2, cloud.settle)
        running = look(service, job_id, "?wait=25", If_None_Match=queued.headers["ETag"])
        cloud.resume()
        cloud.clock.call_later(2, cloud.settle)
        over = look(service, job_id, "?wait=25", If_None_Match=running.headers["ETag"])
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
    def test_what_was_honoured_is_said(
        self, service: Service, job_id: str, prefer: str, applied: str | None
    ) -> None:
        """Preference-Applied names the wait that was applied, not more (RFC 7240, section 3)."""
        answer, seconds = timed(service.cloud, lambda: look(service, job_id, Prefer=prefer))
        assert answer.headers.get("Preference-Applied") == applied
        assert round(seconds) == (int(applied.partition("=")[2]) if applied else 0)

    def test_the_query_counts_more_than_the_preference(self, service: Service, job_id: str) -> None:
        """With both, `?wait` is done, and the preference is not said to be."""
        answer, seconds = timed(service.cloud, lambda: look(service, job_id, "?wait=2", Prefer="wait=9"))
        assert round(seconds) == 2
        assert "Preference-Applied" not in answer.headers

    @pytest.mark.parametrize("wait", ["-1", "x", "1.5", "9" * 5000])
    def test_a_wait_is_a_number(self, service: Service, job_id: str, wait: str) -> None:
        """422 names the parameter."""
        problem = assert_problem(look(service, job_id, f"?wait={wait}"), 422, "invalid_request")
        assert problem["field"].endswith("wait")

    def test_a_table_that_fails_meanwhile_is_a_problem(self, service: Service, job_id: str) -> None:
        """A read that fails in the middle of the wait ends it with a 500 problem."""
        service.cloud.fail("dynamodb", "Query", "InternalServerError", function="long_poll", every=3)
        assert_problem(look(service, job_id, "?wait=9"), 500, "internal")


class TestEvents:
    def test_the_log_starts_where_one_left_off(self, service: Service) -> None:
        """`after=N` gives what came after event N, in order; beyond the end that is nothing."""
        job_id = service.submit()
        service.cloud.settle(within=60)
        log = service.events(job_id)
        assert [event["sequence"] for event in log] == [1, 2, 3, 4, 5]
        for after in (0, 1, 4, 5, 6, 999_999, 10**12):
            answer = service.call("GET", f"/jobs/{job_id}/events?after={after}").json()
            assert answer == {"events": log[after:]}

    def test_a_log_longer_than_nine_is_in_order(self, service: Service, job_id: str) -> None:
        """Sequence numbers sort as numbers."""
        for done in range(10):
            jobs(service).apply(job_id, report_progress(done, 10))
        assert [event["sequence"] for event in service.events(job_id)] == list(range(1, 12))

    @pytest.mark.parametrize("after", ["-1", "x", ""])
    def test_a_place_in_the_log_is_a_number(self, service: Service, job_id: str, after: str) -> None:
        """422 names the parameter."""
        answer = service.call("GET", f"/jobs/{job_id}/events?after={after}")
        assert assert_problem(answer, 422, "invalid_request")["field"].endswith("after")
