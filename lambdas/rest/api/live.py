"""POST /live/tickets. A ticket replaces the API key in a WebSocket's URL, which may be logged."""

from __future__ import annotations

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import BaseModel, Field

from core import events
from core.dependencies import dependencies
from core.http import caller, json_response, key_id
from core.models import Request

router = Router()


class TicketRequest(Request):
    """What the ticket is for."""

    ask: bool = Field(
        False,
        description="Whether the connection may ask questions, which submits jobs. The key needs `jobs:write`.",
    )


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
def create(request: Annotated[TicketRequest | None, Body()] = None) -> Response[LiveTicket]:
    """It is valid once and for a minute. Without `ask` it is for reading only, so any web page may have it."""
    owner, may_ask = caller(router, "jobs:read"), request is not None and request.ask
    if may_ask:
        caller(router, "jobs:write")
    limit = dependencies.settings.max_tickets_per_day
    dependencies.daily_quotas.use(owner, "tickets", limit=limit, what="tickets")
    epoch = dependencies.epochs.to_sign(owner, key_id(router))
    ticket, expires_at = dependencies.subscriptions.issue_ticket(owner, epoch=epoch, may_ask=may_ask)
    url = f"{dependencies.settings.live_url}?ticket={ticket}"
    return json_response({"ticket": ticket, "url": url, "expires_at": events.timestamp(expires_at)}, status=201)
