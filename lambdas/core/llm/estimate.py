"""What a submission may cost at most, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import InvalidRequest, ModelRejected
from core.jobs.job import Job
from core.llm.catalog import Model
from core.llm.prices import cost
from core.llm.provider import Usage


def choose_model(models: Mapping[str, Model], name: str | None) -> Model:
    """The model of this name, or the default. Raises InvalidRequest, which lists the models."""
    chosen = next(iter(models.values())) if name is None else models.get(name)
    if chosen is None:
        raise InvalidRequest(f"This deployment has the models {', '.join(models)}.", field="input.model")
    return chosen


def model_of(job: Job, models: Mapping[str, Model]) -> Model:
    """The model that the job was submitted for. Raises ModelRejected if this deployment has it no more."""
    name = job.input["model"]
    if name not in models:
        raise ModelRejected(f"This deployment does not have the model {name} any more. Submit a new job.")
    return models[name]


def check_limits(model: Model, usage: Usage, *, max_cost_usd: float | None) -> None:
    """Raises InvalidRequest if `usage` is above the model's limit of tokens, or its cost above `max_cost_usd`."""
    tokens = usage.input_tokens + usage.output_tokens
    if model.tokens is not None and not model.fits(tokens):
        raise InvalidRequest(
            f"The prompt and max_tokens are up to {tokens} tokens, but {model.name} is limited to "
            f"{model.tokens.limit} at a time. Send a shorter prompt, or ask for fewer tokens.",
            field="input.max_tokens",
        )
    check_cost(model, usage, max_cost_usd=max_cost_usd)


def check_cost(model: Model, usage: Usage, *, max_cost_usd: float | None) -> None:
    """Raises InvalidRequest if the cost of `usage` is above `max_cost_usd`, or not known."""
    if max_cost_usd is None:
        return
    most = cost(model.name, usage)
    if most is None:
        raise InvalidRequest(
            f"The price of {model.name} is not known, so max_cost_usd cannot hold. Leave it out, or choose "
            "another model.",
            field="input.max_cost_usd",
        )
    if most > max_cost_usd:
        raise InvalidRequest(
            f"The job may cost up to {most:.6f} USD, more than max_cost_usd. Nothing was spent. Send less text, "
            "ask for fewer tokens, or raise max_cost_usd.",
            field="input.max_cost_usd",
        )
