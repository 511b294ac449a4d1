"""POST /webhooks/{webhook_id}/test: sends a ping and returns the endpoint's response."""

from __future__ import annotations

import time
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Path

from core.dependencies import dependencies
from core.errors import Conflict
from core.http import caller, json_response, root_url
from core.webhooks import views
from core.webhooks.deliveries.model import Delivery, delivery_id
from core.webhooks.models import DeliveryView, PingPending
from rest.long_poll.polling import until_ended

PING_MESSAGE = "This is a test. Your endpoint works if it responds with a 2xx status."
router = Router()


@router.post(
    "/webhooks/<webhook_id>/test",
    tags=["webhooks"],
    summary="Send a ping and return the endpoint's response",
    responses={
        200: {"description": "The attempt has ended", "content": {"application/json": {"model": DeliveryView}}},
        202: {
            "description": "The attempt has not ended yet",
            "content": {"application/json": {"model": PingPending}},
        },
    },
)
def ping(webhook_id: Annotated[str, Path()]) -> Response[DeliveryView | PingPending]:
    """The ping is delivered as every event is, in one attempt, and also to a disabled endpoint.

    The response is not waited for if you have too many requests that wait: then it is a 202.
    """
    owner = caller(router, "webhooks:write")
    endpoint = dependencies.endpoints.get(owner, webhook_id)
    if endpoint.is_default:
        raise Conflict("The default endpoint has no URL to call: each job has its own.")
    event_id = dependencies.owner_log.append(owner, "ping", endpoint_id=webhook_id, message=PING_MESSAGE)
    identifier = delivery_id(event_id, webhook_id)

    def read() -> Delivery | None:
        return dependencies.deliveries.get(identifier)

    seconds = dependencies.settings.wait_seconds_max
    hold = dependencies.holds.of(owner, webhook_id, seconds=seconds)
    ended = until_ended(read, seconds, hold=hold, clock=time.monotonic, sleep=time.sleep)
    root = root_url(router)
    if not ended:
        links = views.delivery_links(identifier, root)
        headers = {"Location": f"../../deliveries/{identifier}", "Retry-After": "1"}
        return json_response({"delivery_id": identifier, "links": links}, status=202, headers=headers)
    delivery, attempts = dependencies.deliveries.with_attempts(identifier, owner=owner)
    return json_response(views.delivery_view(delivery, attempts, root))
