"""The body of POST /jobs: a union of the kinds' models with the discriminator `kind`."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import create_model

from core.jobs import Kind
from core.jobs.models import JobRequest


def any_job(kinds: Mapping[str, Kind]) -> tuple[Any, tuple[str, ...]]:
    """The type of the body, with a model for each submittable kind, and the values of its discriminator."""
    models = {kind.name: request_model(kind) for kind in kinds.values() if kind.submittable}
    if len(models) == 1:  # pydantic has no union of one model
        return next(iter(models.values())), ()
    union: Any = reduce(operator.or_, models.values())
    return Annotated[union, Body(discriminator="kind")], tuple(models)


def request_model(kind: Kind) -> type[JobRequest]:
    """The model of this kind."""
    name = "".join(part.capitalize() for part in kind.name.split("_"))
    model: type[JobRequest] = create_model(
        f"{name}Job",
        __base__=JobRequest,
        __doc__=kind.input.__doc__,
        kind=(_literal(kind.name), ...),
        input=(kind.input, ...),
    )
    model.event_names = kind.event_names
    return model


def _literal(name: str) -> Any:
    return Literal[name]
