"""API keys: `rk_<key id>_<secret>`. Only the SHA-256 of the secret is stored; 256 random bits need no salt.

Each owner has an epoch, which counts revocations of its keys. Links and tickets are made with the epoch, so a
revocation ends all that were made before.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from core import events

SCOPES = ("jobs:read", "jobs:write", "search", "webhooks:read", "webhooks:write")
OWNER = re.compile(r"[a-z0-9-]{1,64}")
REVOKED_EPOCH = -1
"""No owner has this epoch, so what is made with it is refused."""
MAX_CACHED_EPOCHS = 10_000
RECHECK_SECONDS = 1.0
"""How old an epoch may be that refuses a link: the link may have been made after a revocation."""
_KEY_ID = re.compile(r"[a-z0-9]{16}")
_EPOCH_PREFIX = "owner#"
"""Of the pk of an owner's epoch. A key id has no `#`."""
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


@dataclass(frozen=True, slots=True)
class Epoch:
    """How often keys of an owner were revoked, and the ids of these keys."""

    number: int = 0
    revoked: frozenset[str] = frozenset()


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
            yield from (_key(item) for item in page["Items"] if not item["pk"].startswith(_EPOCH_PREFIX))

    def revoke(self, key_id: str) -> Key | None:
        """Revoke a key and raise its owner's epoch in one transaction; None if there is no such key.

        Revoking it again raises the epoch again. API Gateway caches the authorizer's response for minutes.
        """
        item = self._get(key_id) if _KEY_ID.fullmatch(key_id) else None
        if item is None:
            return None
        revoke = {
            "TableName": self._table,
            "Key": {"pk": key_id},
            "UpdateExpression": "SET revoked_at = if_not_exists(revoked_at, :now)",
            "ConditionExpression": "attribute_exists(pk)",
            "ExpressionAttributeValues": {":now": events.timestamp(self._clock())},
        }
        raise_epoch = {
            "TableName": self._table,
            "Key": _epoch_key(item["owner"]),
            "UpdateExpression": "ADD epoch :one, revoked :key_ids",
            "ExpressionAttributeValues": {":one": 1, ":key_ids": {key_id}},
        }
        self._client.transact_write_items(TransactItems=[{"Update": revoke}, {"Update": raise_epoch}])
        return _key(item)

    def epoch(self, owner: str) -> Epoch:
        """The present one of an owner (strongly consistent)."""
        item = self._get(_epoch_key(owner)["pk"])
        return Epoch(int(item["epoch"]), frozenset(item["revoked"])) if item else Epoch()

    def _get(self, pk: str) -> dict[str, Any] | None:
        answer = self._client.get_item(TableName=self._table, Key={"pk": pk}, ConsistentRead=True)
        item: dict[str, Any] | None = answer.get("Item")
        return item


class Epochs:
    """The epochs of owners. Each is cached for `seconds`. `clock` is monotonic."""

    def __init__(
        self, keys: KeyStore, *, seconds: float, clock: Callable[[], float] = lambda: time.monotonic()
    ) -> None:
        self._keys, self._seconds, self._clock = keys, seconds, clock
        self._known: dict[str, tuple[float, Epoch]] = {}

    def to_sign(self, owner: str, key_id: str) -> int:
        """The epoch for links and tickets that a caller with this key gets; REVOKED_EPOCH if it is revoked.

        API Gateway lets a revoked key pass until the authorizer's response expires.
        """
        epoch = self._read(owner, self._seconds)
        return REVOKED_EPOCH if key_id in epoch.revoked else epoch.number

    def to_verify(self, owner: str) -> Iterator[int]:
        """The cached epoch, and then, unless that was read within RECHECK_SECONDS, the present one."""
        for max_age in (self._seconds, min(RECHECK_SECONDS, self._seconds)):
            yield self._read(owner, max_age).number

    def _read(self, owner: str, max_age: float) -> Epoch:
        at, epoch = self._known.get(owner, (-math.inf, Epoch()))
        now = self._clock()
        if now - at >= max_age:
            epoch = self._keys.epoch(owner)
            if len(self._known) >= MAX_CACHED_EPOCHS:
                self._known.clear()
            self._known[owner] = now, epoch
        return epoch


def _epoch_key(owner: str) -> dict[str, str]:
    return {"pk": f"{_EPOCH_PREFIX}{owner}"}


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
