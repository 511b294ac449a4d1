"""Search (kinds.document.index.search)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from core.errors import Throttled, Unavailable
from kinds.document.index.catalog import Catalog, Document
from kinds.document.index.embedding import SecondsLeft, Vector
from kinds.document.index.search import EMBEDDING_RETRY_SECONDS, Filter, search
from kinds.document.index.vectors import Hit, ObjectVectors, Version
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import document

INDEX = "model-2"


class Compass:
    """An embedder with two dimensions: `north`, `east`, and a direction between for other texts."""

    model, dimensions = "model", 2

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str], *, seconds_left: SecondsLeft) -> Iterator[Vector]:
        for text in texts:
            self.texts.append(text)
            yield {"north": [0.0, 1.0], "east": [1.0, 0.0]}.get(text, [0.6, 0.8])


class Library:
    """An owner's documents, whose chunks are directions."""

    def __init__(self) -> None:
        self.table, self.blobs, self.embedder = MemoryTable(), MemoryBlobs(), Compass()
        self.catalog = Catalog(self.table, "jobs")
        self.store = ObjectVectors(self.blobs, index=INDEX, dimensions=2)

    def add(
        self, name: str, texts: list[str], *, owner: str = "ana", version: str = "01", **facts: Any
    ) -> Document:
        chunks = [{"chunk": i, "text": text, "start": 0, "end": 1, "heading": ""} for i, text in enumerate(texts)]
        vectors = list(Compass().embed(texts, seconds_left=float))
        self.store.put(Version(owner, name, version), 0, vectors, chunks)
        pointer = document(document_id=name, version=version, batches=1, chunks=len(texts), index=INDEX, **facts)
        self.table.put_item(**self.catalog.publish(owner, pointer)["Put"])
        return pointer

    def find(
        self, query: str = "north", *, owner: str = "ana", top_k: int = 10, only: Filter | None = None
    ) -> list[Hit]:
        return search(
            query,
            owner=owner,
            top_k=top_k,
            only=only or Filter(),
            index=INDEX,
            catalog=self.catalog,
            store=self.store,
            embedder=self.embedder,
        )


@pytest.fixture
def library() -> Library:
    return Library()


def test_nearest_first(library: Library) -> None:
    """The nearest chunks of all documents are first, up to `top_k`."""
    library.add("a", ["east", "between"])
    library.add("b", ["north"])
    assert [hit.text for hit in library.find("north")] == ["north", "between", "east"]
    assert [hit.text for hit in library.find("east", top_k=1)] == ["east"]


def test_own_documents_only(library: Library) -> None:
    """Documents of other owners are not found."""
    library.add("a", ["north"], owner="ana")
    library.add("a", ["east"], owner="ben")
    assert [hit.text for hit in library.find(owner="ben")] == ["east"]
    assert library.find(owner="eve") == []


def test_live_version(library: Library) -> None:
    """Only the live version of a document is found."""
    library.add("a", ["east"], version="01")
    library.add("a", ["north"], version="02")
    library.store.put(Version("ana", "a", "03"), 0, [[0.0, 1.0]], [{"chunk": 0, "text": "in the making"}])
    assert [(hit.text, hit.version) for hit in library.find()] == [("north", "02")]


def test_deleted_documents(library: Library) -> None:
    """A deleted document is not found, although its vectors exist."""
    library.add("a", ["north"])
    library.catalog.delete("ana", "a", seconds=60)
    assert library.find() == []
    assert library.blobs.objects


def test_other_models(library: Library) -> None:
    """Documents in the index of another model are not found."""
    pointer = library.add("a", ["north"], version="01")
    facts = {name: getattr(pointer, name) for name in Document.__slots__}
    other = Document(**facts | {"index": "other-2", "version": "02"})
    library.table.put_item(**library.catalog.publish("ana", other)["Put"])
    assert library.find() == []


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (Filter(), ["a", "b", "c"]),
        (Filter(document_ids=("a", "c", "unknown")), ["a", "c"]),
        (Filter(metadata={"year": "2026"}), ["a", "b"]),
        (Filter(metadata={"year": "2026", "lang": "es"}), ["a"]),
        (Filter(document_ids=("b",), metadata={"lang": "es"}), []),
        (Filter(metadata={"year": ""}), []),
    ],
)
def test_filter(library: Library, only: Filter, found: list[str]) -> None:
    """A filter admits documents by id, if it has any, and by all of its metadata."""
    library.add("a", ["north"], metadata={"year": "2026", "lang": "es"})
    library.add("b", ["north"], metadata={"year": "2026"})
    library.add("c", ["north"])
    assert [hit.document_id for hit in library.find(only=only)] == found


def test_no_documents(library: Library) -> None:
    """Without documents the model is not called."""
    library.add("a", ["north"])
    assert library.find(only=Filter(document_ids=("b",))) == []
    assert library.embedder.texts == []


def test_busy_model(library: Library) -> None:
    """A throttled model is retried for two seconds."""
    library.add("a", ["north"])

    class Busy(Compass):
        def embed(self, texts: Sequence[str], *, seconds_left: SecondsLeft) -> Iterator[Vector]:
            assert seconds_left() == EMBEDDING_RETRY_SECONDS
            raise Throttled("busy")
            yield

    library.embedder = Busy()
    with pytest.raises(Throttled):
        library.find()


def test_version_replaced_during_search(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a version is deleted during the search, the next one is searched, with the same vector."""
    library.add("a", ["east"], version="01")
    real = library.store.search

    def replaced_meanwhile(*arguments: Any) -> list[Hit]:
        monkeypatch.setattr(library.store, "search", real)
        library.add("a", ["north"], version="02")
        library.store.delete(Version("ana", "a", "01"))
        return real(*arguments)

    monkeypatch.setattr(library.store, "search", replaced_meanwhile)
    assert [hit.text for hit in library.find()] == ["north"]
    assert library.embedder.texts == ["north"]


def test_document_deleted_during_search(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that is deleted during the search is not found."""
    library.add("a", ["east"])
    library.add("b", ["north"])
    real = library.store.search

    def removed_meanwhile(*arguments: Any) -> list[Hit]:
        monkeypatch.setattr(library.store, "search", real)
        library.catalog.delete("ana", "a", seconds=60)
        library.store.delete(Version("ana", "a", "01"))
        return real(*arguments)

    monkeypatch.setattr(library.store, "search", removed_meanwhile)
    assert [hit.document_id for hit in library.find()] == ["b"]


def test_missing_vectors(library: Library) -> None:
    """A live version without vectors raises an error."""
    library.add("a", ["north"])
    library.blobs.objects.clear()
    with pytest.raises(Unavailable):
        library.find()
