"""What a call costs. `prices.json` has the prices, with their date and sources."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.llm.provider import Usage

PRICES = Path(__file__).with_name("prices.json")
DECIMALS = 9
"""Of a cost in USD: one token of the cheapest models costs 35 of the ninth."""
_PROFILE = re.compile(r"^bedrock/(global|[a-z]{2,4}(-gov)?)\.(?=[a-z0-9]+\.)")
"""The prefix of an inference profile that spreads calls over regions, such as `eu.`"""


def cost(model: str, usage: Usage) -> float | None:
    """USD, for a name such as `bedrock/eu.amazon.nova-lite-v1:0`; None if no price of the model is known.

    A profile that has no price of its own has that of its model.
    """
    prices = _prices()
    price = prices.get(model) or prices.get(_PROFILE.sub("bedrock/", model))
    if price is None:
        return None
    per_input, per_output = price
    return round((usage.input_tokens * per_input + usage.output_tokens * per_output) / 1_000_000, DECIMALS)


def training_cost(model: str, tokens: int) -> float | None:
    """USD for training a base model of Amazon Bedrock with so many tokens, of all epochs; None if not known.

    `model`: its id, whose last part is perhaps a context length: `amazon.nova-lite-v1:0:300k`.
    """
    prices: dict[str, float] = _listed()["usd_per_million_training_tokens"]
    price = prices.get(model) or prices.get(model.rpartition(":")[0])
    return None if price is None else round(tokens * price / 1_000_000, DECIMALS)


@functools.cache
def _prices() -> Mapping[str, tuple[float, float]]:
    """USD per million tokens of input and of output, by the name of the model."""
    listed: dict[str, dict[str, float]] = _listed()["usd_per_million_tokens"]
    return {name: (price["input"], price["output"]) for name, price in listed.items()}


@functools.cache
def _listed() -> dict[str, Any]:
    listed: dict[str, Any] = json.loads(PRICES.read_text())
    return listed
