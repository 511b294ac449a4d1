"""Following a job by its links: without a key, over broken connections, at recommended intervals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.jobs import Job, JobStore
from core.jobs.machine import report_progress
from tests.simulated_cloud.cloud import Cloud
from tests.simulated_cloud.rest_api import Response
from tests.support import sse
from tests.support.problems import assert_problem
from tests.support.service import Service

HOUR = 3600
LINK_HOURS = 48
STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(autouse=True)
def virtual(monkeypatch: pytest.MonkeyPatch, cloud: Cloud) -> None:
    """The real time of the tests does not count as waiting."""
    monkeypatch.setattr(time, "monotonic", lambda: cloud.clock.time)


def store(service: Service) -> JobStore:
    table = service.cloud.table("Jobs")
    return JobStore(table.meta.client, table.name)


def links(service: Service, job_id: str) -> dict[str, str]:
    """The job's links as paths below the stage."""
    found = service.job(job_id)["links"]
    root = found["self"].removesuffix(f"/jobs/{job_id}")
    return {name: link.removeprefix(root) for name, link in found.items()}


def get(cloud: Cloud, target: str, **headers: str) -> Response:
    """A request with these headers only."""
    return cloud.request("GET", target, headers={name.replace("_", "-"): value for name, value in headers.items()})


def token_of(link: str) -> str:
    return link.split("/")[2]


@pytest.fixture
def job_id(service: Service) -> str:
    """A job that stays queued: no messages are delivered."""
    service.cloud.pause("publisher")
    return service.submit()


class TestLinks:
    def test_responses_with_links(self, service: Service) -> None:
        """All responses with a job have absolute links that work."""
        body = {"kind": "document", "input": {"text": "t"}}
        submitted = service.call("POST", "/jobs", json=body).json()
        job_id = submitted["job_id"]
        (listed,) = service.call("GET", "/jobs").json()["jobs"]
        canceled = service.cancel(job_id).json()
        retried = service.call("POST", f"/jobs/{job_id}/retry").json()
        assert submitted["links"] == listed["links"] == canceled["links"] == service.job(job_id)["links"]
        assert set(submitted["links"]) == {"self", "status", "events", "live"}
        assert not set(retried["links"].values()) & set(submitted["links"].values())
        for found in (submitted["links"], retried["links"]):
            assert found.pop("live").startswith(f"{service.cloud.output('LiveUrl')}?token=")
            for link in found.values():
                assert link.startswith(f"https://{service.cloud.rest_apis[0].host}/v1/")

    def test_no_key_is_needed(self, service: Service, job_id: str) -> None:
        """Without headers, links return the same as the owner's key."""
        found, cloud = links(service, job_id), service.cloud
        for name in ("status", "events"):
            linked, owned = get(cloud, found[name]), service.call("GET", f"/jobs/{job_id}/{name}")
            assert (linked.status, linked.json()) == (200, owned.json())
        log = get(cloud, f"{found['events']}?after=1").json()
        assert log == {"events": []}
        assert get(cloud, found["self"]).status == 401

    def test_wait_and_etag(self, service: Service, job_id: str) -> None:
        """`?wait=`, `Prefer` and `If-None-Match` work by link as by key."""
        link, clock = links(service, job_id)["status"], service.cloud.clock
        first = get(service.cloud, link)
        assert int(first.headers["Retry-After"]) == 5
        start = clock.time
        same = get(service.cloud, link, If_None_Match=first.headers["ETag"], Prefer="wait=3")
        assert (same.status, same.body, same.headers["Preference-Applied"]) == (304, b"", "wait=3")
        assert 3 <= clock.time - start < 4
        clock.call_later(2, lambda: service.cancel(job_id))
        changed = get(service.cloud, f"{link}?wait=25", If_None_Match=first.headers["ETag"])
        assert (changed.status, changed.json()["status"]) == (200, "canceled")
        assert "Retry-After" not in changed.headers

    def test_token_grants_nothing_else(self, service: Service, job_id: str) -> None:
        """The token is not a key, and opens no other path or method."""
        cloud, token = service.cloud, token_of(links(service, job_id)["status"])
        before = cloud.table("Jobs").scan()["Items"]
        paths = cloud.request("GET", "/openapi.json").json()["paths"]
        names = ("job_id", "document_id", "upload_id", "webhook_id", "delivery_id")
        for path, operations in paths.items():
            if path.startswith("/follow/"):
                continue
            target = path.format(**dict.fromkeys(names, job_id))
            for method in operations:
                for credentials in ({}, {"Authorization": f"Bearer {token}"}, {"Authorization": token}):
                    answer = cloud.request(method, f"{target}?token={token}", json={}, headers=credentials)
                    assert_problem(answer, 401, "unauthorized")
        for rest in ("", "/", "/cancel", "/retry", "/status/x", "/events/x", "/webhooks"):
            assert cloud.request("GET", f"/follow/{token}{rest}").status == 404
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for name in ("status", "events", "cancel"):
                assert cloud.request(method, f"/follow/{token}/{name}", json={}).status == 404
        assert cloud.table("Jobs").scan()["Items"] == before

    def test_expiry(self, service: Service, job_id: str) -> None:
        """After 48 to 49 hours links are a 403, and the job has new ones."""
        old, cloud = links(service, job_id), service.cloud
        cloud.clock.advance(LINK_HOURS * HOUR)
        assert get(cloud, old["status"]).status == 200
        cloud.clock.advance(HOUR)
        for name in ("status", "events"):
            assert_problem(get(cloud, old[name]), 403, "forbidden")
        new = links(service, job_id)
        assert new["status"] != old["status"]
        assert get(cloud, new["status"]).status == get(cloud, new["events"]).status == 200

    def test_links_are_stable(self, service: Service, job_id: str) -> None:
        """Links do not change for a while."""
        assert links(service, job_id) == links(service, job_id)

    def test_invalid_links(self, service: Service, job_id: str) -> None:
        """Foreign, forged and expired tokens, and those of expired jobs, are the same 403."""
        stranger = Service(service.cloud, "bob")
        foreign = token_of(links(stranger, stranger.submit())["status"])
        ulid, end, signature = token_of(links(service, job_id)["status"]).split(".")
        wrong = [
            "x",
            foreign.replace(foreign.split(".")[0], ulid),
            f"{foreign.split('.')[0]}.{end}.{signature}",
            f"{ulid}.{int(end) + HOUR}.{signature}",
            f"01JDX000000000000000000000.{end}.{signature}",
        ]
        answers = [
            get(service.cloud, f"/follow/{token}/{name}") for token in wrong for name in ("status", "events")
        ]
        assert {answer.status for answer in answers} == {403}
        assert len({answer.body for answer in answers}) == 1
        assert "GET /jobs" in assert_problem(answers[0], 403, "forbidden")["detail"]
        assert get(service.cloud, f"/follow/{foreign}/status").json()["job_id"] != job_id

    @pytest.mark.parametrize("text", ["%00", "a%2Fb", "👩‍🚀", "%F0%9F", "%0A", " ", "%20", "..", "a" * 5000])
    def test_any_text(self, service: Service, text: str) -> None:
        """Any text in place of a token is a 4xx, and nothing is read."""
        for name in ("status", "events"):
            answer = get(service.cloud, f"/follow/{text}/{name}")
            assert answer.status in (403, 404)
            assert_problem(answer, answer.status, "forbidden" if answer.status == 403 else "not_found")
        assert not service.cloud.calls.of("long_poll")

    def test_expired_job(self, service: Service, job_id: str, knob: Callable[..., None]) -> None:
        """A valid token of an expired job is a 403."""
        knob("Functions/Api", LINK_HOURS=24 * 365)
        link = links(service, job_id)["status"]
        service.cloud.clock.advance(90 * 24 * HOUR)
        assert_problem(get(service.cloud, link), 403, "forbidden")


