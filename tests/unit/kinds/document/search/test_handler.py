"""POST /search (kinds.document.search)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from core.errors import Throttled
from kinds.document.dependencies import document_dependencies
from kinds.document.index import embedding
from kinds.document.index.embedding import SecondsLeft, Vector
from kinds.document.index.vectors import Version
from kinds.document.search import handler as module
from tests.unit.examples import document
from tests.unit.http_calls import Answer, call, problem

Ask = Callable[..., Answer]


class North:
    """Every text is embedded as north."""

    model, dimensions = "model", 2
    busy = False

    def embed(self, texts: Sequence[str], *, seconds_left: SecondsLeft) -> Iterator[Vector]:
        if self.busy:
            raise Throttled("The embedding model is busy.")
        yield from ([0.0, 1.0] for _ in texts)


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> North:
    north = North()
    monkeypatch.setattr(embedding, "make", lambda *_, **__: north)
    return north


@pytest.fixture
def search(environment: dict[str, str], jobs_table: str, bucket: str, embedder: North, dynamodb: Any) -> Ask:
    """Searches in two documents of ana's: `a` is north, and `b` is east."""
    for name, vector in (("a", [0.0, 1.0]), ("b", [1.0, 0.0])):
        chunk = {"chunk": 0, "text": f"text of {name}", "start": 0, "end": 9, "heading": "H"}
        document_dependencies.vectors.put(Version("ana", name, "01"), 0, [vector], [chunk])
        pointer = document(document_id=name, version="01", batches=1)
        dynamodb.put_item(**document_dependencies.catalog.publish("ana", pointer)["Put"])

    def search(body: Any, **options: Any) -> Answer:
        return call(module.handler, "POST", "/search", body, **options)

    return search


def test_hits(search: Ask) -> None:
    """The nearest chunks are first, with document, position and score."""
    answer = search({"query": "where?"})
    assert answer.status == 200
    first, second = answer.json["hits"]
    assert first == {
        "document_id": "a",
        "version": "01",
        "chunk": 0,
        "score": 1.0,
        "text": "text of a",
        "start": 0,
        "end": 9,
        "heading": "H",
    }
    assert (second["document_id"], second["score"]) == ("b", 0.0)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"query": ""}, "query"),
        ({"query": " \n\t "}, "query"),
        ({"query": "x" * 8001}, "query"),
        ({"query": "\ud800"}, "query"),
        ({"query": None}, "query"),
        ({"query": "x", "top_k": 0}, "top_k"),
        ({"query": "x", "top_k": 101}, "top_k"),
        ({"query": "x", "filter": {"document_ids": ["a"] * 101}}, "filter.document_ids"),
        ({"query": "x", "filter": {"owner": "ben"}}, "filter.owner"),
        ({"question": "x"}, "query"),
    ],
)
def test_invalid_requests(search: Ask, wrong: dict[str, Any], field: str) -> None:
    """An invalid request is a 422 that names the field."""
    assert problem(search(wrong), 422, "invalid_request")["field"] == field


def test_busy(search: Ask, embedder: North) -> None:
    """A throttled model is a 503 with Retry-After."""
    embedder.busy = True
    answer = search({"query": "x"})
    problem(answer, 503, "throttled")
    assert answer.headers["retry-after"] == "1"


def test_queries_are_not_logged(search: Ask, embedder: North, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """Queries are never logged."""
    embedder.dimensions = 3
    embedder.embed = lambda *_, **__: (_ for _ in ()).throw(RuntimeError("broken"))  # type: ignore[method-assign]
    problem(search({"query": "secret words"}), 500, "internal")
    assert logged()
    assert "secret" not in str(logged())
