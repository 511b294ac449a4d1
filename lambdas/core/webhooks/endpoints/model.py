"""Endpoints: where an owner's webhooks go, and the keys that sign them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.errors import Conflict, NotFound

DEFAULT = "default"
"""The id of the endpoint with the secret for every `webhook_url` of the owner's jobs. It has no URL of its own."""

MAX_OLD_KEYS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An encrypted signing key. `expires_at` (epoch seconds) is set after a rotation has replaced it."""

    encrypted: bytes
    public: str | None = None
    expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint. `keys`: the current one first.

    `filter` is a payload filter (`endpoints.filters`), `rate_limit` is in requests per second. `headers` are the
    names of the caller's own headers; their values are in `encrypted_headers`.
    """

    endpoint_id: str
    owner: str
    keys: tuple[Key, ...]
    created_at: str
    updated_at: str
    version: int = 1
    url: str | None = None
    events: tuple[str, ...] = ()
    filter: Mapping[str, Any] | None = None
    description: str = ""
    headers: tuple[str, ...] = ()
    encrypted_headers: bytes | None = None
    rate_limit: float | None = None
    format: str = "recado"
    signing: str = "hmac"
    ordered: bool = False
    enabled: bool = True
    disabled_reason: str | None = None
    disabled_at: str | None = None

    @property
    def is_default(self) -> bool:
        return self.endpoint_id == DEFAULT

    def valid_keys(self, now: float) -> list[Key]:
        """The current key, and the old ones that have not expired. A key is invalid from `expires_at` on."""
        return [key for key in self.keys if key.expires_at is None or key.expires_at > now]


def rotated(endpoint: Endpoint, key: Key, *, grace_seconds: int, now: float) -> Endpoint:
    """The endpoint with a new current key. The key before it also signs for `grace_seconds` more.

    Raises Conflict if more than MAX_OLD_KEYS old keys would be valid.
    """
    current, *old = endpoint.valid_keys(now)
    expiry = int(now) + grace_seconds
    kept = [replace(current, expires_at=expiry), *old] if grace_seconds else old
    if len(kept) > MAX_OLD_KEYS:
        raise Conflict(f"{MAX_OLD_KEYS} old secrets are still valid. Wait until the first of them expires.")
    return replace(endpoint, keys=(key, *kept))


def missing(endpoint_id: str) -> NotFound:
    """The error for an endpoint that does not exist."""
    if endpoint_id == DEFAULT:
        return NotFound(
            "There is no default endpoint yet. Your first job with a webhook_url creates it, "
            "and so does POST /webhooks/default/rotate-secret."
        )
    return NotFound("There is no such endpoint. GET /webhooks lists yours.")
