"""Endpoints and deliveries as their owner sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from core import events
from core.webhooks.deliveries.health import Health
from core.webhooks.deliveries.model import HOST_PREFIX, Attempt, Delivery
from core.webhooks.endpoints.headers import MASK
from core.webhooks.endpoints.model import Endpoint, Key


def webhook(
    endpoint: Endpoint, health: Health | None, host_health: Health | None, *, root: str, now: float
) -> dict[str, Any]:
    """An endpoint without its secrets and the values of its headers. The default one has no health."""
    shown = (
        *("url", "filter", "description", "rate_limit", "format", "ordered", "signing"),
        *("enabled", "disabled_reason", "disabled_at", "created_at", "updated_at"),
    )
    current, *old = endpoint.valid_keys(now)
    return {name: getattr(endpoint, name) for name in shown} | {
        "webhook_id": endpoint.endpoint_id,
        "events": list(endpoint.events),
        "headers": dict.fromkeys(endpoint.headers, MASK),
        "failing_since": health.failing_since if health else None,
        "circuit": _circuit(health) if health else None,
        "host_circuit": _circuit(host_health) if host_health else None,
        "counters": _counters(health) if health else None,
        "old_secrets": [{"expires_at": _expiry(key)} for key in old],
        "public_key": current.public,
        "links": _webhook_links(endpoint, root),
    }


def public_keys(endpoint: Endpoint, *, now: float) -> list[dict[str, Any]]:
    """The keys that verify now, the current one first."""
    return [
        {"public_key": key.public, "current": key.expires_at is None, "expires_at": _expiry(key)}
        for key in endpoint.valid_keys(now)
    ]


def delivery_summary(delivery: Delivery, root: str) -> dict[str, Any]:
    """A delivery in a list."""
    return _delivery(delivery, root) | {
        "last_attempt": asdict(delivery.last_attempt) if delivery.last_attempt else None
    }


def delivery_view(delivery: Delivery, attempts: Sequence[Attempt], root: str) -> dict[str, Any]:
    """A delivery with all its attempts and its payload."""
    return _delivery(delivery, root) | {
        "attempts": [asdict(attempt) for attempt in attempts],
        "payload": delivery.body,
    }


def delivery_links(delivery_id: str, root: str) -> dict[str, str]:
    return {"self": f"{root}/deliveries/{delivery_id}"}


def _delivery(delivery: Delivery, root: str) -> dict[str, Any]:
    """Without internal fields: leases, index entries, order."""
    shown = ("delivery_id", "event", "event_id", "job_id", "sequence", "format", "status", "created_at")
    return {name: getattr(delivery, name) for name in shown} | {
        "webhook_id": delivery.endpoint_id,
        "attempt_count": delivery.attempts,
        "next_attempt_at": events.timestamp(delivery.due) if delivery.status == "pending" else None,
        "waits_for": _waits_for(delivery),
        "expires_at": events.timestamp(delivery.expires_at),
        "links": delivery_links(delivery.delivery_id, root),
    }


def _waits_for(delivery: Delivery) -> str | None:
    if delivery.held_by is None:
        return None
    return "host_circuit" if delivery.held_by.startswith(HOST_PREFIX) else "circuit"


def _webhook_links(endpoint: Endpoint, root: str) -> dict[str, str]:
    here = f"{root}/webhooks/{endpoint.endpoint_id}"
    return {"self": here, "deliveries": f"{here}/deliveries"}


def _circuit(health: Health) -> dict[str, Any]:
    return {"state": health.state, "next_probe_at": health.next_check_at if health.is_open else None}


def _counters(health: Health) -> dict[str, Any]:
    shown = ("attempts", "delivered", "failed", "consecutive_failures", "last_success_at", "last_failure_at")
    return {name: getattr(health, name) for name in shown}


def _expiry(key: Key) -> str | None:
    return None if key.expires_at is None else events.timestamp(key.expires_at)
