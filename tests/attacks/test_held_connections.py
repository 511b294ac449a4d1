"""Requests that are held open are limited per job and per owner, by key and by link, for every kind of job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from kinds.registry import KINDS
from tests.kinds.test_suite import DISPATCH, HOOK, WORKER, submit
from tests.simulated_cloud.calls import Killed
from tests.simulated_cloud.rest_api import Response
from tests.support.service import Service
from tests.support.sse import parse

HELD = 15
"""A request took so many seconds: it was held. All ask for 20 or more."""
STREAM = {"Accept": "text/event-stream"}
Knob = Callable[..., None]
Ask = Callable[[Service, str], Response]
EVERY_KIND = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(autouse=True)
def stopped(service: Service) -> None:
    """No job makes progress, so whoever waits for one waits to the end."""
    service.cloud.pause("start_job", WORKER, DISPATCH)


def by_key(service: Service, job_id: str) -> Response:
    return service.call("GET", f"/jobs/{job_id}/status?wait=20")


def by_preference(service: Service, job_id: str) -> Response:
    return service.call("GET", f"/jobs/{job_id}/status", headers={"Prefer": "wait=20"})


def by_link(service: Service, job_id: str) -> Response:
    return get(service, link(service, job_id, "status") + "?wait=20")


def stream(service: Service, job_id: str) -> Response:
    return service.call("GET", f"/jobs/{job_id}/events?after=1", headers=STREAM)


def stream_by_link(service: Service, job_id: str) -> Response:
    return get(service, link(service, job_id, "events") + "?after=1", STREAM)


WAYS: list[Ask] = [by_key, by_preference, by_link, stream, stream_by_link]
EVERY_WAY = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def link(service: Service, job_id: str, name: str) -> str:
    """The path of a public link."""
    return str(service.job(job_id)["links"][name].partition("/v1")[2])


def get(service: Service, path: str, headers: dict[str, str] | None = None) -> Response:
    """Without a key."""
    return service.cloud.request("GET", path, headers=headers)


def timed(service: Service, ask: Callable[[], Response]) -> tuple[Response, float]:
    began = service.cloud.clock.time
    return ask(), service.cloud.clock.time - began


@contextmanager
def during(service: Service, action: Callable[[], Any]) -> Iterator[list[Any]]:
    """Runs the action a second after now, while a request waits. Its result is in the list then."""
    results: list[Any] = []
    service.cloud.clock.call_later(1, lambda: results.append(action()))
    yield results
    assert results


def assert_refused(answer: Response, seconds: float) -> None:
    """It came at once, with the present state, and says when to come again."""
    assert (answer.status, seconds < 1) == (200, True)
    assert int(answer.headers["Retry-After"]) >= 5
    assert "Preference-Applied" not in answer.headers
    if answer.headers["Content-Type"].startswith("text/event-stream"):
        assert parse(answer.text).retry == 1000 * int(answer.headers["Retry-After"])
    else:
        assert answer.json()["status"] == "queued"


def holds(service: Service) -> list[dict[str, Any]]:
    return [item for sk, item in service.rows("OWNER#ana").items() if sk.startswith("HOLD#")]


@EVERY_KIND
@EVERY_WAY
def test_limit_of_a_job(service: Service, knob: Knob, name: str, way: Ask) -> None:
    """While one request for a job waits, the next is answered at once; after it, one may wait again."""
    knob("LongPoll", MAX_HOLDS_PER_JOB=1, MAX_HOLDS_PER_OWNER=9)
    job_id = submit(service, name)
    with during(service, lambda: timed(service, lambda: way(service, job_id))) as inner:
        _, seconds = timed(service, lambda: by_link(service, job_id))
        assert seconds >= HELD
    assert_refused(*inner[0])
    assert holds(service) == []
    assert timed(service, lambda: way(service, job_id))[1] >= HELD


@EVERY_KIND
@EVERY_WAY
def test_limit_of_an_owner(service: Service, knob: Knob, name: str, way: Ask) -> None:
    """The jobs of an owner share the owner's limit. Another owner's requests wait as ever."""
    knob("LongPoll", MAX_HOLDS_PER_JOB=9, MAX_HOLDS_PER_OWNER=1)
    first, second = submit(service, name), submit(service, name)
    ben = Service(service.cloud, owner="ben")
    job_of_ben = ben.submit()
    with during(service, lambda: timed(service, lambda: way(service, second))) as inner:
        way(service, first)
    assert_refused(*inner[0])
    with during(service, lambda: timed(service, lambda: way(ben, job_of_ben))) as inner:
        way(service, first)
    assert inner[0][1] >= HELD


def test_public_link(service: Service, knob: Knob) -> None:
    """However many use one public link, no more than the limit wait; all get the present state."""
    knob("LongPoll", MAX_HOLDS_PER_JOB=3, MAX_HOLDS_PER_OWNER=4)
    url = link(service, service.submit(), "status") + "?wait=20"
    answers: list[tuple[Response, float]] = []
    for number in range(30):
        ask = partial(timed, service, partial(get, service, url))
        service.cloud.clock.call_later(0.1 * number, lambda ask=ask: answers.append(ask()))
    service.cloud.advance(60)
    held = [seconds for _, seconds in answers if seconds >= HELD]
    assert (len(answers), len(held)) == (30, 3)
    assert all(answer.json()["status"] == "queued" for answer, _ in answers)


def test_tests_of_webhooks(service: Service, knob: Knob) -> None:
    """Beyond the limit a test of an endpoint is sent all the same, and answered at once with where to look."""
    knob("LongPoll", MAX_HOLDS_PER_JOB=1, MAX_HOLDS_PER_OWNER=9)
    made = service.call("POST", "/webhooks", json={"url": HOOK, "events": ["*"]}).json()
    path = f"/webhooks/{made['webhook_id']}/test"
    with during(service, lambda: timed(service, lambda: service.call("POST", path))) as inner:
        assert timed(service, lambda: service.call("POST", path))[1] >= HELD
    ((answer, seconds),) = inner
    assert (answer.status, seconds < 1, answer.headers["Retry-After"]) == (202, True, "1")
    assert answer.headers["Location"].endswith(answer.json()["delivery_id"])
    assert len(service.call("GET", "/webhooks/events").json()["events"]) == 2


def test_killed_function(service: Service, knob: Knob) -> None:
    """A function that is killed while a request waits holds its place until the wait would be over."""
    knob("LongPoll", MAX_HOLDS_PER_JOB=1)
    job_id = service.submit()
    service.cloud.fail("dynamodb", "DeleteItem", Killed, function="long_poll")
    by_key(service, job_id)
    (lease,) = holds(service)
    left = float(lease["expires_at"]) - service.cloud.clock.time
    assert 0 < left <= 7
    assert_refused(*timed(service, lambda: by_key(service, job_id)))
    service.cloud.clock.advance(left)
    assert timed(service, lambda: by_key(service, job_id))[1] >= HELD


@pytest.mark.parametrize(
    ("path", "headers"),
    [("status", {}), ("status?wait=20", {"If-None-Match": '"other"'}), ("events", STREAM), ("events?after=1", {})],
)
def test_no_place_is_taken_in_vain(service: Service, path: str, headers: dict[str, str]) -> None:
    """A request that need not wait writes nothing, and reads no more than the job or its log."""
    job_id = service.submit()
    before = len(service.cloud.calls.of("long_poll"))
    assert service.call("GET", f"/jobs/{job_id}/{path}", headers=headers).status == 200
    made = service.cloud.calls.of("long_poll")[before:]
    assert {call.operation for call in made} <= {"Query", "GetItem"}
    assert not any("HOLD" in str(call.params) for call in made)
