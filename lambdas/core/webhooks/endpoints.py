"""Where an owner's webhooks go, and the secret they are signed with, sealed by KMS.

Whoever may encrypt (the API) can give an endpoint its secret; only who may decrypt (the sender) can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.webhooks import signing

if TYPE_CHECKING:
    from types_boto3_kms import KMSClient

DEFAULT = "default"
"""The endpoint of every `webhook_url` that a job names: the job has the URL, the owner the secret."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    endpoint_id: str
    owner: str
    sealed_secret: bytes


class Vault:
    """Seals secrets with a KMS key; the encryption context ties each to its endpoint."""

    def __init__(self, client: KMSClient, key_arn: str) -> None:
        self._client, self._key_arn = client, key_arn

    def seal(self, secret: str, *, owner: str, endpoint_id: str) -> bytes:
        context = _context(owner, endpoint_id)
        return self._client.encrypt(KeyId=self._key_arn, Plaintext=secret.encode(), EncryptionContext=context)[
            "CiphertextBlob"
        ]

    def open(self, endpoint: Endpoint) -> str:
        context = _context(endpoint.owner, endpoint.endpoint_id)
        answer = self._client.decrypt(
            KeyId=self._key_arn, CiphertextBlob=endpoint.sealed_secret, EncryptionContext=context
        )
        return answer["Plaintext"].decode()


def _context(owner: str, endpoint_id: str) -> Mapping[str, str]:
    return {"owner": owner, "endpoint": endpoint_id}


class Endpoints:
    """Endpoints in the jobs table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, vault: Vault) -> None:
        self._client, self._table, self._vault = client, table, vault

    def find(self, owner: str, endpoint_id: str = DEFAULT) -> Endpoint | None:
        key = _key(owner, endpoint_id)
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        return Endpoint(endpoint_id, owner, bytes(item["sealed_secret"])) if item else None

    def draft_default(self, owner: str) -> tuple[str, dict[str, Any]]:
        """A new secret, and the write that makes it the owner's, unless there is one already."""
        secret = signing.make_secret()
        sealed = self._vault.seal(secret, owner=owner, endpoint_id=DEFAULT)
        item = _key(owner, DEFAULT) | {"entity": "endpoint", "owner": owner, "sealed_secret": sealed}
        return secret, {
            "Put": {"TableName": self._table, "Item": item, "ConditionExpression": "attribute_not_exists(pk)"}
        }

    def secret(self, endpoint: Endpoint) -> str:
        return self._vault.open(endpoint)


def _key(owner: str, endpoint_id: str) -> dict[str, str]:
    return {"pk": f"OWNER#{owner}", "sk": f"ENDPOINT#{endpoint_id}"}
