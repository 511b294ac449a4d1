"""The tools of an agent: search and read one owner's documents. Neither changes anything or sends anything out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from core.errors import SourceNotFound
from core.llm.provider import ToolCall
from core.models import encodable
from kinds.agent import prompts
from kinds.agent.passages import Passage
from kinds.document.index.catalog import Catalog, Document
from kinds.document.index.embedding import Embedder
from kinds.document.index.search import Filter, search
from kinds.document.index.vectors import ObjectVectors, Version

HITS = 5
"""Passages of one search."""
MAX_CHARACTERS = 4000
"""Of a passage in a step: a message of a WebSocket has at most 128 KB."""


class UnusableCall(Exception):
    """A call that cannot be carried out. The message is what the model is told."""


class Library:
    """Where documents are. `embedder()` is made when the first query needs it."""

    def __init__(self, catalog: Catalog, vectors: ObjectVectors, embedder: Callable[[], Embedder]) -> None:
        self.catalog, self.vectors, self.embedder = catalog, vectors, embedder


class Tools:
    """The tools for one owner, and for those of the documents that `only` admits."""

    def __init__(self, library: Library, *, owner: str, only: Filter) -> None:
        self._library, self._owner, self._only = library, owner, only

    def run(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What a `tool_result` says: `passages`, or the `error` of a call that cannot be carried out."""
        try:
            if name == prompts.SEARCH:
                return {"passages": self._search(given["query"])}
            if name == prompts.READ:
                return {"passages": [self._read(given["document_id"], given["chunk"])]}
        except UnusableCall as error:
            return {"error": str(error)}
        return {"error": f"There is no tool {name}."}

    def _search(self, query: str) -> list[dict[str, Any]]:
        hits = search(
            query,
            owner=self._owner,
            top_k=HITS,
            only=self._only,
            index=self._library.vectors.index,
            catalog=self._library.catalog,
            store=self._library.vectors,
            embedder=self._library.embedder(),
        )
        return [_shortened(asdict(hit)) for hit in hits]

    def _read(self, document_id: str, number: int) -> dict[str, Any]:
        document = self._library.catalog.get(self._owner, document_id)
        if document is None or not self._only.admits(document):
            raise UnusableCall(f"There is no document {document_id}.")
        if number >= document.chunks:
            raise UnusableCall(f"The document has the chunks 0 to {document.chunks - 1}.")
        return self._chunk(document, number)

    def _chunk(self, document: Document, number: int) -> dict[str, Any]:
        version = Version(self._owner, document.document_id, document.version, document.batches)
        vectors = self._library.vectors.of_index(document.index)
        try:
            chunk = vectors.chunk(version, number)
        except SourceNotFound:
            raise UnusableCall("The document is being replaced.") from None
        facts = {name: chunk[name] for name in ("chunk", "text", "start", "end", "heading")}
        return _shortened({"document_id": document.document_id, "version": document.version, **facts})


def _shortened(fields: dict[str, Any]) -> dict[str, Any]:
    """A deployment may have chunks of any size. A shortened passage ends where its text ends."""
    text = fields["text"][:MAX_CHARACTERS]
    return fields | {"text": text, "end": fields["start"] + len(text)}


def read_call(call: ToolCall, documents: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The tool and its input, with the ids of documents. `documents`: those found so far.

    Raises UnusableCall, also for a document that was not found: a model may have its name from anywhere.
    """
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError):
        raise UnusableCall("The arguments are not JSON.") from None
    match call.name, given:
        case prompts.SEARCH, {"query": str(query)} if query.strip():
            return prompts.SEARCH, {"query": _checked(query.strip()[: prompts.MAX_QUERY_CHARACTERS])}
        case prompts.READ, {"document_id": name, "chunk": int(number)} if number >= 0:
            document = prompts.document_of(name, documents)
            if document is None:
                raise UnusableCall("This document was not found by a search.")
            return prompts.READ, {"document_id": document, "chunk": number}
        case prompts.ANSWER, _:
            return prompts.ANSWER, {}
    raise UnusableCall("There is no such tool, or its arguments are missing.")


def _checked(text: str) -> str:
    try:
        return encodable(text)
    except ValueError as error:
        raise UnusableCall(str(error)) from None


def passage(fields: Mapping[str, Any]) -> Passage:
    """A passage of a `tool_result`."""
    return Passage(**{name: fields[name] for name in Passage.__dataclass_fields__})
