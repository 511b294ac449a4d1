"""The endpoints of owners, in the jobs table, and their secrets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from core import events, ids
from core.aws import errors as aws_errors
from core.errors import Conflict, Contended
from core.jobs_table import (
    ENDPOINT_PREFIX,
    FORMER_ENDPOINT_PREFIX,
    endpoint_key,
    former_endpoint_key,
    owner_pk,
)
from core.webhooks.endpoints.cipher import SecretCipher
from core.webhooks.endpoints.model import DEFAULT, Endpoint, Key, missing
from core.webhooks.endpoints.rows import endpoint_item, read_endpoint
from core.webhooks.transport import signing

_MAX_CONTENTIONS = 5
MAX_IDS = 1000
"""The most endpoints of an owner (`max_webhooks`), and of its deleted endpoints as many as `ids` returns."""


class Endpoints:
    """Endpoints in the jobs table. `client` is a resource's client. Only what uses secrets needs a cipher."""

    def __init__(
        self,
        client: Any,
        table: str,
        cipher: SecretCipher | None = None,
        *,
        clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self._client, self._table, self._clock = client, table, clock
        self._given_cipher = cipher

    @property
    def _cipher(self) -> SecretCipher:
        if self._given_cipher is None:
            raise RuntimeError("these endpoints were made without a cipher, so they have no secrets")
        return self._given_cipher

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────

    def find(self, owner: str, endpoint_id: str = DEFAULT) -> Endpoint | None:
        key = endpoint_key(owner, endpoint_id)
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        return read_endpoint(item) if item else None

    def get(self, owner: str, endpoint_id: str) -> Endpoint:
        """Raises NotFound if this owner has no endpoint of that id, or if it is not an id."""
        is_id = endpoint_id == DEFAULT or ids.is_id("wh", endpoint_id)
        endpoint = self.find(owner, endpoint_id) if is_id else None
        if endpoint is None:
            raise missing(endpoint_id)
        return endpoint

    def of(self, owner: str) -> list[Endpoint]:
        """All of an owner's in the order of their ids, with the default one."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
            ExpressionAttributeValues={":pk": owner_pk(owner), ":sk": ENDPOINT_PREFIX},
            ConsistentRead=True,
        )
        return [read_endpoint(item) for page in pages for item in page["Items"]]

    def ids(self, owner: str) -> set[str]:
        """The ids that endpoints of the owner's deliveries can have: present ones, and the newest deleted ones."""
        found = {DEFAULT}
        for prefix in (ENDPOINT_PREFIX, FORMER_ENDPOINT_PREFIX):
            answer = self._client.query(
                TableName=self._table,
                KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
                ExpressionAttributeValues={":pk": owner_pk(owner), ":sk": prefix},
                ProjectionExpression="sk",
                ScanIndexForward=False,
                Limit=MAX_IDS,
                ConsistentRead=True,
            )
            found |= {item["sk"].removeprefix(prefix) for item in answer["Items"]}
        return found

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────

    def draft(
        self,
        owner: str,
        endpoint_id: str | None = None,
        *,
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> tuple[Endpoint, str | None]:
        """A new endpoint, not yet written, and the secret to show once (None for ed25519).

        `secret` is the caller's own, if there is one.
        """
        endpoint_id, now = endpoint_id or ids.new("wh"), events.timestamp(self._clock())
        key, shown = self.make_key(owner, endpoint_id, signing_kind=facts.get("signing", "hmac"), secret=secret)
        endpoint = Endpoint(
            endpoint_id=endpoint_id, owner=owner, keys=(key,), created_at=now, updated_at=now, **facts
        )
        return self.with_headers(endpoint, headers), shown

    def draft_default(self, owner: str) -> tuple[str, dict[str, Any]]:
        """A new secret, and the write that creates the owner's default endpoint if there is none."""
        endpoint, secret = self.draft(owner, DEFAULT)
        return str(secret), {"Put": self._put(endpoint, condition="attribute_not_exists(pk)")}

    def make_key(
        self, owner: str, endpoint_id: str, *, signing_kind: str, secret: str | None = None
    ) -> tuple[Key, str | None]:
        """A new encrypted key, and the secret to show: None for ed25519, whose public key is in the key."""
        if signing_kind == "ed25519":
            private, public = signing.make_key_pair()
            encrypted = self._cipher.encrypt(private, owner=owner, endpoint_id=endpoint_id)
            return Key(encrypted=encrypted, public=public), None
        secret = secret or signing.make_secret()
        return Key(encrypted=self._cipher.encrypt(secret, owner=owner, endpoint_id=endpoint_id)), secret

    def with_headers(self, endpoint: Endpoint, headers: Mapping[str, str] | None) -> Endpoint:
        """The endpoint with the caller's own headers. Their values are encrypted: they can be credentials."""
        if not headers:
            return replace(endpoint, headers=(), encrypted_headers=None)
        encrypted = self._cipher.encrypt(
            json.dumps(headers), owner=endpoint.owner, endpoint_id=endpoint.endpoint_id
        )
        return replace(endpoint, headers=tuple(headers), encrypted_headers=encrypted)

    def create(self, endpoint: Endpoint) -> None:
        """Raises Conflict if the endpoint exists."""
        try:
            self._client.put_item(**self._put(endpoint, condition="attribute_not_exists(pk)"))
        except self._client.exceptions.ConditionalCheckFailedException:
            raise Conflict("Another request is creating this endpoint. Try again.") from None

    def change(self, owner: str, endpoint_id: str, change: Callable[[Endpoint], Endpoint]) -> Endpoint | None:
        """Apply `change` to the current endpoint and write it with the next version; None if there is none.

        `change` is called again after each write of somebody else. Raises Contended after five of them.
        """
        for _ in range(_MAX_CONTENTIONS):
            endpoint = self.find(owner, endpoint_id)
            if endpoint is None:
                return None
            now = events.timestamp(self._clock())
            changed = replace(change(endpoint), version=endpoint.version + 1, updated_at=now)
            try:
                self._client.put_item(
                    **self._put(changed, condition="version = :version", values={":version": endpoint.version})
                )
            except (
                self._client.exceptions.ConditionalCheckFailedException,
                self._client.exceptions.TransactionConflictException,
            ):
                continue
            return changed
        raise Contended("too many requests change the endpoint at once")

    def keep_id(self, owner: str, endpoint_id: str, *, seconds: int) -> None:
        """Keep the id of an endpoint that is about to be deleted, as long as its deliveries, for `ids`."""
        facts = {"entity": "former_endpoint", "expires_at": int(self._clock()) + seconds}
        self._client.put_item(TableName=self._table, Item=former_endpoint_key(owner, endpoint_id) | facts)

    def delete(self, owner: str, endpoint_id: str) -> bool:
        """False if there was none."""
        answer = self._client.delete_item(
            TableName=self._table, Key=endpoint_key(owner, endpoint_id), ReturnValues="ALL_OLD"
        )
        return "Attributes" in answer

    def disable(self, endpoint: Endpoint, *, reason: str, also: Sequence[Mapping[str, Any]]) -> bool:
        """Disable it and write `also` in one transaction; False if it is disabled already, or has another version.

        Of several concurrent calls, one succeeds.
        """
        now = events.timestamp(self._clock())
        disabled = replace(
            endpoint,
            enabled=False,
            disabled_reason=reason,
            disabled_at=now,
            updated_at=now,
            version=endpoint.version + 1,
        )
        put = self._put(
            disabled,
            condition="version = :version AND enabled = :true",
            values={":version": endpoint.version, ":true": True},
        )
        try:
            self._client.transact_write_items(TransactItems=[{"Put": put}, *also])
        except ClientError as error:
            if aws_errors.code(error) != "TransactionCanceledException":
                raise
            if "ConditionalCheckFailed" not in aws_errors.cancellation_codes(error):
                raise Contended("another request is changing the endpoint") from error
            return False
        return True

    # ── secrets ──────────────────────────────────────────────────────────────────────────────────────────

    def secrets(self, endpoint: Endpoint) -> list[str]:
        """The keys that sign now, the current one first."""
        return [self._decrypt(endpoint, key.encrypted) for key in endpoint.valid_keys(self._clock())]

    def own_headers(self, endpoint: Endpoint) -> dict[str, str]:
        """The caller's own headers with their values."""
        if endpoint.encrypted_headers is None:
            return {}
        headers: dict[str, str] = json.loads(self._decrypt(endpoint, endpoint.encrypted_headers))
        return headers

    def _decrypt(self, endpoint: Endpoint, encrypted: bytes) -> str:
        return self._cipher.decrypt(encrypted, owner=endpoint.owner, endpoint_id=endpoint.endpoint_id)

    def _put(
        self, endpoint: Endpoint, *, condition: str, values: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        put = {"TableName": self._table, "Item": endpoint_item(endpoint), "ConditionExpression": condition}
        return put | ({"ExpressionAttributeValues": values} if values else {})
