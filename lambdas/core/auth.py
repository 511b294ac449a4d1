"""API keys: `rk_<key id>_<secret>`. Only the SHA-256 of the secret is stored; 256 random bits need no salt."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from core import events

SCOPES = ("jobs:read", "jobs:write", "search", "webhooks:read", "webhooks:write")
OWNER = re.compile(r"[a-z0-9-]{1,64}")
_TOKEN = re.compile(r"rk_([a-z0-9]{16})_([a-f0-9]{64})")
_UNKNOWN = ("0" * 16, "0" * 64)  # read in place of a malformed token, so that every call takes the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key without its secret. `scopes` is a subset of SCOPES."""

    key_id: str
    owner: str
    scopes: tuple[str, ...]
    created_at: str
    revoked_at: str | None = None
    note: str = ""


class KeyStore:
    """API keys in a DynamoDB table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client, self._table, self._clock = client, table, clock

    def create(self, *, owner: str, scopes: tuple[str, ...] = SCOPES, note: str = "") -> tuple[str, Key]:
        """A new key and its token, which is not stored. Raises ValueError for an invalid owner or scope."""
        if not OWNER.fullmatch(owner):
            raise ValueError(f"owner: {owner!r} is not 1 to 64 of a-z, 0-9 and -")
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise ValueError(f"scopes: {unknown or 'none'}; choose from {', '.join(SCOPES)}")
        key = Key(
            key_id=secrets.token_hex(8),
            owner=owner,
            scopes=scopes,
            created_at=events.timestamp(self._clock()),
            note=note,
        )
        secret = secrets.token_hex(32)
        self._client.put_item(
            TableName=self._table, Item=_item(key, secret), ConditionExpression="attribute_not_exists(pk)"
        )
        return f"rk_{key.key_id}_{secret}", key

    def authenticate(self, token: str) -> Key | None:
        """The key, or None if the token is malformed, unknown, wrong or revoked.

        Always one read and one comparison, so that the time tells nothing about the token.
        """
        match = _TOKEN.fullmatch(token)
        key_id, secret = match.groups() if match else _UNKNOWN
        item = self._client.get_item(TableName=self._table, Key={"pk": key_id}).get("Item") or {}
        valid = hmac.compare_digest(_digest(secret), item.get("secret_sha256", _digest("")))
        return _key(item) if valid and match and "revoked_at" not in item else None

    def list(self) -> Iterator[Key]:
        for page in self._client.get_paginator("scan").paginate(TableName=self._table):
            yield from (_key(item) for item in page["Items"])

    def revoke(self, key_id: str) -> bool:
        """Revoke a key; False if it does not exist. API Gateway caches the authorizer's response for minutes."""
        try:
            self._client.update_item(
                TableName=self._table,
                Key={"pk": key_id},
                UpdateExpression="SET revoked_at = if_not_exists(revoked_at, :now)",
                ConditionExpression="attribute_exists(pk)",
                ExpressionAttributeValues={":now": events.timestamp(self._clock())},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _item(key: Key, secret: str) -> dict[str, Any]:
    return {
        "pk": key.key_id,
        "owner": key.owner,
        "scopes": list(key.scopes),
        "created_at": key.created_at,
        "note": key.note,
        "secret_sha256": _digest(secret),
    }


def _key(item: dict[str, Any]) -> Key:
    return Key(
        key_id=item["pk"],
        owner=item["owner"],
        scopes=tuple(item["scopes"]),
        created_at=item["created_at"],
        revoked_at=item.get("revoked_at"),
        note=item.get("note", ""),
    )
