"""What POST /jobs does for a fine-tune: it checks the model and the hyperparameters, and pins the upload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import InvalidRequest
from core.jobs import Inputs
from core.llm.prices import training_cost
from kinds.fine_tune.dependencies import fine_tune_dependencies
from kinds.fine_tune.families import hyperparameters
from kinds.fine_tune.models import FineTuneInput, Hyperparameters

NO_MODELS = (
    "This deployment has no model that can be fine-tuned. Its operator sets `fine_tune_models` in cdk.json, for "
    'example to ["amazon.nova-micro-v1:0:128k"], and deploys it again.'
)


def prepare(request: FineTuneInput, inputs: Inputs) -> Mapping[str, Any]:
    """The stored input. Raises InvalidRequest, which names the field, and PayloadTooLarge.

    What the training costs is known when the dataset has been read: the first stage compares that with
    `max_cost_usd`.
    """
    model = _choose(fine_tune_dependencies.settings.fine_tune_models, request.model)
    given = request.hyperparameters or Hyperparameters.model_validate({})
    chosen = hyperparameters(
        model, epochs=given.epochs, batch_size=given.batch_size, multiplier=given.learning_rate_multiplier
    )
    if request.max_cost_usd is not None and training_cost(model, 0) is None:
        message = f"The price of training {model} is not known, so max_cost_usd cannot hold. Leave it out."
        raise InvalidRequest(message, field="input.max_cost_usd")
    options = request.model_dump(include={"suffix", "max_cost_usd"}, exclude_none=True)
    pinned = inputs.pin_upload(request.dataset, field="input.dataset")
    return {
        **options,
        **pinned,
        "base_model": model,
        "epochs": int(chosen["epochCount"]),
        "hyperparameters": dict(chosen),
    }


def _choose(models: Sequence[str], name: str | None) -> str:
    if not models:
        raise InvalidRequest(NO_MODELS, field="input.model")
    if name is not None and name not in models:
        raise InvalidRequest(f"This deployment fine-tunes the models {', '.join(models)}.", field="input.model")
    return name or models[0]
