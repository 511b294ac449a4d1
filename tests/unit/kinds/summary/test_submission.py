"""Submitting a summary (kinds.summary.kind, kinds.summary.submission)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.errors import InvalidRequest, PayloadTooLarge
from core.jobs import Inputs, JobStore
from kinds.document.dependencies import document_dependencies
from kinds.summary.kind import SUMMARY
from kinds.summary.models import SummaryInput
from tests.unit.examples import document
from tests.unit.kinds.summary.model import MODEL

TEXT = "Some words of a long text. " * 100
DEFAULTS = {"style": "paragraph", "max_words": 150, "allow_sample": False, "model": MODEL.name}
UPLOAD = "uploads/ana/upl_1/a.pdf"


@pytest.fixture
def inputs(store: JobStore, blobs: Blobs) -> Inputs:
    blobs.put(UPLOAD, b"%PDF-1.7")
    indexed = document(document_id="notes", characters=100_000)
    dependencies.dynamodb.put_item(**document_dependencies.catalog.publish("ana", indexed)["Put"])
    return Inputs(owner="ana", job_id="job_1", blobs=blobs, max_inline_bytes=5000, max_upload_bytes=1000)


def prepare(inputs: Inputs, **given: Any) -> dict[str, Any]:
    return dict(SUMMARY.prepare(SummaryInput.model_validate(given), inputs))


def refused(inputs: Inputs, **given: Any) -> str:
    """The field that the error names."""
    with pytest.raises((InvalidRequest, PayloadTooLarge)) as caught:
        prepare(inputs, **given)
    return str(caught.value.field)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"text": "a", "s3_key": "b"},
        {"text": "a", "document_id": "b"},
        {"text": "a", "s3_key": "b", "document_id": "c"},
        {"text": ""},
        {"text": "a", "style": "poem"},
        {"text": "a", "max_words": 19},
        {"text": "a", "max_words": 1001},
        {"text": "a", "max_cost_usd": 0},
    ],
    ids=json.dumps,
)
def test_invalid_inputs(given: dict[str, Any]) -> None:
    """There is exactly one source, and options have their bounds."""
    with pytest.raises(ValidationError):
        SummaryInput.model_validate(given)


def test_sources(inputs: Inputs, blobs: Blobs) -> None:
    """A text is stored, an upload pinned, and a document named. The model is the default one."""
    stored = prepare(inputs, text=TEXT)
    assert blobs.get(stored["source_key"]).decode() == TEXT
    assert stored.items() >= {**DEFAULTS, "bytes": len(TEXT)}.items()
    assert prepare(inputs, s3_key=UPLOAD).items() >= {**DEFAULTS, "source_key": UPLOAD, "bytes": 8}.items()
    assert prepare(inputs, document_id="notes") == DEFAULTS | {"document_id": "notes"}
    assert SUMMARY.submitted_fields(stored) == {"model": MODEL.name, "style": "paragraph", "max_words": 150}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"text": "x" * 5001}, "input.text"),
        ({"s3_key": "uploads/bob/upl_1/a.pdf"}, "input.s3_key"),
        ({"document_id": "other"}, "input.document_id"),
        ({"text": "a", "model": "bedrock/other"}, "input.model"),
        ({"text": "a", "model": "bedrock/unpriced", "max_cost_usd": 5}, "input.max_cost_usd"),
        ({"s3_key": UPLOAD, "model": "bedrock/unpriced", "max_cost_usd": 5}, "input.max_cost_usd"),
        ({"text": TEXT, "max_cost_usd": 0.00001}, "input.max_cost_usd"),
        ({"document_id": "notes", "max_cost_usd": 0.00001}, "input.max_cost_usd"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_refused(inputs: Inputs, blobs: Blobs, given: dict[str, Any], field: str) -> None:
    """A wrong source or model, an unknown price and too high a cost are refused, and nothing is stored."""
    assert refused(inputs, **given) == field
    assert not blobs.exists("inputs/ana/job_1")


@pytest.mark.parametrize(
    "given",
    [
        {"text": TEXT, "max_cost_usd": 1},
        {"document_id": "notes", "max_cost_usd": 1},
        {"text": f"<html><style>{'x' * 4000}</style><p>Text</p></html>", "max_cost_usd": 0.00001},
        {"text": " ", "max_cost_usd": 0.00001},
        {"s3_key": UPLOAD, "max_cost_usd": 0.00001},
        {"text": TEXT, "model": "bedrock/unpriced"},
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_accepted(inputs: Inputs, given: dict[str, Any]) -> None:
    """A cost within the limit is accepted, and one that is not known before the source has been read."""
    assert prepare(inputs, **given)["style"] == "paragraph"
