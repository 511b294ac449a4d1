"""What POST /jobs does for a dataset: it checks the names of columns against each other, and pins the uploads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import InvalidRequest
from core.jobs import Inputs
from kinds.dataset.models import DatasetInput


def prepare(request: DatasetInput, inputs: Inputs) -> Mapping[str, Any]:
    """The stored input. Raises InvalidRequest, which names the field, and PayloadTooLarge."""
    _check_names(request)
    options = request.model_dump(
        include={"target", "task", "id_column", "date_columns", "drop"}, exclude_none=True, mode="json"
    )
    stored = {**options, **inputs.pin_upload(request.s3_key, field="input.s3_key")}
    if request.predict_s3_key is not None:
        stored["predict"] = inputs.pin_upload(request.predict_s3_key, field="input.predict_s3_key")
    return stored


def _check_names(request: DatasetInput) -> None:
    if request.id_column == request.target:
        raise InvalidRequest("The id cannot be the target. Leave id_column out.", field="input.id_column")
    if request.target in (request.drop or ()):
        raise InvalidRequest("The target cannot be dropped. Remove it from drop.", field="input.drop")
