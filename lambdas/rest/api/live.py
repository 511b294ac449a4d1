"""POST /live/tickets: into the WebSocket API without a key in a URL, where it would be logged and remembered."""

from __future__ import annotations

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router

from core import events
from core.dependencies import dependencies
from core.http import answer, caller
from core.models import LiveTicket

router = Router()


@router.post(
    "/live/tickets",
    tags=["following"],
    summary="Let a WebSocket in: one ticket, one connection",
    responses={201: {"description": "Created"}},
)
def create() -> Response[LiveTicket]:
    """A page may have it: it lets in once, within a minute, and only to listen."""
    ticket, expires_at = dependencies.subscriptions.issue_ticket(caller(router, "jobs:read"))
    url = f"{dependencies.settings.live_url}?ticket={ticket}"
    return answer({"ticket": ticket, "url": url, "expires_at": events.timestamp(expires_at)}, status=201)
