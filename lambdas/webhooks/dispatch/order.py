"""Endpoints that want a job's events in order: a delivery waits until the one before it has ended.

The price: one more read of the job's log and one more write per delivery, and one attempt at a time per job.
"""

from __future__ import annotations

from core.dependencies import dependencies
from core.events import Event
from core.webhooks.deliveries.store import Delivery, delivery_id
from core.webhooks.endpoints.store import Endpoint
from webhooks.dispatch.outbox import deliver, wants


def deliver_in_order(event: Event, endpoint: Endpoint) -> list[Delivery]:
    """Write this event's delivery and those before it that are not written yet, each behind its predecessor.

    Messages come in any order, so an event can be here before those that precede it. Returns those that wait for
    nothing.
    """
    chain = _unwritten(event, endpoint)
    predecessor = _predecessor(chain[0], endpoint)
    ready = []
    for link in chain:
        follows = predecessor and delivery_id(predecessor.event_id, endpoint.endpoint_id)
        delivery = deliver(link, endpoint, follows=follows)
        if not waits(delivery):
            ready.append(delivery)
        predecessor = link
    return ready


def _unwritten(event: Event, endpoint: Endpoint) -> list[Event]:
    """This event, and before it those that the endpoint wants and has no delivery of, oldest first."""
    chain = [event]
    while (earlier := _predecessor(chain[0], endpoint)) and not dependencies.deliveries.get(
        delivery_id(earlier.event_id, endpoint.endpoint_id)
    ):
        chain.insert(0, earlier)
    return chain


def _predecessor(event: Event, endpoint: Endpoint) -> Event | None:
    """The last event before this one that the endpoint wants, of those that happened since it exists."""
    if event.job_id is None or event.sequence is None:
        return None
    for earlier in dependencies.jobs.events_before(event.job_id, event.sequence):
        if earlier.timestamp < endpoint.created_at:
            return None
        if wants(endpoint, earlier):
            return earlier
    return None


def waits(delivery: Delivery) -> bool:
    """Have the one before it wake it when that ends; False where there is none, or none to wait for."""
    return delivery.follows is not None and dependencies.deliveries.link(delivery.follows, delivery.delivery_id)
