"""Where an owner's webhooks go, what they are signed with, and who may read that.

Whoever may encrypt (the API) can give an endpoint its keys; only who may decrypt (the sender) can read them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from core import events, ids
from core.aws import errors as aws_errors
from core.errors import Conflict, Contended, NotFound
from core.webhooks.transport import signing

if TYPE_CHECKING:
    from types_boto3_kms import KMSClient

DEFAULT = "default"
"""The endpoint of every `webhook_url` that a job names: the job has the URL, the owner the secret."""

MAX_OLD_KEYS = 10
_MAX_CONTENTIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A sealed signing key. `expires_at` (epoch seconds) is set once another has taken its place."""

    sealed: bytes
    public: str | None = None
    expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The row `OWNER#{owner}` / `ENDPOINT#{endpoint_id}`. `keys`: the current one first.

    `filter` is a payload filter (`endpoints.patterns`), `rate_limit` requests per second, `headers` the names of
    the caller's own, whose values are in `sealed_headers`.
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
    sealed_headers: bytes | None = None
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
        """The current key, and the old ones whose time is not over: at `expires_at` it is."""
        return [key for key in self.keys if key.expires_at is None or key.expires_at > now]


def rotated(endpoint: Endpoint, key: Key, *, grace_seconds: int, now: float) -> Endpoint:
    """The endpoint with a new current key; the one before signs beside it for `grace_seconds` more.

    Raises Conflict where MAX_OLD_KEYS old ones are still valid.
    """
    current, *old = endpoint.valid_keys(now)
    expiry = int(now) + grace_seconds
    kept = [replace(current, expires_at=expiry), *old] if grace_seconds else old
    if len(kept) > MAX_OLD_KEYS:
        raise Conflict(f"{MAX_OLD_KEYS} old secrets are still valid. Wait until the first of them expires.")
    return replace(endpoint, keys=(key, *kept))


class Vault:
    """Seals texts with a KMS key; the encryption context ties each to its endpoint."""

    def __init__(self, client: KMSClient, key_arn: str) -> None:
        self._client, self._key_arn = client, key_arn
        self._opened: dict[tuple[str, str, bytes], str] = {}
        self._opening = threading.Lock()

    def seal(self, text: str, *, owner: str, endpoint_id: str) -> bytes:
        """At most 4,096 bytes: https://docs.aws.amazon.com/kms/latest/APIReference/API_Encrypt.html"""
        context = _context(owner, endpoint_id)
        return self._client.encrypt(KeyId=self._key_arn, Plaintext=text.encode(), EncryptionContext=context)[
            "CiphertextBlob"
        ]

    def open(self, sealed: bytes, *, owner: str, endpoint_id: str) -> str:
        """Decrypted once, however often it is asked for: what was sealed never changes."""
        key = (owner, endpoint_id, sealed)
        with self._opening:  # of threads that ask at once, one asks KMS
            if key not in self._opened:
                answer = self._client.decrypt(
                    KeyId=self._key_arn, CiphertextBlob=sealed, EncryptionContext=_context(owner, endpoint_id)
                )
                self._opened[key] = answer["Plaintext"].decode()
            return self._opened[key]


def _context(owner: str, endpoint_id: str) -> Mapping[str, str]:
    return {"owner": owner, "endpoint": endpoint_id}


