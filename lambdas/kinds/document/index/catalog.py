"""Which documents an owner has: one pointer each, to the version that search may show."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from core import ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The pointer `OWNER#{owner}` / `DOC#{document_id}`. Versions compare as text, later ones greater."""

    document_id: str
    version: str
    job_id: str
    index: str
    batches: int
    chunks: int
    characters: int
    media_type: str
    indexed_at: str
    metadata: Mapping[str, str] = field(default_factory=dict)


class Catalog:
    """Pointers in the jobs table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def get(self, owner: str, document_id: str) -> Document | None:
        item = self._pointer(owner, document_id)
        return _document(item) if item and not item.get("deleted") else None

    def knows(self, owner: str, document_id: str) -> bool:
        """Whether there is such a document, or was one: a deletion that broke off can be repeated."""
        return self._pointer(owner, document_id) is not None

    def is_outdated(self, owner: str, document_id: str, version: str) -> bool:
        """Whether a newer version is live, or the document was deleted after this one was submitted."""
        pointer = self._pointer(owner, document_id)
        return pointer is not None and pointer["version"] > version

    def list(self, owner: str) -> Iterator[Document]:
        """The owner's documents, by id."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :doc)",
            ExpressionAttributeValues={":pk": f"OWNER#{owner}", ":doc": "DOC#"},
            ConsistentRead=True,
        )
        for page in pages:
            yield from (_document(item) for item in page["Items"] if not item.get("deleted"))

    def publish(self, owner: str, document: Document) -> dict[str, Any]:
        """The write that makes this version the live one, unless a newer one came first."""
        item = {name: getattr(document, name) for name in Document.__slots__}
        return self._unless_newer(_key(owner, document.document_id) | {"entity": "document", **item})

    def retract(self, owner: str, document_id: str, *, seconds: int) -> str:
        """Delete the document; for `seconds`, no job that was submitted before now can bring it back.

        Returns the version below which everything is to be removed.
        """
        version = ids.ulid_of(ids.new("doc"))
        marker = {"document_id": document_id, "version": version, "deleted": True}
        marker["expires_at"] = int(time.time()) + seconds
        operation = self._unless_newer(_key(owner, document_id) | {"entity": "document", **marker})
        self._client.put_item(**operation["Put"])
        return version

    def _pointer(self, owner: str, document_id: str) -> dict[str, Any] | None:
        key = _key(owner, document_id)
        item: dict[str, Any] | None = self._client.get_item(
            TableName=self._table, Key=key, ConsistentRead=True
        ).get("Item")
        return item

    def _unless_newer(self, item: dict[str, Any]) -> dict[str, Any]:
        return {
            "Put": {
                "TableName": self._table,
                "Item": item,
                "ConditionExpression": "attribute_not_exists(pk) OR #version < :version",
                "ExpressionAttributeNames": {"#version": "version"},
                "ExpressionAttributeValues": {":version": item["version"]},
            }
        }


def _key(owner: str, document_id: str) -> dict[str, str]:
    return {"pk": f"OWNER#{owner}", "sk": f"DOC#{document_id}"}


def _document(item: Mapping[str, Any]) -> Document:
    values = {name: item[name] for name in Document.__slots__}
    return Document(**values | {name: int(item[name]) for name in ("batches", "chunks", "characters")})
