"""The fields that the inputs and results of all kinds that call models share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from core.models import Request, ShortText


class ModelOptions(Request):
    """What every job that calls a model takes."""

    model: ShortText | None = Field(None, description="One of the deployment's models; its first one if absent.")
    max_cost_usd: float | None = Field(
        None,
        gt=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="Refuses the job if it could cost more. The model's price must be known.",
    )
    allow_sample: bool = Field(
        False, description="If no model answers, complete with a recorded sample; the result says so."
    )


class TokenUsage(BaseModel):
    """Tokens as the provider counted them."""

    input_tokens: int
    output_tokens: int


class ModelResult(BaseModel):
    """What the result of every job that calls a model says of it."""

    usage: TokenUsage
    cost_usd: float | None = Field(description="Null if the model's price is not known.")
    cost_estimated: bool = Field(description="True if the provider did not count the tokens: the cost is a limit.")
    model: str
    stop_reason: str = Field(description="Why the text ends: `end`, `stop_sequence`, or `max_tokens` (cut off).")
    sample: bool = Field(False, description="True if no model answered and this is a recorded sample.")


def sample_facts() -> dict[str, Any]:
    """The fields of ModelResult for a recorded sample: no model was called."""
    return {
        "usage": {"input_tokens": 0, "output_tokens": 0},
        "cost_usd": 0.0,
        "cost_estimated": False,
        "model": "sample",
        "stop_reason": "end",
        "sample": True,
    }
