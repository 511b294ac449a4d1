"""The base models that Amazon Bedrock fine-tunes, and what each takes.

https://docs.aws.amazon.com/bedrock/latest/userguide/custom-models-hp.html
https://docs.aws.amazon.com/bedrock/latest/userguide/model-customization-prepare.html
https://docs.aws.amazon.com/bedrock/latest/userguide/quotas.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from core.errors import InvalidRequest
from kinds.fine_tune.formats import CONVERSATION, MESSAGES, PROMPT, Format

FIELD = "input.hyperparameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models whose ids begin with `prefix`. Ranges contain both ends.

    `max_tokens`: of an example. `batch_sizes`: None if the service sets it. `learning_rates`: (least, default,
    most) in the unit that the service takes; a multiplier if `takes_multiplier`.
    """

    prefix: str
    format: Format
    max_examples: int
    max_tokens: int
    epochs: tuple[int, int]
    default_epochs: int
    learning_rates: tuple[Decimal, Decimal, Decimal]
    batch_sizes: tuple[int, int] | None = None
    takes_multiplier: bool = False


def _rates(least: str, default: str, most: str) -> tuple[Decimal, Decimal, Decimal]:
    return Decimal(least), Decimal(default), Decimal(most)


FAMILIES = (
    Family(
        prefix="amazon.nova-",
        format=CONVERSATION,
        max_examples=20_000,
        max_tokens=32_000,
        epochs=(1, 5),
        default_epochs=2,
        learning_rates=_rates("0.000001", "0.00001", "0.0001"),
    ),
    *(
        Family(
            prefix=f"amazon.titan-text-{name}-",
            format=PROMPT,
            max_examples=10_000,
            max_tokens=tokens,
            epochs=(1, 10),
            default_epochs=5,
            learning_rates=_rates("0", "0.00001", "1"),
            batch_sizes=(1, 64),
        )
        for name, tokens in (("lite", 4096), ("express", 8192))
    ),
    Family(
        prefix="anthropic.claude-3-haiku-",
        format=MESSAGES,
        max_examples=10_000,
        max_tokens=32_000,
        epochs=(1, 10),
        default_epochs=2,
        learning_rates=_rates("0.1", "1", "2"),
        batch_sizes=(4, 256),
        takes_multiplier=True,
    ),
    Family(
        prefix="meta.llama3-1-",
        format=PROMPT,
        max_examples=10_000,
        max_tokens=16_000,
        epochs=(1, 10),
        default_epochs=5,
        learning_rates=_rates("0.000005", "0.0001", "0.1"),
    ),
)


def family_of(model: str) -> Family:
    """Raises ValueError for a model of no known family."""
    for family in FAMILIES:
        if model.startswith(family.prefix):
            return family
    known = ", ".join(f"{family.prefix}…" for family in FAMILIES)
    raise ValueError(f"{model!r} is not a model that can be fine-tuned here; use {known}")


def hyperparameters(
    model: str, *, epochs: int | None, batch_size: int | None, multiplier: float | None
) -> Mapping[str, str]:
    """In the service's names. Epochs are always given, since the cost depends on them. Raises InvalidRequest."""
    family = family_of(model)
    epochs = family.default_epochs if epochs is None else epochs
    _check("epochs", epochs, family.epochs)
    found = {"epochCount": str(epochs)}
    if batch_size is not None:
        if family.batch_sizes is None:
            raise InvalidRequest(f"{model} has a fixed batch size. Leave it out.", field=f"{FIELD}.batch_size")
        _check("batch_size", batch_size, family.batch_sizes)
        found["batchSize"] = str(batch_size)
    if multiplier is not None:
        least, default, most = family.learning_rates
        factor = Decimal(str(multiplier))
        _check("learning_rate_multiplier", factor, (least / default, most / default))
        name = "learningRateMultiplier" if family.takes_multiplier else "learningRate"
        found[name] = f"{(default * factor).normalize():f}"
    return found


def _check(name: str, value: Decimal | int, limits: tuple[Decimal | int, Decimal | int]) -> None:
    least, most = limits
    if not least <= value <= most:
        raise InvalidRequest(f"Send a value from {least} to {most}.", field=f"{FIELD}.{name}")
