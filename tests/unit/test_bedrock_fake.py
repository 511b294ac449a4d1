"""The fake of the embedding model."""

from __future__ import annotations

import json
import math

import pytest

from tests.support import bedrock


def embed(text: str) -> list[float]:
    body = json.dumps({"inputText": text, "dimensions": 256})
    answer = bedrock.invoke_model({"modelId": bedrock.TITAN, "body": body})
    vector: list[float] = json.load(answer["body"])["embedding"]
    return vector


def test_embeddings_are_unit_vectors_that_depend_on_the_text_only() -> None:
    """They have the requested dimensions, and different texts are nearly orthogonal."""
    one, same, other = embed("one"), embed("one"), embed("other")
    assert one == same != other
    assert len(one) == 256
    assert math.hypot(*one) == pytest.approx(1)
    assert abs(sum(a * b for a, b in zip(one, other, strict=True))) < 0.3
