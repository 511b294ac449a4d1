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
from core.live.subscriptions import TICKET_SECONDS, Ticket
from tests.unit.http_calls import Answer

Api = Callable[..., Answer]


@pytest.mark.parametrize("body", [None, {}])
def test_ticket(api: Api, deployed: Dependencies, body: Any) -> None:
    """A ticket has the WebSocket URL and its expiry, and is valid once."""
    answer = api("POST", "/live/tickets", body)
    assert answer.status == 201
    assert set(answer.json) == {"ticket", "url", "expires_at"}
    lifetime = datetime.fromisoformat(answer.json["expires_at"]).timestamp() - time.time()
    assert TICKET_SECONDS - 5 < lifetime <= TICKET_SECONDS
    place = urlsplit(answer.json["url"])
    assert f"{place.scheme}://{place.netloc}{place.path}" == deployed.settings.live_url
    assert parse_qsl(place.query, strict_parsing=True) == [("ticket", answer.json["ticket"])]
    assert deployed.subscriptions.redeem_ticket(answer.json["ticket"]) == Ticket(
        owner="ana", epoch=0, may_ask=False
    )
    with pytest.raises(Forbidden):
        deployed.subscriptions.redeem_ticket(answer.json["ticket"])
