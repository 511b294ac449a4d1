"""Routes that show deliveries, an endpoint's or a single one, and send one again."""

from __future__ import annotations

import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from core.dependencies import dependencies
from core.errors import Conflict, InvalidRequest, NotFound
from core.http import answer, caller, root_url
from core.webhooks import views
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.store import MISSING, Delivery, is_delivery_id
from core.webhooks.endpoints import patterns
from core.webhooks.models import DeliveryPage, DeliveryStatus, DeliverySummary, DeliveryView, Moment
from kinds.registry import KINDS
from rest.api.jobs import ACCEPTED

router = Router()
DeliveryId = Annotated[str, Path(description="From a list of deliveries.")]
_PLACE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z#(\w+)", re.ASCII)


@router.get("/webhooks/<webhook_id>/deliveries", tags=["webhooks"], summary="What was sent, newest first")
def page(
    webhook_id: Annotated[str, Path(description="The id that POST /webhooks answered, or `default`.")],
    status: Annotated[DeliveryStatus | None, Query()] = None,
    event: Annotated[str | None, Query(description="The name of an event, such as `ping`.")] = None,
    since: Annotated[Moment | None, Query(description="RFC 3339, with any offset")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(description="From the page before")] = None,
) -> Response[DeliveryPage]:
    """A page can be short, or empty, and have a cursor all the same, where few of many are wanted."""
    owner = caller(router, "webhooks:read")
    known = (*patterns.event_names(KINDS.values()), patterns.PING)
    if event is not None and event not in known:
        raise InvalidRequest(f"event: choose from {', '.join(known)}", field="event")
    endpoint = dependencies.endpoints.get(owner, webhook_id)
    place = None if cursor is None else _place(cursor)
    found, following = dependencies.deliveries.page(
        owner, endpoint.endpoint_id, status=status, event=event, since=since, cursor=place, limit=limit
    )
    root = root_url(router)
    summaries = [views.delivery_summary(delivery, root) for delivery in found]
    return answer({"deliveries": summaries, "cursor": following and _cursor(following)})


@router.get("/deliveries/<delivery_id>", tags=["webhooks"], summary="One delivery, with every attempt")
def get(delivery_id: DeliveryId) -> Response[DeliveryView]:
    owner = caller(router, "webhooks:read")
    delivery, attempts = dependencies.deliveries.with_attempts(_well_formed(delivery_id), owner=owner)
    return answer(views.delivery_view(delivery, attempts, root_url(router)))


@router.post(
    "/deliveries/<delivery_id>/redeliver",
    tags=["webhooks"],
    summary="Send the same bytes once more, now",
    responses=ACCEPTED,
)
def redeliver(delivery_id: DeliveryId) -> Response[DeliverySummary]:
    """Also to a disabled endpoint. If it succeeds, an automatic retry that is still to come is canceled."""
    delivery = _find(delivery_id, caller(router, "webhooks:write"))
    if dependencies.endpoints.find(delivery.owner, delivery.endpoint_id) is None:
        raise Conflict("The endpoint of this delivery was deleted, so there is no secret to sign with.")
    if delivery.lease_until > time.time():
        raise Conflict("An attempt is being made at this moment. See what it comes to, and ask again.")
    dependencies.webhooks_queue.send(Message.of(delivery, manual=True))
    body = views.delivery_summary(delivery, root_url(router))
    return answer(body, status=202, headers={"Location": f"../{delivery.delivery_id}"})


def _find(delivery_id: str, owner: str) -> Delivery:
    delivery = dependencies.deliveries.get(_well_formed(delivery_id), owner=owner)
    if delivery is None:
        raise NotFound(MISSING)
    return delivery


def _well_formed(delivery_id: str) -> str:
    if not is_delivery_id(delivery_id):
        raise NotFound(MISSING)
    return delivery_id


def _cursor(place: str) -> str:
    return urlsafe_b64encode(place.encode()).decode().rstrip("=")


def _place(cursor: str) -> str:
    """The sort key in a cursor. It opens nothing: it is looked up among the caller's own."""
    try:
        place = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError:
        place = ""
    match = _PLACE.fullmatch(place)
    if not match or not is_delivery_id(match[1]) or _cursor(place) != cursor:
        raise InvalidRequest("This is not a cursor of an earlier page.", field="cursor")
    return place
