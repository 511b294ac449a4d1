"""The model of a submission, its tokens and its price, checked before anything is stored or spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.dependencies import dependencies
from core.errors import InvalidRequest
from core.llm.estimate import check_limits, choose_model
from core.llm.provider import Message, ModelRequest, Usage
from core.llm.tokens import estimate_input
from kinds.completion.models import CompletionInput

BEDROCK_MAX_TEMPERATURE = 1.0
"""https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InferenceConfiguration.html"""


def price(request: CompletionInput, content: Mapping[str, Any]) -> dict[str, Any]:
    """`{model, max_tokens, input_tokens}` of the call. Raises InvalidRequest."""
    config = dependencies.settings
    model = choose_model(config.models, request.model)
    if model.provider == "bedrock" and (request.temperature or 0) > BEDROCK_MAX_TEMPERATURE:
        raise InvalidRequest(f"{model.name} takes temperatures from 0 to 1.", field="input.temperature")
    max_tokens = request.max_tokens or config.max_output_tokens
    if max_tokens > config.max_output_tokens:
        raise InvalidRequest(
            f"This deployment allows answers of up to {config.max_output_tokens} tokens.", field="input.max_tokens"
        )
    input_tokens = estimate_input(model_request(content, model=model.id, max_tokens=max_tokens))
    check_limits(model, Usage(input_tokens, max_tokens), max_cost_usd=request.max_cost_usd)
    return {"model": model.name, "max_tokens": max_tokens, "input_tokens": input_tokens}


def model_request(content: Mapping[str, Any], **options: Any) -> ModelRequest:
    """The call with this stored content: messages, stop and perhaps a schema."""
    return ModelRequest(
        messages=_messages(content["messages"]),
        stop=tuple(content["stop"]),
        schema=content.get("schema"),
        **options,
    )


def _messages(turns: Sequence[Mapping[str, str]]) -> tuple[Message, ...]:
    return tuple(Message(role=turn["role"], content=turn["content"]) for turn in turns)  # type: ignore[arg-type]
