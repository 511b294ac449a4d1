"""Routes that list and show deliveries, and redeliver one."""

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
from core.http import caller, json_response, root_url
from core.webhooks import views
from core.webhooks.deliveries.model import Delivery, is_delivery_id
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.store import NO_SUCH_DELIVERY
from core.webhooks.endpoints import patterns
from core.webhooks.models import DeliveryPage, DeliveryStatus, DeliverySummary, DeliveryView, Moment
from kinds.registry import KINDS
from rest.api.jobs import ACCEPTED

router = Router()
DeliveryId = Annotated[str, Path(description="From a list of deliveries.")]
_SORT_KEY = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z#(\w+)", re.ASCII)


@router.get(
    "/webhooks/<webhook_id>/deliveries", tags=["webhooks"], summary="An endpoint's deliveries, newest first"
)
def page(
    webhook_id: Annotated[str, Path(description="The id from POST /webhooks, or `default`.")],
    status: Annotated[DeliveryStatus | None, Query()] = None,
    event: Annotated[str | None, Query(description="The name of an event, such as `ping`.")] = None,
    since: Annotated[Moment | None, Query(description="RFC 3339, with any offset")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(description="From the previous page")] = None,
) -> Response[DeliveryPage]:
    """With a filter that few deliveries match, a page can be short or empty and still have a cursor."""
    owner = caller(router, "webhooks:read")
    known = (*patterns.event_names(KINDS.values()), patterns.PING)
    if event is not None and event not in known:
        raise InvalidRequest(f"event: use one of {', '.join(known)}", field="event")
    endpoint = dependencies.endpoints.get(owner, webhook_id)
    sort_key = None if cursor is None else _sort_key(cursor)
    found, following = dependencies.delivery_index.page(
        owner, endpoint.endpoint_id, status=status, event=event, since=since, cursor=sort_key, limit=limit
    )
    root = root_url(router)
    summaries = [views.delivery_summary(delivery, root) for delivery in found]
    return json_response({"deliveries": summaries, "cursor": following and _cursor(following)})


@router.get("/deliveries/<delivery_id>", tags=["webhooks"], summary="One delivery with all attempts")
def get(delivery_id: DeliveryId) -> Response[DeliveryView]:
    owner = caller(router, "webhooks:read")
    delivery, attempts = dependencies.deliveries.with_attempts(_checked_id(delivery_id), owner=owner)
    return json_response(views.delivery_view(delivery, attempts, root_url(router)))


@router.post(
    "/deliveries/<delivery_id>/redeliver",
    tags=["webhooks"],
    summary="Send the same bytes again now",
    responses=ACCEPTED,
)
def redeliver(delivery_id: DeliveryId) -> Response[DeliverySummary]:
    """Even to a disabled endpoint. If the attempt succeeds, no retry follows."""
    delivery = _find(delivery_id, caller(router, "webhooks:write"))
    if dependencies.endpoints.find(delivery.owner, delivery.endpoint_id) is None:
        raise Conflict("The endpoint of this delivery was deleted, so no secret can sign it.")
    if delivery.is_erased:
        raise Conflict("The job of this delivery was deleted, and the payload with it.")
    if delivery.lease_until > time.time():
        raise Conflict("An attempt is in progress. Wait for its result and try again.")
    dependencies.webhooks_queue.send(Message.of(delivery, manual=True))
    body = views.delivery_summary(delivery, root_url(router))
    return json_response(body, status=202, headers={"Location": f"../{delivery.delivery_id}"})


def _find(delivery_id: str, owner: str) -> Delivery:
    delivery = dependencies.deliveries.get(_checked_id(delivery_id), owner=owner)
    if delivery is None:
        raise NotFound(NO_SUCH_DELIVERY)
    return delivery


def _checked_id(delivery_id: str) -> str:
    if not is_delivery_id(delivery_id):
        raise NotFound(NO_SUCH_DELIVERY)
    return delivery_id


def _cursor(sort_key: str) -> str:
    return urlsafe_b64encode(sort_key.encode()).decode().rstrip("=")


def _sort_key(cursor: str) -> str:
    """The sort key in a cursor. It gives no access: the query is limited to the caller's deliveries."""
    try:
        sort_key = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError:
        sort_key = ""
    match = _SORT_KEY.fullmatch(sort_key)
    if not match or not is_delivery_id(match[1]) or _cursor(sort_key) != cursor:
        raise InvalidRequest("This is not a cursor from an earlier page.", field="cursor")
    return sort_key
