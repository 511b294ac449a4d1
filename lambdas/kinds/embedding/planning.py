"""Cuts texts into batches, and says what embedding them costs at most."""

from __future__ import annotations

from collections.abc import Sequence

from core.llm.catalog import Model
from core.llm.tokens import estimate_text

# Each batch takes 8 events of an execution's history, which has at most 25,000:
# https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
MAX_BATCHES = 400
MAX_TOKENS = 8192  # of a text: https://docs.aws.amazon.com/bedrock/latest/userguide/titan-embedding-models.html
GROWTH = 1.25


def model_of(embedding: str, name: str) -> Model:
    """The deployment's embedding model, named as in prices: `bedrock/amazon.titan-embed-text-v2:0`."""
    return Model(name=f"{embedding}/{name}")


def tokens_of(text: str) -> int:
    """Of one call at most: the model refuses a longer text."""
    return min(MAX_TOKENS, estimate_text(text))


def batches_of(tokens: Sequence[int], *, texts: int, most_tokens: int) -> list[int]:
    """How many texts each batch has, in order: at most `texts`, with at most `most_tokens` tokens together.

    Both limits grow if there would be more than MAX_BATCHES. There is at least one batch, which may be empty.
    """
    while len(sizes := _cut(tokens, texts, most_tokens)) > MAX_BATCHES:
        texts, most_tokens = int(texts * GROWTH) + 1, int(most_tokens * GROWTH) + 1
    return sizes


def _cut(tokens: Sequence[int], texts: int, most_tokens: int) -> list[int]:
    sizes, filled = [0], 0
    for count in tokens:
        if sizes[-1] and (sizes[-1] == texts or filled + count > most_tokens):
            sizes.append(0)
            filled = 0
        sizes[-1] += 1
        filled += count
    return sizes
