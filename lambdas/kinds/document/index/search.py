"""Finds the nearest chunks in the live versions of an owner's documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from core.errors import SourceNotFound, Unavailable
from kinds.document.index.catalog import Catalog, Document
from kinds.document.index.embedding import Embedder, Vector
from kinds.document.index.vectors import Hit, VectorStore, Version

EMBEDDING_RETRY_SECONDS = 2.0  # the caller waits for the response
MAX_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Searches documents with these ids (all, if empty) and all of this metadata."""

    document_ids: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    def admits(self, document: Document) -> bool:
        wanted = not self.document_ids or document.document_id in self.document_ids
        return wanted and self.metadata.items() <= document.metadata.items()


def search(
    query: str,
    *,
    owner: str,
    top_k: int,
    only: Filter,
    index: str,
    catalog: Catalog,
    store: VectorStore,
    embedder: Embedder,
) -> list[Hit]:
    """The `top_k` chunks nearest to `query`, nearest first.

    If a version is deleted after it was listed, the search is repeated with the present versions. Raises
    Unavailable after MAX_TRIES.
    """
    vector: Vector | None = None
    for _ in range(MAX_TRIES):
        live = [d for d in catalog.list(owner) if d.index == index and only.admits(d)]
        if not live:
            return []
        if vector is None:
            (vector,) = embedder.embed([query], seconds_left=lambda: EMBEDDING_RETRY_SECONDS)
        versions = [Version(owner, d.document_id, d.version, d.batches) for d in live]
        with suppress(SourceNotFound):
            return _only_live(live, store.search(vector, versions, top_k))
    raise Unavailable("The documents are being replaced.")


def _only_live(live: Sequence[Document], hits: Sequence[Hit]) -> list[Hit]:
    current = {(d.document_id, d.version) for d in live}
    return [hit for hit in hits if (hit.document_id, hit.version) in current]
