"""POST /live/tickets. A ticket replaces the API key in a WebSocket's URL, which may be logged."""

from __future__ import annotations

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from pydantic import BaseModel, Field

from core import events
from core.dependencies import dependencies
from core.http import caller, json_response, key_id

router = Router()


class LiveTicket(BaseModel):
    """A ticket for one WebSocket connection."""

    ticket: str
    url: str = Field(description="The WebSocket URL, which contains the ticket.")
    expires_at: str


@router.post(
    "/live/tickets",
    tags=["following"],
    summary="Get a ticket for one WebSocket connection",
    responses={201: {"description": "Created"}},
)
def create() -> Response[LiveTicket]:
    """It is valid once, for a minute and for reading only, so a web page may have it."""
    owner = caller(router, "jobs:read")
    limit = dependencies.settings.max_tickets_per_day
    dependencies.daily_quotas.use(owner, "tickets", limit=limit, what="tickets")
    epoch = dependencies.epochs.to_sign(owner, key_id(router))
    ticket, expires_at = dependencies.subscriptions.issue_ticket(owner, epoch=epoch)
    url = f"{dependencies.settings.live_url}?ticket={ticket}"
    return json_response({"ticket": ticket, "url": url, "expires_at": events.timestamp(expires_at)}, status=201)
