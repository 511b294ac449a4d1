"""What the functions of a summary work with."""

from __future__ import annotations

import json

import pytest

from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.jobs import JobStore
from tests.unit.kinds.summary.model import MODEL, FakeCaller

SETTINGS = {
    "MODELS": json.dumps({MODEL.name: {}, "bedrock/unpriced": {}, "bedrock/small": {"tokens": "500/m"}}),
    "MAX_CHARACTERS": "1000000",
    "MAX_DOCUMENT_BYTES": "1000000",
    "PARSE_TIMEOUT_SECONDS": "30",
    "PARSE_MEMORY_MB": "1024",
}


@pytest.fixture
def store(environment: dict[str, str], jobs_table: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    return dependencies.jobs


@pytest.fixture
def caller(store: JobStore, blobs: Blobs) -> FakeCaller:
    """The model that the worker calls."""
    caller = FakeCaller(blobs)
    vars(dependencies)["model_caller"] = caller
    return caller
