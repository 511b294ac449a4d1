"""The dependencies of agents, in addition to those of all functions and of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.aws.settings import Environment, number
from core.dependencies import Parts, dependencies, part
from kinds.document.dependencies import document_dependencies

if TYPE_CHECKING:
    from kinds.agent.sessions import Sessions
    from kinds.agent.tools import Library
    from kinds.document.index.vectors import ObjectVectors

CACHE_BYTES = 200_000_000
"""Of vectors, in the worker's 1,024 MB."""


class AgentSettings(Environment):
    agent_context_tokens = number()
    agent_answer_tokens = number()


class AgentDependencies(Parts):
    """See `core.dependencies`."""

    @part
    def settings(self) -> AgentSettings:
        return AgentSettings()

    @part
    def sessions(self) -> Sessions:
        from kinds.agent.sessions import Sessions

        return Sessions(dependencies.dynamodb, dependencies.settings.jobs_table)

    @part
    def vectors(self) -> ObjectVectors:
        from kinds.document.index.vectors import ObjectVectors

        index, dimensions = document_dependencies.vectors.index, document_dependencies.vectors.dimensions
        return ObjectVectors(dependencies.blobs, index=index, dimensions=dimensions, cache_bytes=CACHE_BYTES)

    @part
    def library(self) -> Library:
        """All documents; what an agent may search is the owner's part of it."""
        from kinds.agent.tools import Library

        return Library(document_dependencies.catalog, self.vectors, lambda: document_dependencies.embedder)


agent_dependencies = AgentDependencies()
