"""Erases the deliveries of a deleted job. Their rows stay until they expire, without the payload."""

from __future__ import annotations

from collections.abc import Collection

from core.webhooks.deliveries.model import delivery_id
from core.webhooks.deliveries.store import DeliveryStore
from core.webhooks.endpoints.store import Endpoints


class Erasure:
    """Finds the deliveries of events by their ids: an event has one for each endpoint that wanted it."""

    def __init__(self, deliveries: DeliveryStore, endpoints: Endpoints) -> None:
        self._deliveries, self._endpoints = deliveries, endpoints

    def erase(self, owner: str, event_ids: Collection[str]) -> set[str]:
        """Cancel the open deliveries of these events, and delete the payloads of all.

        Returns the ids of the events with an attempt in progress: call it again for them after the attempt.
        """
        endpoint_ids = self._endpoints.ids(owner)
        events = {delivery_id(event, endpoint): event for event in event_ids for endpoint in endpoint_ids}
        found = self._deliveries.read_all(list(events))
        return {events[each.delivery_id] for each in found if not self._deliveries.erase(each)}
