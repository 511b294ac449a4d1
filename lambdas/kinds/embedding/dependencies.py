"""The settings of the functions of bulk embeddings, in addition to those of all functions."""

from __future__ import annotations

from core.aws.settings import Environment, number
from core.dependencies import Parts, part


class EmbeddingSettings(Environment):
    texts_per_batch = number()
    tokens_per_batch = number()


class EmbeddingDependencies(Parts):
    """See `core.dependencies`."""

    @part
    def settings(self) -> EmbeddingSettings:
        return EmbeddingSettings()


embedding_dependencies = EmbeddingDependencies()