@dataclass
class Source:
    """A browser's EventSource, which reconnects with the id of the last event. `cut`: the share of a response
    that is received before the connection breaks.
    """

    cloud: Cloud
    link: str
    received: list[sse.Message] = field(default_factory=list)
    last_event_id: str = ""
    is_closed: bool = False

    def connect(self, cut: float = 1.0) -> Response:
        known = {"Last-Event-ID": self.last_event_id} if self.last_event_id else {}
        answer = self.cloud.request("GET", self.link, headers=STREAM | known)
        if answer.status != 200:  # the specification: any other status closes it for good
            self.is_closed = True
            return answer
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        text = answer.text[: round(cut * len(answer.text))]
        found = sse.parse(text, last_event_id=self.last_event_id)
        self.received += found.events
        self.last_event_id = found.last_event_id
        return answer

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(each.data) for each in self.received if each.type != "end"]


def source(service: Service, job_id: str) -> Source:
    return Source(service.cloud, links(service, job_id)["events"])


CUTS = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), max_size=8)


class TestStreams:
    @given(cuts=CUTS)
    @settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_broken_connections(self, service: Service, cuts: list[tuple[int, float]]) -> None:
        """Wherever connections break, each event is received once, in order."""
        service.cloud.pause("publisher")
        job_id = service.submit()
        client, jobs = source(service, job_id), store(service)
        for number, (new, cut) in enumerate(cuts):
            for done in range(new):
                jobs.apply(job_id, report_progress(10 * number + done, 100))
            client.connect(cut)
        service.cancel(job_id)
        while not client.is_closed:
            client.connect()
        assert client.events == service.events(job_id)
        assert [each["sequence"] for each in client.events] == list(range(1, len(client.events) + 1))
        assert [each.type for each in client.received].count("end") == 1

    def test_complete_job(self, service: Service) -> None:
        """A job is followed from its submission to its end, and then the stream is closed."""
        job_id, cloud = service.submit(), service.cloud
        client = source(service, job_id)
        cloud.clock.call_later(3, cloud.settle)
        while not client.is_closed:
            client.connect()
        assert client.events == service.events(job_id)
        assert [each.type for each in client.received] == [
            *(f"document.{verb}" for verb in ("uploaded", "started", "chunked", "embedded", "indexed")),
            "end",
        ]
        assert json.loads(client.received[-1].data) == {"status": "completed"}

    @pytest.mark.parametrize("moment", [0.1, 3.3, 24.0])
    def test_wait_for_event(self, service: Service, job_id: str, moment: float) -> None:
        """A stream without new events waits, and returns an event within a second."""
        client, clock = source(service, job_id), service.cloud.clock
        client.connect()
        start = clock.time
        clock.call_later(moment, lambda: service.cancel(job_id))
        client.connect()
        assert moment <= clock.time - start <= moment + 1
        assert [each.type for each in client.received] == ["document.uploaded", "document.canceled", "end"]

    def test_time_limit(self, service: Service, job_id: str) -> None:
        """Without events, an empty response is sent after 25 s."""
        client, clock = source(service, job_id), service.cloud.clock
        client.connect()
        start, received = clock.time, list(client.received)
        answer = client.connect()
        assert (answer.status, client.received, client.last_event_id) == (200, received, "1")
        assert 25 <= clock.time - start < 25.5
        assert sse.parse(answer.text).retry == 1000

    def test_end(self, service: Service, job_id: str) -> None:
        """A client with the last event gets a 204. Others get the events that they lack."""
        service.cancel(job_id)
        client, clock = source(service, job_id), service.cloud.clock
        client.connect()
        start = clock.time
        answer = client.connect()
        assert (answer.status, answer.body) == (204, b"")
        assert clock.time - start < 0.2
        late = source(service, job_id)
        late.last_event_id = "1"
        late.connect()
        assert [each.type for each in late.received] == ["document.canceled", "end"]

    def test_by_key(self, service: Service, job_id: str) -> None:
        """With a key the same stream is below the job's path, and `after` replaces the header."""
        service.cancel(job_id)
        by_link = get(service.cloud, f"{links(service, job_id)['events']}?after=1", Accept="text/event-stream")
        by_key = service.call("GET", f"/jobs/{job_id}/events?after=1", headers=STREAM)
        assert by_key.body == by_link.body
        assert [each.last_event_id for each in sse.parse(by_key.text).events] == ["2", "2"]

    def test_long_log(self, service: Service, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A log with more events than a response contains takes several responses."""
        monkeypatch.setattr("rest.long_poll.jobs.MAX_EVENTS", 4)
        for done in range(9):
            store(service).apply(job_id, report_progress(done, 10))
        service.cancel(job_id)
        client, sizes = source(service, job_id), []
        while not client.is_closed:
            before = len(client.events)
            client.connect()
            sizes.append(len(client.events) - before)
        assert sizes == [4, 4, 3, 0]
        assert [each["sequence"] for each in client.events] == list(range(1, 12))
        assert [each.type for each in client.received].count("end") == 1


def run(service: Service, seconds: float) -> Job:
    """Runs a job that completes about this many seconds after its submission."""
    cloud = service.cloud
    cloud.pause("start_job")
    job_id = service.submit(document_id="d")
    cloud.settle()
    cloud.clock.advance(seconds)
    cloud.resume("start_job")
    cloud.settle(within=60)
    done = store(service).get(job_id)
    assert done.status == "completed"
    return done


def length(job: Job) -> float:
    begun, ended = (datetime.fromisoformat(at) for at in (job.created_at, job.finished_at or ""))
    return (ended - begun).total_seconds()


@pytest.mark.usefixtures("without_reaper")
class TestIntervals:
    def test_history(self, service: Service) -> None:
        """The durations of completed jobs are recorded, and five are needed for an estimate."""
        foretold, lengths = [], []
        for n in range(6):
            ended = run(service, 600 + 10 * n)
            lengths.append(length(ended))
            assert list(store(service).durations.history("ana", "document").seconds) == pytest.approx(lengths)
            service.cloud.pause("publisher")
            foretold.append(service.job(last := service.submit())["expected_completion"] is not None)
            service.cancel(last)
            service.cloud.resume("publisher")
            service.cloud.settle()
        assert foretold == [False] * 4 + [True] * 2

    def test_estimate(self, service: Service) -> None:
        """The estimate is the median. The next poll is when the shortest job could be done."""
        for n in range(5):
            run(service, 600 + 10 * n)
        service.cloud.pause("publisher")
        job_id = service.submit()
        begun = datetime.fromisoformat(service.job(job_id)["created_at"])
        service.cloud.clock.advance(60)
        seen = service.call("GET", f"/jobs/{job_id}/status")
        expected = datetime.fromisoformat(seen.json()["expected_completion"])
        assert 620 <= (expected - begun).total_seconds() < 630
        assert 600 * 0.85 - 60 <= int(seen.headers["Retry-After"]) <= 600 - 60

    def test_other_jobs_do_not_count(self, service: Service) -> None:
        """Failed and canceled jobs, and those of other owners, do not count."""
        for _ in range(5):
            service.submit(" ")
            service.cancel(service.submit())
        stranger = Service(service.cloud, "bob")
        for _ in range(5):
            stranger.submit()
        service.cloud.settle(within=60)
        assert store(service).durations.history("ana", "document").seconds == ()
        assert len(store(service).durations.history("bob", "document").seconds) == 5
        service.cloud.pause("publisher")
        assert service.job(service.submit())["expected_completion"] is None
        assert stranger.job(stranger.submit())["expected_completion"] is not None

    def test_progress(self, service: Service, job_id: str) -> None:
        """Progress takes precedence over the history: half done after ten minutes means twenty."""
        jobs = store(service)
        begun = datetime.fromisoformat(service.job(job_id)["created_at"])
        for batch in range(20):
            jobs.progress.mark_batch(jobs.get(job_id), batch, total=40)
        service.cloud.clock.advance(600)
        seen = service.call("GET", f"/jobs/{job_id}/status")
        expected = datetime.fromisoformat(seen.json()["expected_completion"])
        assert (expected - begun).total_seconds() == pytest.approx(1200, abs=1)
        assert 450 < int(seen.headers["Retry-After"]) < 520

    def test_number_of_requests(self, service: Service, job_id: str) -> None:
        """Two hours without a history take less than 80 requests, and the end is known in time."""
        cloud, link, requests = service.cloud, links(service, job_id)["status"], 0
        start = cloud.clock.time
        cloud.clock.call_later(2 * HOUR, lambda: service.cancel(job_id))
        while "Retry-After" in (answer := get(cloud, link)).headers:
            requests += 1
            cloud.clock.advance(int(answer.headers["Retry-After"]))
        assert answer.json()["status"] == "canceled"
        assert requests < 80
        assert cloud.clock.time - start - 2 * HOUR <= 0.05 * 2 * HOUR + 1


TUTORIAL = '''
import time
import requests

def wait_for(url, base=1, cap=60, max_attempts=200):
    """Poll a status URL with exponential backoff until the job is done."""
    for attempt in range(max_attempts):
        response = requests.get(url)
        response.raise_for_status()
        data = response.json()
        status = data["status"]
        if status == "completed":
            return data
        if status == "failed":
            raise RuntimeError(f"job failed: {data['error']}")
        time.sleep(min(base * 2 ** attempt, cap))
    raise TimeoutError(f"not done after {max_attempts} attempts")
'''


class Requests(SimpleNamespace):
    """A fake of `requests` that calls the cloud's gateway."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.urls = cloud, list[str]()

    def get(self, url: str) -> Any:
        self.urls.append(url)
        place = urlsplit(url)
        assert place.hostname == self.cloud.rest_apis[0].host
        answer = self.cloud.request("GET", place.path.removeprefix("/v1"))
        return SimpleNamespace(json=answer.json, raise_for_status=lambda: self.check(answer))

    def check(self, answer: Response) -> None:
        assert answer.status < 400, answer.text


@pytest.fixture
def tutorial(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A polling loop as in tutorials."""
    monkeypatch.setitem(__import__("sys").modules, "requests", Requests(cloud))
    namespace: dict[str, Any] = {}
    exec(TUTORIAL, namespace)
    loop: Callable[..., Any] = namespace["wait_for"]
    return loop


class TestTutorial:
    def test_loop(self, service: Service, tutorial: Callable[..., Any]) -> None:
        """The loop works with the `status` link without a key."""
        job = service.job(service.submit())
        service.cloud.clock.call_later(100, service.cloud.settle)
        done = tutorial(job["links"]["status"])
        assert (done["job_id"], done["status"]) == (job["job_id"], "completed")
        assert service.cloud.clock.sleeps[:7] == [1, 2, 4, 8, 16, 32, 60]

    def test_failed_job(self, service: Service, tutorial: Callable[..., Any]) -> None:
        """The loop finds the reason in `error`."""
        job = service.job(service.submit(" "))
        service.cloud.clock.call_later(5, service.cloud.settle)
        with pytest.raises(RuntimeError, match="empty"):
            tutorial(job["links"]["status"])
