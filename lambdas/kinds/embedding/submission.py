"""What POST /jobs does for a bulk embedding: it checks the cost, and stores the texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core.jobs import Inputs
from core.llm.estimate import check_cost
from core.llm.provider import Usage
from kinds.document.dependencies import document_dependencies
from kinds.embedding.models import EmbeddingInput
from kinds.embedding.planning import model_of, tokens_of


def prepare(request: EmbeddingInput, inputs: Inputs) -> Mapping[str, Any]:
    """The stored input. Raises InvalidRequest, which names the field, and PayloadTooLarge.

    What an upload costs is known when it has been read: the first stage compares that with `max_cost_usd`.
    """
    settings = document_dependencies.settings
    model = model_of(settings.embedding, settings.embedding_model)
    tokens = sum(map(tokens_of, set(request.texts or ())))
    check_cost(model, Usage(tokens, 0), max_cost_usd=request.max_cost_usd)
    limit = {} if request.max_cost_usd is None else {"max_cost_usd": request.max_cost_usd}
    return {"model": model.name, **limit, **_source(request, inputs)}


def _source(request: EmbeddingInput, inputs: Inputs) -> Mapping[str, Any]:
    if request.texts is None:
        return inputs.pin_upload(request.s3_key or "", field="input.s3_key")
    lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in request.texts)
    return {"lines": len(request.texts), **inputs.keep_text(lines, field="input.texts")}
