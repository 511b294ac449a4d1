"""Submitting a fine-tune (kinds.fine_tune.submission, kinds.fine_tune.families)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from core.aws.blobs import Blobs
from core.errors import InvalidRequest, PayloadTooLarge
from core.jobs import Inputs, JobStore
from kinds.fine_tune.families import FAMILIES, family_of, hyperparameters
from kinds.fine_tune.kind import FINE_TUNE
from kinds.fine_tune.models import MAX_SUFFIX, FineTuneInput
from tests.unit.kinds.fine_tune.conftest import MODEL, UPLOAD

HAIKU, TITAN, LLAMA = (
    "anthropic.claude-3-haiku-20240307-v1:0:200k",
    "amazon.titan-text-lite-v1:0:4k",
    "meta.llama3-1-8b-instruct-v1:0:128k",
)


@pytest.fixture
def inputs(store: JobStore, blobs: Blobs) -> Inputs:
    blobs.put(UPLOAD, b"{}")
    return Inputs(owner="ana", job_id="job_1", blobs=blobs, max_inline_bytes=10, max_upload_bytes=1000)


def prepare(inputs: Inputs, **given: Any) -> dict[str, Any]:
    return dict(FINE_TUNE.prepare(FineTuneInput.model_validate({"dataset": UPLOAD, **given}), inputs))


def refused(inputs: Inputs, **given: Any) -> tuple[str | None, str]:
    """The field that the error names, and the message."""
    with pytest.raises((InvalidRequest, PayloadTooLarge)) as caught:
        prepare(inputs, **given)
    return caught.value.field, str(caught.value)


def test_stored_input(inputs: Inputs) -> None:
    """The first model is the default. The epochs are always given, since the cost depends on them."""
    stored = prepare(inputs, suffix="support", max_cost_usd=1)
    assert {name: stored[name] for name in stored.keys() - {"etag"}} == {
        "base_model": MODEL,
        "epochs": 2,
        "hyperparameters": {"epochCount": "2"},
        "suffix": "support",
        "max_cost_usd": 1,
        "source_key": UPLOAD,
        "bytes": 2,
    }


def test_no_models(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a model to fine-tune, the error says what the operator configures."""
    monkeypatch.setenv("FINE_TUNE_MODELS", "[]")
    field, message = refused(inputs)
    assert (field, "fine_tune_models" in message) == ("input.model", True)


def test_other_models(inputs: Inputs) -> None:
    """The error lists the models."""
    field, message = refused(inputs, model="amazon.nova-pro-v1:0:300k")
    assert (field, MODEL in message) == ("input.model", True)


def test_unknown_upload(inputs: Inputs) -> None:
    """The error names the field of the upload."""
    assert refused(inputs, dataset="uploads/bo/upl_1/a")[0] == "input.dataset"


def test_price_that_is_not_known(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of the cost needs a known price."""
    monkeypatch.setenv("FINE_TUNE_MODELS", f'["{HAIKU}"]')
    assert refused(inputs, max_cost_usd=1)[0] == "input.max_cost_usd"


@pytest.mark.parametrize("suffix", ["", "-a", "a_", "a--b", "ñ", "x" * (MAX_SUFFIX + 1)])
def test_suffixes(suffix: str) -> None:
    """A suffix that cannot begin a model's name is refused."""
    with pytest.raises(ValidationError, match="suffix"):
        FineTuneInput.model_validate({"dataset": UPLOAD, "suffix": suffix})


@pytest.mark.parametrize(
    ("model", "given", "sent"),
    [
        (MODEL, {"epochs": 5}, {"epochCount": "5"}),
        (MODEL, {"multiplier": 0.5}, {"epochCount": "2", "learningRate": "0.000005"}),
        (
            HAIKU,
            {"multiplier": 2, "batch_size": 8},
            {"learningRateMultiplier": "2", "batchSize": "8", "epochCount": "2"},
        ),
        (TITAN, {"batch_size": 64}, {"epochCount": "5", "batchSize": "64"}),
        (LLAMA, {"multiplier": 10}, {"epochCount": "5", "learningRate": "0.001"}),
    ],
)
def test_hyperparameters(model: str, given: dict[str, Any], sent: dict[str, str]) -> None:
    """Hyperparameters get the names and units of the model."""
    chosen = {"epochs": None, "batch_size": None, "multiplier": None, **given}
    assert hyperparameters(model, **chosen) == sent


@pytest.mark.parametrize(
    ("model", "given", "field"),
    [
        (MODEL, {"epochs": 6}, "epochs"),
        (MODEL, {"batch_size": 1}, "batch_size"),
        (HAIKU, {"batch_size": 3}, "batch_size"),
        (HAIKU, {"multiplier": 2.1}, "learning_rate_multiplier"),
        (MODEL, {"multiplier": 0.01}, "learning_rate_multiplier"),
    ],
)
def test_refused_hyperparameters(model: str, given: dict[str, Any], field: str) -> None:
    """What a model does not take is refused, and the error names the field."""
    with pytest.raises(InvalidRequest) as caught:
        hyperparameters(model, **{"epochs": None, "batch_size": None, "multiplier": None, **given})
    assert caught.value.field == f"input.hyperparameters.{field}"


def test_families() -> None:
    """Each model has one family, and an unknown model is an error that lists them."""
    assert [family_of(f"{family.prefix}x") for family in FAMILIES] == list(FAMILIES)
    with pytest.raises(ValueError, match=r"amazon\.nova-…"):
        family_of("openai.gpt")
