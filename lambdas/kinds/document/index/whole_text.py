"""The text of an indexed document. Its file is deleted after indexing, but the chunks have all of it.

Chunks may overlap, and leave out only white space between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core.aws.blobs import Blobs
from core.errors import SourceNotFound
from kinds.document.index.catalog import Catalog
from kinds.document.index.vectors import ObjectVectors, Version

MAX_READS = 3
"""How many versions of a document are tried, if each is replaced while it is read."""


def live_text(catalog: Catalog, blobs: Blobs, owner: str, document_id: str) -> str:
    """The text of the version that search finds. Raises SourceNotFound if there is none."""
    for _ in range(MAX_READS):
        document = catalog.get(owner, document_id)
        if document is None:
            break
        version = Version(owner, document_id, document.version, document.batches)
        try:
            return join(ObjectVectors(blobs, index=document.index, dimensions=1).chunks(version))
        except SourceNotFound:  # deleted, or replaced by a newer version, since `get`
            continue
    raise SourceNotFound("The document is no longer indexed. Index it again and submit a new job.")


def join(chunks: Iterable[Mapping[str, Any]]) -> str:
    """The text that chunks with `text`, `start` and `end` were cut from. What lies between two is a newline."""
    parts: list[str] = []
    done = 0
    for chunk in sorted(chunks, key=lambda chunk: int(chunk["start"])):
        start, end = int(chunk["start"]), int(chunk["end"])
        if start > done and parts:
            parts.append("\n")
        if end > done:
            parts.append(chunk["text"][max(0, done - start) :])
            done = end
    return "".join(parts)
