"""What POST /jobs takes: a union over the registry, told apart by `kind`."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import create_model

from core.jobs import Kind
from core.models import JobRequest


def any_job(kinds: Mapping[str, Kind]) -> tuple[Any, tuple[str, ...]]:
    """The type of the body, and the names by which it tells its models apart: one for each submittable kind."""
    models = {kind.name: request_model(kind) for kind in kinds.values() if kind.submittable}
    if len(models) == 1:  # pydantic knows no union of one
        return next(iter(models.values())), ()
    union: Any = reduce(operator.or_, models.values())
    return Annotated[union, Body(discriminator="kind")], tuple(models)


def request_model(kind: Kind) -> type[JobRequest]:
    """The JobRequest of this kind."""
    name = "".join(part.capitalize() for part in kind.name.split("_"))
    model: type[JobRequest] = create_model(
        f"{name}Job",
        __base__=JobRequest,
        __doc__=kind.input.__doc__,
        kind=(_only(kind.name), ...),
        input=(kind.input, ...),
    )
    model.event_names = kind.names
    return model


def _only(name: str) -> Any:
    """The type of this text alone."""
    return Literal[name]
