"""Ordered endpoints, which get the events of a job in order: a delivery waits until the one before it has ended.

This costs one more read of the job's log and one more write per delivery, and allows one attempt at a time per
job.
"""

from __future__ import annotations

from core.dependencies import dependencies
from core.events import Event
from core.webhooks.deliveries.model import Delivery, delivery_id
from core.webhooks.endpoints.model import Endpoint
from webhooks.dispatch.outbox import Created, deliver, wants


def deliver_in_order(event: Event, endpoint: Endpoint) -> list[Created]:
    """Write this event's delivery, and those of earlier events that are missing, each linked to its predecessor.

    They can be missing because messages arrive in any order.
    """
    chain = _undelivered(event, endpoint)
    predecessor = _predecessor(chain[0], endpoint)
    created = []
    for link in chain:
        follows = predecessor and delivery_id(predecessor.event_id, endpoint.endpoint_id)
        delivery = deliver(link, endpoint, follows=follows)
        created.append((delivery, link_to_predecessor(delivery)))
        predecessor = link
    return created


def _undelivered(event: Event, endpoint: Endpoint) -> list[Event]:
    """The events up to this one that the endpoint wants and that have no delivery, oldest first."""
    chain = [event]
    while (earlier := _predecessor(chain[0], endpoint)) and not dependencies.deliveries.get(
        delivery_id(earlier.event_id, endpoint.endpoint_id)
    ):
        chain.insert(0, earlier)
    return chain


def _predecessor(event: Event, endpoint: Endpoint) -> Event | None:
    """The last event of the job before this one that the endpoint wants; none from before the endpoint existed."""
    if event.job_id is None or event.sequence is None:
        return None
    for earlier in dependencies.jobs.log.read_backwards(event.job_id, before=event.sequence):
        if earlier.timestamp < endpoint.created_at:
            return None
        if wants(endpoint, earlier):
            return earlier
    return None


def link_to_predecessor(delivery: Delivery) -> bool:
    """Have the delivery queued when its predecessor ends; False if it has none, or if that has ended."""
    return delivery.follows is not None and dependencies.deliveries.link(delivery.follows, delivery.delivery_id)
