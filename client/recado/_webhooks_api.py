"""The methods of `client.webhooks`, written once for both clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from recado._http import HttpApi, as_list, new_idempotency_key, without_none
from recado._operations import iteration, operation
from recado._pagination import items, pages
from recado.models import Delivery, Job, Pending, Webhook

TEST_TIMEOUT_SECONDS = 40.0
"""The service waits up to 25 s for the endpoint's response to a test."""


class WebhookOperations:
    """Webhook endpoints and their deliveries."""

    def __init__(self, api: HttpApi) -> None:
        self._api = api

    @operation
    async def add(self, /, url: str, events: Sequence[str] = ("*",), **options: Any) -> Webhook:
        """Create an endpoint. The response contains the `secret`, which is not shown again.

        `events` are names, `<kind>.*`, `*.<verb>` or `*`. Options: `filter`, `description`, `headers`,
        `rate_limit`, `format`, `ordered`, `signing`, `secret`.
        """
        body = {"url": url, "events": list(events), **options}
        return Webhook.of(await self._api.json("POST", "/webhooks", body=body, idempotent=False))

    @operation
    async def list(self) -> tuple[Webhook, ...]:
        """All endpoints, the oldest first."""
        return items(await self._api.json("GET", "/webhooks"), "webhooks", Webhook)

    @operation
    async def get(self, webhook_id: str) -> Webhook:
        """One endpoint. `default` is the endpoint of the `webhook_url` of jobs."""
        return Webhook.of(await self._api.json("GET", _path(webhook_id)), webhook_id=webhook_id)

    @operation
    async def change(self, /, webhook_id: str, **changes: Any) -> Webhook:
        """Change fields: `url`, `events`, `enabled`, … None clears `filter`, `headers`, `rate_limit`."""
        return Webhook.of(await self._api.json("PATCH", _path(webhook_id), body=changes), webhook_id=webhook_id)

    @operation
    async def delete(self, webhook_id: str) -> None:
        """Delete the endpoint. Its pending deliveries are canceled."""
        await self._api.json("DELETE", _path(webhook_id), already_done_status=404)

    @operation
    async def rotate(
        self, webhook_id: str, *, grace_seconds: int | None = None, secret: str | None = None
    ) -> Webhook:
        """Create a new `secret`, which is not shown again.

        For `grace_seconds` (one day by default) requests are signed with the old secret as well.
        """
        body, path = without_none({"grace_seconds": grace_seconds, "secret": secret}), _path(webhook_id)
        rotated = await self._api.json("POST", f"{path}/rotate-secret", body=body, idempotent=False)
        return Webhook.of(rotated, webhook_id=webhook_id)

    @operation
    async def test(self, webhook_id: str) -> Delivery | Pending:
        """Send a ping and return the endpoint's response. Pending if the response takes longer than 25 s."""
        path = f"{_path(webhook_id)}/test"
        result = await self._api.json("POST", path, timeout=TEST_TIMEOUT_SECONDS, idempotent=False)
        return Delivery.of(result, webhook_id=webhook_id) if "status" in result else Pending.of(result)

    @iteration
    async def deliveries(
        self,
        webhook_id: str,
        *,
        status: str | None = None,
        event: str | None = None,
        since: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[Delivery, None]:
        """Deliveries, the newest first: all or the first `limit`. Pages are requested when they are needed."""
        query, path = {"status": status, "event": event, "since": since}, f"{_path(webhook_id)}/deliveries"
        async with aclosing(
            pages(self._api, path, "deliveries", Delivery, query, limit, webhook_id=webhook_id)
        ) as found:
            async for delivery in found:
                yield delivery

    @operation
    async def delivery(self, delivery_id: str) -> Delivery:
        """One delivery with all attempts and the exact body that was sent."""
        path = f"/deliveries/{quote(delivery_id, safe='')}"
        return Delivery.of(await self._api.json("GET", path), delivery_id=delivery_id)

    @operation
    async def redeliver(self, delivery_id: str) -> Delivery:
        """Send the same body again, now."""
        path = f"/deliveries/{quote(delivery_id, safe='')}/redeliver"
        return Delivery.of(await self._api.json("POST", path, idempotent=False), delivery_id=delivery_id)

    @operation
    async def recover(
        self,
        webhook_id: str,
        *,
        since: str,
        until: str | None = None,
        status: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Send the failed and discarded deliveries of a period (RFC 3339) again. Returns the job that does it."""
        body = without_none({"since": since, "until": until, "status": as_list(status)})
        return await self._submit(f"{_path(webhook_id)}/recover", body, idempotency_key)

    @operation
    async def replay(
        self,
        webhook_id: str,
        *,
        since: str,
        until: str | None = None,
        events: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Send all events of a period (RFC 3339), whether sent before or not. Returns the job that does it."""
        body = without_none({"since": since, "until": until, "events": as_list(events)})
        return await self._submit(f"{_path(webhook_id)}/replay", body, idempotency_key)

    async def _submit(self, path: str, body: dict[str, Any], idempotency_key: str | None) -> Job:
        key = new_idempotency_key(idempotency_key)
        return Job.of(await self._api.json("POST", path, body=body, idempotency_key=key))


def _path(webhook_id: str) -> str:
    return f"/webhooks/{quote(webhook_id, safe='')}"
