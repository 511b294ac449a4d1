"""What POST /jobs does for a bulk embedding (kinds.embedding.submission)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from core.aws.blobs import Blobs
from core.errors import InvalidRequest, PayloadTooLarge
from core.jobs import Inputs, JobStore
from kinds.embedding import lines
from kinds.embedding.kind import EMBEDDING
from kinds.embedding.models import MAX_TEXTS, EmbeddingInput
from tests.unit.kinds.embedding.model import MODEL


def prepare(blobs: Blobs, **given: Any) -> dict[str, Any]:
    inputs = Inputs(owner="ana", job_id="job_1", blobs=blobs, max_inline_bytes=1000, max_upload_bytes=1000)
    return dict(EMBEDDING.prepare(EmbeddingInput.model_validate(given), inputs))


def test_texts(store: JobStore, blobs: Blobs) -> None:
    """Texts are stored as lines, which are read as they were sent; the first event has their number."""
    texts = ["Año", 'a "quoted"\nline', "a\x00b", "", "Año"]
    stored = prepare(blobs, texts=texts)
    assert (stored["model"], stored["lines"]) == (MODEL, 5)
    assert [json.loads(line) for line in blobs.get(stored["source_key"]).decode().split("\n")[:-1]] == texts
    assert [line.text for line in lines.read(blobs.get(stored["source_key"])).lines] == [0, 1, 2, None, 0]
    assert EMBEDDING.submitted_fields(stored) == {"model": MODEL, "lines": 5}


def test_upload(store: JobStore, blobs: Blobs) -> None:
    """An upload is pinned, and read later."""
    etag = blobs.put("uploads/ana/upl_1/a", b"7")
    stored = prepare(blobs, s3_key="uploads/ana/upl_1/a", max_cost_usd=0.5)
    assert stored == {
        "model": MODEL,
        "max_cost_usd": 0.5,
        "source_key": "uploads/ana/upl_1/a",
        "etag": etag,
        "bytes": 1,
    }


def test_cost(store: JobStore, blobs: Blobs) -> None:
    """Texts that may cost more than allowed are refused. A text that is sent twice counts once."""
    text = "日" * 100  # 300 tokens at most
    assert prepare(blobs, texts=[text, text], max_cost_usd=0.000006)
    with pytest.raises(InvalidRequest, match=r"0\.000006 USD") as caught:
        prepare(blobs, texts=[text], max_cost_usd=0.0000059)
    assert caught.value.field == "input.max_cost_usd"


def test_no_price(store: JobStore, blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of the cost needs a model whose price is known."""
    monkeypatch.setenv("EMBEDDING_MODEL", "other")
    assert prepare(blobs, texts=["a"])["model"] == "bedrock/other"
    with pytest.raises(InvalidRequest, match="price of bedrock/other is not known"):
        prepare(blobs, texts=["a"], max_cost_usd=1)


def test_too_large(store: JobStore, blobs: Blobs) -> None:
    """Many texts need an upload."""
    with pytest.raises(PayloadTooLarge, match="POST /uploads"):
        prepare(blobs, texts=["x" * 500] * 2)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"texts": []},
        {"texts": ["a"], "s3_key": "k"},
        {"texts": ["\ud800"]},
        {"texts": ["a"] * (MAX_TEXTS + 1)},
    ],
)
def test_invalid(given: dict[str, Any]) -> None:
    """There is one source, with 1 to 2,048 texts, which are characters."""
    with pytest.raises(ValidationError):
        EmbeddingInput.model_validate(given)
