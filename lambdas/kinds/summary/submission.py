"""What POST /jobs does for a summary: it checks the model, the source and the cost, and stores the text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from core.dependencies import dependencies
from core.errors import InvalidDocument, InvalidRequest
from core.jobs import Inputs
from core.llm.catalog import Model
from core.llm.estimate import check_cost, choose_model
from core.llm.provider import Usage
from core.llm.tokens import estimate_text
from kinds.document.dependencies import document_dependencies
from kinds.document.reading.sniff import HTML, sniff
from kinds.document.reading.text import clean
from kinds.summary.dependencies import summary_dependencies
from kinds.summary.estimate import Sizes, estimate
from kinds.summary.models import SummaryInput
from kinds.summary.parts import MAX_PARTS, parts_of
from kinds.summary.prompts import Form


def prepare(request: SummaryInput, inputs: Inputs) -> Mapping[str, Any]:
    """The stored input. Raises InvalidRequest, which names the field, and PayloadTooLarge.

    What an upload costs is known when it has been read: the first stage compares that with `max_cost_usd`.
    """
    model = choose_model(dependencies.settings.models, request.model)
    check_cost(model, Usage(0, 0), max_cost_usd=request.max_cost_usd)  # the price must be known
    options = request.model_dump(include={"style", "max_words", "max_cost_usd", "allow_sample"}, exclude_none=True)
    return {**options, "model": model.name, **_source(request, model, inputs)}


def _source(request: SummaryInput, model: Model, inputs: Inputs) -> Mapping[str, Any]:
    if request.document_id is not None:
        _check_document(request, model, inputs.owner, request.document_id)
        return {"document_id": request.document_id}
    if request.text is not None:
        _check_text(request, model, request.text)
        return inputs.keep_text(request.text, field="input.text")
    return inputs.pin_upload(request.s3_key or "", field="input.s3_key")


def _check_text(request: SummaryInput, model: Model, text: str) -> None:
    """As the first stage does, which has to read HTML and explains what is wrong with a text."""
    try:
        if request.max_cost_usd is not None and sniff(text.encode()) != HTML:
            size, parts = parts_of(clean(text), summary_dependencies.settings.summary_part_tokens)
            _check(request, model, [estimate_text(part) for part in parts], size)
    except InvalidDocument:
        return


def _check_document(request: SummaryInput, model: Model, owner: str, document_id: str) -> None:
    """As if the text had letters only: the first stage reads it, and may find more tokens."""
    document = document_dependencies.catalog.get(owner, document_id)
    if document is None:
        message = "You have no indexed document of this name. GET /documents lists yours."
        raise InvalidRequest(message, field="input.document_id")
    size = summary_dependencies.settings.summary_part_tokens
    tokens = document.characters * estimate_text("x" * 1000) // 1000
    parts = min(MAX_PARTS, max(1, math.ceil(tokens / size)))
    _check(request, model, [tokens // parts] * parts, max(size, tokens // parts))


def _check(request: SummaryInput, model: Model, parts: Sequence[int], part_tokens: int) -> None:
    expected = estimate(parts, Form(request.style, request.max_words), Sizes(part_tokens))
    check_cost(model, expected.usage, max_cost_usd=request.max_cost_usd)
