"""What the functions of a bulk embedding work with."""

from __future__ import annotations

import pytest

from core.dependencies import dependencies
from core.jobs import JobStore
from kinds.document.dependencies import document_dependencies
from tests.unit.kinds.embedding.model import FakeEmbedder


@pytest.fixture
def store(environment: dict[str, str], jobs_table: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    monkeypatch.setenv("EMBEDDING_MODEL", "amazon.titan-embed-text-v2:0")
    return dependencies.jobs


@pytest.fixture
def model(store: JobStore) -> FakeEmbedder:
    """The model that the worker calls."""
    model = FakeEmbedder()
    vars(document_dependencies)["embedder"] = model
    return model
