"""The dependencies of the functions of documents, in addition to those of all functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.aws import clients
from core.aws.settings import Environment, number, text
from core.dependencies import Parts, dependencies, part

if TYPE_CHECKING:
    from kinds.document.index.catalog import Catalog
    from kinds.document.index.embedding import Embedder
    from kinds.document.index.vectors import ObjectVectors
    from kinds.document.reading.parse import Limits


class DocumentSettings(Environment):
    embedding = text()
    embedding_model = text()
    embedding_dimensions = number()
    embedding_parallel_calls = number()
    chunk_size = number()
    chunk_overlap = number()
    chunks_per_batch = number()
    max_characters = number()
    parse_timeout_seconds = number()
    parse_memory_mb = number()


class DocumentDependencies(Parts):
    """See `core.dependencies`."""

    @part
    def settings(self) -> DocumentSettings:
        return DocumentSettings()

    @part
    def catalog(self) -> Catalog:
        from kinds.document.index.catalog import Catalog

        return Catalog(dependencies.dynamodb, dependencies.settings.jobs_table)

    @part
    def vectors(self) -> ObjectVectors:
        """The index of the configured model."""
        from kinds.document.index.embedding import index_name
        from kinds.document.index.vectors import ObjectVectors

        index = index_name(self.settings.embedding_model, self.settings.embedding_dimensions)
        return ObjectVectors(dependencies.blobs, index=index, dimensions=self.settings.embedding_dimensions)

    @part
    def embedder(self) -> Embedder:
        from kinds.document.index import embedding

        return embedding.make(
            self.settings.embedding,
            model=self.settings.embedding_model,
            dimensions=self.settings.embedding_dimensions,
            client=clients.client,
            parallel=self.settings.embedding_parallel_calls,
        )

    @part
    def limits(self) -> Limits:
        from kinds.document.reading.parse import Limits

        return Limits(
            max_bytes=dependencies.settings.max_document_bytes,
            max_characters=self.settings.max_characters,
            timeout_seconds=self.settings.parse_timeout_seconds,
            memory_mb=self.settings.parse_memory_mb,
        )


document_dependencies = DocumentDependencies()
