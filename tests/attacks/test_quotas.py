"""What an owner may have, or use in a day, is limited: endpoints, uploads and tickets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulated_cloud.rest_api import Response
from tests.support.problems import assert_problem
from tests.support.service import Service

DAY = 86_400.0
Knob = Callable[..., None]


def upload(service: Service, *, parts: bool = False, **facts: Any) -> Response:
    asked = {"filename": "a.pdf", "content_type": "application/pdf", "size": 10, "parts": parts}
    return service.call("POST", "/uploads", json=asked | facts)


def upload_in_parts(service: Service) -> Response:
    return upload(service, parts=True)


def ticket(service: Service) -> Response:
    return service.call("POST", "/live/tickets")


@pytest.mark.parametrize(
    ("ask", "variable", "what"),
    [
        (upload, "MAX_UPLOADS_PER_DAY", "uploads"),
        (upload_in_parts, "MAX_UPLOADS_PER_DAY", "uploads"),
        (ticket, "MAX_TICKETS_PER_DAY", "tickets"),
    ],
)
def test_quota_of_a_day(
    service: Service, knob: Knob, ask: Callable[[Service], Response], variable: str, what: str
) -> None:
    """Beyond the quota, 429 until midnight UTC. Other owners have their own."""
    knob("Api", **{variable: 3})
    assert [ask(service).status for _ in range(3)] == [201] * 3
    for _ in range(2):
        answer = ask(service)
        detail = assert_problem(answer, 429, "quota_exceeded")["detail"]
        assert detail.startswith(f"You have made 3 {what} today, which is the limit of a day (UTC).")
        left = int(answer.headers["Retry-After"])
        assert left == pytest.approx(DAY - service.cloud.clock.time % DAY, abs=2)
    assert ask(Service(service.cloud, owner="ben")).status == 201
    service.cloud.clock.advance(left)
    service.cloud.bus.skip_ticks()
    assert [ask(service).status for _ in range(4)] == [201, 201, 201, 429]


def test_refused_uploads_do_not_count(service: Service, knob: Knob) -> None:
    """A request that is refused for another reason uses nothing of the quota."""
    knob("Api", MAX_UPLOADS_PER_DAY=1)
    assert upload(service, size=10**9).status == 413
    assert upload(service, size=0).status == 422
    assert upload(service).status == 201


def test_both_forms_of_upload_share_the_quota(service: Service, knob: Knob) -> None:
    """An upload counts once, in one piece or in parts, and also if it is aborted."""
    knob("Api", MAX_UPLOADS_PER_DAY=2)
    begun = upload_in_parts(service).json()
    assert service.call("DELETE", f"/uploads/{begun['upload_id']}").status == 204
    assert [upload(service).status, upload_in_parts(service).status] == [201, 429]


def test_endpoints(service: Service, knob: Knob) -> None:
    """Each endpoint but `default` counts until it is deleted. The problem says so."""
    knob("Api", MAX_WEBHOOKS=2)
    service.submit(webhook_url="https://hooks.example.com/job")  # makes `default`
    asked = {"url": "https://hooks.example.com/in", "events": ["*"]}
    made = [service.call("POST", "/webhooks", json=asked) for _ in range(3)]
    assert [answer.status for answer in made] == [201, 201, 409]
    assert (
        "Each counts until it is deleted, except `default`" in assert_problem(made[2], 409, "conflict")["detail"]
    )
    service.call("DELETE", f"/webhooks/{made[0].json()['webhook_id']}")
    assert service.call("POST", "/webhooks", json=asked).status == 201
