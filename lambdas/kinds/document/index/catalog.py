"""An owner's documents: for each, one item that names the version that search may find."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from core import ids, jobs_table
from core.models import Request, ShortText, Text

MAX_NAME_BYTES = 1000


def _fits_key(text: str) -> str:
    """A sort key of DynamoDB has at most 1,024 bytes, including the prefix of the name."""
    if len(text.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"the name has more than {MAX_NAME_BYTES} bytes in UTF-8")
    return text


DocumentName = Annotated[ShortText, AfterValidator(_fits_key)]
"""An owner's name for a document."""


class SearchFilter(Request):
    """Searches only these documents (all, if empty), and only those with all of this metadata."""

    document_ids: list[ShortText] = Field(default_factory=list, max_length=100)
    metadata: dict[ShortText, Text] = Field(default_factory=dict, max_length=16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document that search finds. Versions are ULIDs: a later one is greater as a string."""

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
    """Documents in the jobs table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def get(self, owner: str, document_id: str) -> Document | None:
        item = self._item(owner, document_id)
        return _document(item) if item and not item.get("deleted") else None

    def existed(self, owner: str, document_id: str) -> bool:
        """Whether the document exists or was deleted, so that an interrupted deletion can be repeated."""
        return self._item(owner, document_id) is not None

    def is_outdated(self, owner: str, document_id: str, version: str) -> bool:
        """Whether a newer version is live, or the document was deleted after this version was submitted."""
        item = self._item(owner, document_id)
        return item is not None and item["version"] > version

    def list(self, owner: str) -> Iterator[Document]:
        """The owner's documents, ordered by id."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :doc)",
            ExpressionAttributeValues={":pk": jobs_table.owner_pk(owner), ":doc": jobs_table.DOCUMENT_PREFIX},
            ConsistentRead=True,
        )
        for page in pages:
            yield from (_document(item) for item in page["Items"] if not item.get("deleted"))

    def publish(self, owner: str, document: Document) -> dict[str, Any]:
        """The write that makes this version the live one, unless there is a newer version or deletion."""
        facts = {name: getattr(document, name) for name in Document.__slots__}
        return self._unless_newer(owner, document.document_id, facts)

    def delete(self, owner: str, document_id: str, *, seconds: int) -> str:
        """Delete the document. For `seconds`, jobs that were submitted before cannot publish it again.

        Returns a version: the vectors of all lower versions are to be deleted.
        """
        version = ids.ulid_of(ids.new("doc"))
        deletion = {"document_id": document_id, "version": version, "deleted": True}
        deletion["expires_at"] = int(time.time()) + seconds
        operation = self._unless_newer(owner, document_id, deletion)
        self._client.put_item(**operation["Put"])
        return version

    def _item(self, owner: str, document_id: str) -> dict[str, Any] | None:
        key = jobs_table.document_key(owner, document_id)
        item: dict[str, Any] | None = self._client.get_item(
            TableName=self._table, Key=key, ConsistentRead=True
        ).get("Item")
        return item

    def _unless_newer(self, owner: str, document_id: str, facts: dict[str, Any]) -> dict[str, Any]:
        return {
            "Put": {
                "TableName": self._table,
                "Item": jobs_table.document_key(owner, document_id) | {"entity": "document", **facts},
                "ConditionExpression": "attribute_not_exists(pk) OR #version < :version",
                "ExpressionAttributeNames": {"#version": "version"},
                "ExpressionAttributeValues": {":version": facts["version"]},
            }
        }


def _document(item: Mapping[str, Any]) -> Document:
    values = {name: item[name] for name in Document.__slots__}
    return Document(**values | {name: int(item[name]) for name in ("batches", "chunks", "characters")})
