"""Following a job by its links: without a key, across broken connections, and told when to come back."""

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
    """The time that this machine takes does not count as waiting."""
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
    """Without any header but these."""
    return cloud.request("GET", target, headers={name.replace("_", "-"): value for name, value in headers.items()})


def token_of(link: str) -> str:
    return link.split("/")[2]


@pytest.fixture
def job_id(service: Service) -> str:
    """A job that stays queued: nothing is delivered to anybody."""
    service.cloud.pause("publisher")
    return service.submit()


class TestLinks:
    def test_they_stand_in_every_answer_that_shows_a_job(self, service: Service) -> None:
        """The 202, the job, the list, a cancelation and a retry have links that are absolute and answer."""
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

    def test_they_need_no_key(self, service: Service, job_id: str) -> None:
        """Without any header they answer what the owner's key is answered."""
        found, cloud = links(service, job_id), service.cloud
        for name in ("status", "events"):
            linked, owned = get(cloud, found[name]), service.call("GET", f"/jobs/{job_id}/{name}")
            assert (linked.status, linked.json()) == (200, owned.json())
        log = get(cloud, f"{found['events']}?after=1").json()
        assert log == {"events": []}
        assert get(cloud, found["self"]).status == 401

    def test_they_wait_and_know_what_is_known(self, service: Service, job_id: str) -> None:
        """`?wait=`, `Prefer` and `If-None-Match` do by link what they do by key."""
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

    def test_they_open_nothing_else(self, service: Service, job_id: str) -> None:
        """The token is no key, opens no other path, and changes nothing by any method."""
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

    def test_they_end(self, service: Service, job_id: str) -> None:
        """After 48 hours, or one more, they are a 403; fetching the job gives others."""
        old, cloud = links(service, job_id), service.cloud
        cloud.clock.advance(LINK_HOURS * HOUR)
        assert get(cloud, old["status"]).status == 200
        cloud.clock.advance(HOUR)
        for name in ("status", "events"):
            assert_problem(get(cloud, old[name]), 403, "forbidden")
        new = links(service, job_id)
        assert new["status"] != old["status"]
        assert get(cloud, new["status"]).status == get(cloud, new["events"]).status == 200

    def test_they_stay_the_same_for_a_while(self, service: Service, job_id: str) -> None:
        """Whoever asks again soon gets the same links, so that they can be compared and kept."""
        assert links(service, job_id) == links(service, job_id)

    def test_what_does_not_hold_is_one_403(self, service: Service, job_id: str) -> None:
        """Foreign, forged and ended tokens, and those of jobs that are gone, are refused alike, word for word."""
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
    def test_no_text_is_an_error_of_ours(self, service: Service, text: str) -> None:
        """Whatever stands where a token should, the answer is a problem of the caller's, and nothing is read."""
        for name in ("status", "events"):
            answer = get(service.cloud, f"/follow/{text}/{name}")
            assert answer.status in (403, 404)
            assert_problem(answer, answer.status, "forbidden" if answer.status == 403 else "not_found")
        assert not service.cloud.calls.of("long_poll")

    def test_a_job_that_is_forgotten(self, service: Service, job_id: str, knob: Callable[..., None]) -> None:
        """A link to a job whose time is over is a 403, although its token has not ended."""
        knob("Functions/Api", LINK_HOURS=24 * 365)
        link = links(service, job_id)["status"]
        service.cloud.clock.advance(90 * 24 * HOUR)
        assert_problem(get(service.cloud, link), 403, "forbidden")


@dataclass
class Source:
    """A browser's EventSource: connects, hears, and comes back with the number of what it heard last.

    `cut` is the share of an answer that comes through before the connection breaks.
    """

    cloud: Cloud
    link: str
    heard: list[sse.Message] = field(default_factory=list)
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
        self.heard += found.events
        self.last_event_id = found.last_event_id
        return answer

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(each.data) for each in self.heard if each.type != "end"]


def source(service: Service, job_id: str) -> Source:
    return Source(service.cloud, links(service, job_id)["events"])


CUTS = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), max_size=8)


