"""POST /live/tickets (rest.api.live)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from core.dependencies import Dependencies
from core.errors import Forbidden
from core.live.subscriptions import TICKET_SECONDS
from tests.unit.http_calls import Answer, problem

Api = Callable[..., Answer]


def lifetime(answer: Answer) -> float:
    return datetime.fromisoformat(answer.json["expires_at"]).timestamp() - time.time()


@pytest.mark.parametrize("body", [None, {}])
def test_ticket(api: Api, deployed: Dependencies, body: Any) -> None:
    """A ticket has the WebSocket URL and its expiry, and is valid once."""
    answer = api("POST", "/live/tickets", body)
    assert answer.status == 201
    assert set(answer.json) == {"ticket", "url", "expires_at"}
    assert TICKET_SECONDS - 5 < lifetime(answer) <= TICKET_SECONDS
    place = urlsplit(answer.json["url"])
    assert f"{place.scheme}://{place.netloc}{place.path}" == deployed.settings.live_url
    assert parse_qsl(place.query, strict_parsing=True) == [("ticket", answer.json["ticket"])]
    assert deployed.subscriptions.redeem_ticket(answer.json["ticket"]) == ("ana", 0)
    with pytest.raises(Forbidden):
        deployed.subscriptions.redeem_ticket(answer.json["ticket"])


def test_owner_of_ticket(api: Api, deployed: Dependencies) -> None:
    """A ticket is for the owner of the request, and no two are equal."""
    tickets = {owner: api("POST", "/live/tickets", owner=owner).json["ticket"] for owner in ("ana", "ben")}
    assert len(set(tickets.values())) == 2
    assert {owner: deployed.subscriptions.redeem_ticket(ticket)[0] for owner, ticket in tickets.items()} == {
        "ana": "ana",
        "ben": "ben",
    }


def test_ticket_is_not_cached(api: Api) -> None:
    """The response is not cached."""
    assert api("POST", "/live/tickets").headers["cache-control"] == "no-store"


def test_scope(api: Api) -> None:
    """A ticket needs the scope to read."""
    problem(
        api("POST", "/live/tickets", scopes="jobs:write search webhooks:read webhooks:write"), 403, "forbidden"
    )
    assert api("POST", "/live/tickets", scopes="jobs:read").status == 201


def test_only_by_post(api: Api) -> None:
    """Other methods are refused."""
    assert api("GET", "/live/tickets").status in (404, 405)
