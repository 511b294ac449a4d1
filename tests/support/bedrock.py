"""A fake of the embedding model in Amazon Bedrock, which moto lacks."""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
from typing import Any

from botocore.response import StreamingBody

TITAN = "amazon.titan-embed-text-v2:0"


def embedding(text: str, dimensions: int) -> list[float]:
    """A unit vector that depends on the text only. The vectors of different texts are nearly orthogonal."""
    chance = random.Random(hashlib.sha256(text.encode()).digest())
    values = [chance.gauss(0, 1) for _ in range(dimensions)]
    length = math.hypot(*values)
    return [value / length for value in values]


def invoke_model(params: dict[str, Any]) -> dict[str, Any]:
    """The response of Titan Text Embeddings V2 to `bedrock-runtime:InvokeModel`."""
    if params["modelId"] != TITAN:
        raise NotImplementedError(f"model {params['modelId']}")
    body = json.loads(params["body"])
    vector = embedding(body["inputText"], body.get("dimensions", 1024))
    tokens = max(1, len(body["inputText"]) // 4)
    answer = {"embedding": vector, "embeddingsByType": {"float": vector}, "inputTextTokenCount": tokens}
    raw = json.dumps(answer).encode()
    return {"contentType": "application/json", "body": StreamingBody(io.BytesIO(raw), len(raw))}


ANSWERS = {"bedrock-runtime:InvokeModel": invoke_model}
"""What the simulated cloud answers instead of moto."""