class Endpoints:
    """Endpoints in the jobs table. `client` is a resource's client; who only reads needs no vault."""

    def __init__(
        self,
        client: Any,
        table: str,
        vault: Vault | None = None,
        *,
        clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self._client, self._table, self._clock = client, table, clock
        self._given_vault = vault

    @property
    def _vault(self) -> Vault:
        if self._given_vault is None:
            raise RuntimeError("these endpoints were made without a vault: their secrets are out of reach")
        return self._given_vault

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────

    def find(self, owner: str, endpoint_id: str = DEFAULT) -> Endpoint | None:
        key = endpoint_key(owner, endpoint_id)
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        return read_endpoint(item) if item else None

    def get(self, owner: str, endpoint_id: str) -> Endpoint:
        """Raises NotFound where this owner has none of that id, or it is no id at all."""
        known = endpoint_id == DEFAULT or ids.is_id("wh", endpoint_id)
        endpoint = self.find(owner, endpoint_id) if known else None
        if endpoint is None:
            raise missing(endpoint_id)
        return endpoint

    def of(self, owner: str) -> list[Endpoint]:
        """All of an owner's, oldest first, the default one among them."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
            ExpressionAttributeValues={":pk": f"OWNER#{owner}", ":sk": "ENDPOINT#"},
            ConsistentRead=True,
        )
        return [read_endpoint(item) for page in pages for item in page["Items"]]

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
        """A new endpoint, not yet written, and the secret to show once (None where the key is not shared).

        `secret` is the caller's own, if it brought one.
        """
        endpoint_id, now = endpoint_id or ids.new("wh"), events.timestamp(self._clock())
        key, shown = self.make_key(owner, endpoint_id, signing_kind=facts.get("signing", "hmac"), secret=secret)
        endpoint = Endpoint(
            endpoint_id=endpoint_id, owner=owner, keys=(key,), created_at=now, updated_at=now, **facts
        )
        return self.with_headers(endpoint, headers), shown

    def draft_default(self, owner: str) -> tuple[str, dict[str, Any]]:
        """A new secret, and the write that makes it the owner's, unless there is one already."""
        endpoint, secret = self.draft(owner, DEFAULT)
        return str(secret), {"Put": self._put(endpoint, condition="attribute_not_exists(pk)")}

    def make_key(
        self, owner: str, endpoint_id: str, *, signing_kind: str, secret: str | None = None
    ) -> tuple[Key, str | None]:
        """A new sealed key, and the secret to show, which is None for ed25519: only its public half leaves."""
        if signing_kind == "ed25519":
            private, public = signing.make_key_pair()
            return Key(sealed=self._vault.seal(private, owner=owner, endpoint_id=endpoint_id), public=public), None
        secret = secret or signing.make_secret()
        return Key(sealed=self._vault.seal(secret, owner=owner, endpoint_id=endpoint_id)), secret

    def with_headers(self, endpoint: Endpoint, headers: Mapping[str, str] | None) -> Endpoint:
        """The endpoint with the caller's own headers, their values sealed: they may well be credentials."""
        if not headers:
            return replace(endpoint, headers=(), sealed_headers=None)
        sealed = self._vault.seal(json.dumps(headers), owner=endpoint.owner, endpoint_id=endpoint.endpoint_id)
        return replace(endpoint, headers=tuple(headers), sealed_headers=sealed)

    def create(self, endpoint: Endpoint) -> None:
        """Raises Conflict where the endpoint is there already."""
        try:
            self._client.put_item(**self._put(endpoint, condition="attribute_not_exists(pk)"))
        except self._client.exceptions.ConditionalCheckFailedException:
            raise Conflict("Another request is making this endpoint. Try again.") from None

    def change(self, owner: str, endpoint_id: str, change: Callable[[Endpoint], Endpoint]) -> Endpoint | None:
        """Write what `change` makes of the endpoint as it is, with the next version; None where there is none."""
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
        raise Contended("the endpoint is being changed by too many writers at once")

    def delete(self, owner: str, endpoint_id: str) -> bool:
        """False where there was none."""
        answer = self._client.delete_item(
            TableName=self._table, Key=endpoint_key(owner, endpoint_id), ReturnValues="ALL_OLD"
        )
        return "Attributes" in answer

    def disable(self, endpoint: Endpoint, *, reason: str, also: Sequence[Mapping[str, Any]]) -> bool:
        """Switch it off and write `also` in one transaction; False if it is off, or was edited in the meantime.

        However many deliveries fail at once, one of them succeeds here.
        """
        now = events.timestamp(self._clock())
        off = replace(
            endpoint,
            enabled=False,
            disabled_reason=reason,
            disabled_at=now,
            updated_at=now,
            version=endpoint.version + 1,
        )
        put = self._put(
            off,
            condition="version = :version AND enabled = :true",
            values={":version": endpoint.version, ":true": True},
        )
        try:
            self._client.transact_write_items(TransactItems=[{"Put": put}, *also])
        except ClientError as error:
            if aws_errors.code(error) != "TransactionCanceledException":
                raise
            if "ConditionalCheckFailed" not in aws_errors.cancellation_codes(error):
                raise Contended("the endpoint is being changed at this moment") from error
            return False
        return True

    # ── secrets ──────────────────────────────────────────────────────────────────────────────────────────

    def secrets(self, endpoint: Endpoint) -> list[str]:
        """The keys that sign now, current first. KMS is asked once for each."""
        return [self._open(endpoint, key.sealed) for key in endpoint.valid_keys(self._clock())]

    def own_headers(self, endpoint: Endpoint) -> dict[str, str]:
        """The caller's own headers with their values."""
        if endpoint.sealed_headers is None:
            return {}
        headers: dict[str, str] = json.loads(self._open(endpoint, endpoint.sealed_headers))
        return headers

    def _open(self, endpoint: Endpoint, sealed: bytes) -> str:
        return self._vault.open(sealed, owner=endpoint.owner, endpoint_id=endpoint.endpoint_id)

    def _put(
        self, endpoint: Endpoint, *, condition: str, values: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        put = {"TableName": self._table, "Item": endpoint_item(endpoint), "ConditionExpression": condition}
        return put | ({"ExpressionAttributeValues": values} if values else {})


def missing(endpoint_id: str) -> NotFound:
    """That there is no such endpoint, and what to do about it."""
    if endpoint_id == DEFAULT:
        return NotFound(
            "There is no default endpoint yet. It is made with your first job that has a webhook_url, "
            "or by POST /webhooks/default/rotate-secret."
        )
    return NotFound("There is no such endpoint. GET /webhooks lists yours.")


def endpoint_key(owner: str, endpoint_id: str) -> dict[str, str]:
    return {"pk": f"OWNER#{owner}", "sk": f"ENDPOINT#{endpoint_id}"}


_AS_JSON = ("events", "filter", "headers", "rate_limit")  # floats and order stay as they are


def endpoint_item(endpoint: Endpoint) -> dict[str, Any]:
    values = {f.name: getattr(endpoint, f.name) for f in fields(Endpoint)}
    values |= {name: json.dumps(values[name]) for name in _AS_JSON}
    values["keys"] = [{f.name: getattr(key, f.name) for f in fields(Key)} for key in endpoint.keys]
    return endpoint_key(endpoint.owner, endpoint.endpoint_id) | {"entity": "endpoint"} | values


def read_endpoint(item: Mapping[str, Any]) -> Endpoint:
    """The endpoint in an item of the table."""
    values = {f.name: item[f.name] for f in fields(Endpoint)}
    values |= {name: json.loads(values[name]) for name in _AS_JSON}
    values |= {name: tuple(values[name]) for name in ("events", "headers")}
    values |= {"version": int(values["version"]), "keys": tuple(map(_key, values["keys"]))}
    if values["sealed_headers"] is not None:
        values["sealed_headers"] = bytes(values["sealed_headers"])
    return Endpoint(**values)


def _key(item: Mapping[str, Any]) -> Key:
    expires_at = item["expires_at"]
    return Key(
        sealed=bytes(item["sealed"]),
        public=item["public"],
        expires_at=None if expires_at is None else int(expires_at),
    )