class TestStreams:
    @given(cuts=CUTS)
    @settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_nothing_is_lost_or_repeated(self, service: Service, cuts: list[tuple[int, float]]) -> None:
        """Wherever connections break, and whatever happens between them, each event is heard once, in order."""
        service.cloud.pause("publisher")
        job_id = service.submit()
        listener, jobs = source(service, job_id), store(service)
        for number, (news, cut) in enumerate(cuts):
            for done in range(news):
                jobs.apply(job_id, report_progress(10 * number + done, 100))
            listener.connect(cut)
        service.cancel(job_id)
        while not listener.is_closed:
            listener.connect()
        assert listener.events == service.events(job_id)
        assert [each["sequence"] for each in listener.events] == list(range(1, len(listener.events) + 1))
        assert [each.type for each in listener.heard].count("end") == 1

    def test_a_whole_job(self, service: Service) -> None:
        """A job is heard from its submission to its end, and as soon as it is over the listener is sent away."""
        job_id, cloud = service.submit(), service.cloud
        listener = source(service, job_id)
        cloud.clock.call_later(3, cloud.settle)
        while not listener.is_closed:
            listener.connect()
        assert listener.events == service.events(job_id)
        assert [each.type for each in listener.heard] == [
            *(f"document.{verb}" for verb in ("uploaded", "started", "chunked", "embedded", "indexed")),
            "end",
        ]
        assert json.loads(listener.heard[-1].data) == {"status": "completed"}

    @pytest.mark.parametrize("moment", [0.1, 3.3, 24.0])
    def test_it_is_held_open_until_something_happens(self, service: Service, job_id: str, moment: float) -> None:
        """Who knows everything waits, and hears of what is new within a second."""
        listener, clock = source(service, job_id), service.cloud.clock
        listener.connect()
        start = clock.time
        clock.call_later(moment, lambda: service.cancel(job_id))
        listener.connect()
        assert moment <= clock.time - start <= moment + 1
        assert [each.type for each in listener.heard] == ["document.uploaded", "document.canceled", "end"]

    def test_it_ends_before_the_gateway_does(self, service: Service, job_id: str) -> None:
        """Where nothing happens the answer comes after 25 s, is empty, and leaves the client where it was."""
        listener, clock = source(service, job_id), service.cloud.clock
        listener.connect()
        start, heard = clock.time, list(listener.heard)
        answer = listener.connect()
        assert (answer.status, listener.heard, listener.last_event_id) == (200, heard, "1")
        assert 25 <= clock.time - start < 25.5
        assert sse.parse(answer.text).retry == 1000

    def test_it_is_over_once_the_end_is_known(self, service: Service, job_id: str) -> None:
        """204, at once, to whoever has the last event of a job that has ended; others get what they lack."""
        service.cancel(job_id)
        listener, clock = source(service, job_id), service.cloud.clock
        listener.connect()
        start = clock.time
        answer = listener.connect()
        assert (answer.status, answer.body) == (204, b"")
        assert clock.time - start < 0.2
        late = source(service, job_id)
        late.last_event_id = "1"
        late.connect()
        assert [each.type for each in late.heard] == ["document.canceled", "end"]

    def test_by_key(self, service: Service, job_id: str) -> None:
        """With a key the same stream is at the job's own path, and `after` may stand for the header."""
        service.cancel(job_id)
        by_link = get(service.cloud, f"{links(service, job_id)['events']}?after=1", Accept="text/event-stream")
        by_key = service.call("GET", f"/jobs/{job_id}/events?after=1", headers=STREAM)
        assert by_key.body == by_link.body
        assert [each.last_event_id for each in sse.parse(by_key.text).events] == ["2", "2"]

    def test_a_log_longer_than_one_answer(
        self, service: Service, job_id: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A log of more events than one answer has is heard in several, and ends in the last."""
        monkeypatch.setattr("rest.long_poll.handler.MAX_EVENTS", 4)
        for done in range(9):
            store(service).apply(job_id, report_progress(done, 10))
        service.cancel(job_id)
        listener, sizes = source(service, job_id), []
        while not listener.is_closed:
            before = len(listener.events)
            listener.connect()
            sizes.append(len(listener.events) - before)
        assert sizes == [4, 4, 3, 0]
        assert [each["sequence"] for each in listener.events] == list(range(1, 12))
        assert [each.type for each in listener.heard].count("end") == 1


def run(service: Service, seconds: float) -> Job:
    """A job that completes so many seconds after its submission, more or less."""
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


@pytest.mark.usefixtures("unswept")
class TestPace:
    def test_it_learns_from_what_completed(self, service: Service) -> None:
        """Each job that completes is remembered with its length; from five on, an end can be foretold."""
        foretold, lengths = [], []
        for n in range(6):
            ended = run(service, 600 + 10 * n)
            lengths.append(length(ended))
            assert list(store(service).history("ana", "document").seconds) == pytest.approx(lengths)
            service.cloud.pause("publisher")
            foretold.append(service.job(last := service.submit())["expected_completion"] is not None)
            service.cancel(last)
            service.cloud.resume("publisher")
            service.cloud.settle()
        assert foretold == [False] * 4 + [True] * 2

    def test_the_usual_length(self, service: Service) -> None:
        """What is expected is the median; the next look comes when the shortest could be done."""
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

    def test_failures_and_strangers_teach_nothing(self, service: Service) -> None:
        """What failed or was canceled says nothing of how long it takes, nor do jobs of another owner."""
        for _ in range(5):
            service.submit(" ")
            service.cancel(service.submit())
        stranger = Service(service.cloud, "bob")
        for _ in range(5):
            stranger.submit()
        service.cloud.settle(within=60)
        assert store(service).history("ana", "document").seconds == ()
        assert len(store(service).history("bob", "document").seconds) == 5
        service.cloud.pause("publisher")
        assert service.job(service.submit())["expected_completion"] is None
        assert stranger.job(stranger.submit())["expected_completion"] is not None

    def test_progress_says_more(self, service: Service, job_id: str) -> None:
        """A job that is half done after ten minutes is expected after twenty, whatever is usual."""
        jobs = store(service)
        begun = datetime.fromisoformat(service.job(job_id)["created_at"])
        for batch in range(20):
            jobs.mark_batch(jobs.get(job_id), batch, total=40)
        service.cloud.clock.advance(600)
        seen = service.call("GET", f"/jobs/{job_id}/status")
        expected = datetime.fromisoformat(seen.json()["expected_completion"])
        assert (expected - begun).total_seconds() == pytest.approx(1200, abs=1)
        assert 450 < int(seen.headers["Retry-After"]) < 520

    def test_who_obeys_looks_seldom(self, service: Service, job_id: str) -> None:
        """Two hours of a job of which nothing is known: under 80 looks, and the end is known in time."""
        cloud, link, looks = service.cloud, links(service, job_id)["status"], 0
        start = cloud.clock.time
        cloud.clock.call_later(2 * HOUR, lambda: service.cancel(job_id))
        while "Retry-After" in (answer := get(cloud, link)).headers:
            looks += 1
            cloud.clock.advance(int(answer.headers["Retry-After"]))
        assert answer.json()["status"] == "canceled"
        assert looks < 80
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
    """`requests`, whose only server is the cloud's gateway."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.asked = cloud, list[str]()

    def get(self, url: str) -> Any:
        self.asked.append(url)
        place = urlsplit(url)
        assert place.hostname == self.cloud.rest_apis[0].host
        answer = self.cloud.request("GET", place.path.removeprefix("/v1"))
        return SimpleNamespace(json=answer.json, raise_for_status=lambda: self.check(answer))

    def check(self, answer: Response) -> None:
        assert answer.status < 400, answer.text


@pytest.fixture
def tutorial(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The loop that people copy, word for word."""
    monkeypatch.setitem(__import__("sys").modules, "requests", Requests(cloud))
    namespace: dict[str, Any] = {}
    exec(TUTORIAL, namespace)
    loop: Callable[..., Any] = namespace["wait_for"]
    return loop


class TestTutorial:
    def test_it_waits_for_the_end(self, service: Service, tutorial: Callable[..., Any]) -> None:
        """Copied from anywhere, it works against the `status` link without a key or a change."""
        job = service.job(service.submit())
        service.cloud.clock.call_later(100, service.cloud.settle)
        done = tutorial(job["links"]["status"])
        assert (done["job_id"], done["status"]) == (job["job_id"], "completed")
        assert service.cloud.clock.sleeps[:7] == [1, 2, 4, 8, 16, 32, 60]

    def test_it_says_why_a_job_failed(self, service: Service, tutorial: Callable[..., Any]) -> None:
        """`error` is where such loops look for it."""
        job = service.job(service.submit(" "))
        service.cloud.clock.call_later(5, service.cloud.settle)
        with pytest.raises(RuntimeError, match="empty"):
            tutorial(job["links"]["status"])
