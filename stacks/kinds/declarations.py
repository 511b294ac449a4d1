"""The declarations of all kinds of jobs: the only part of `lambdas` that `stacks` may import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "lambdas"))  # the functions' source root

from core.errors import Retryable
from core.jobs import Kind
from core.jobs.kind import NOTIFY
from core.llm.catalog import Model, read_models
from kinds.fine_tune.families import family_of
from kinds.registry import KINDS

__all__ = ["KINDS", "NOTIFY", "Kind", "Model", "family_of", "read_models", "retryable_errors"]


def retryable_errors() -> list[str]:
    """The names of errors that may be retried. Step Functions compares names, and does not know subclasses."""
    return [cls.__name__ for cls in _leaves(Retryable)]


def _leaves(cls: type[Exception]) -> Iterator[type[Exception]]:
    """The subclasses that have no subclasses."""
    for child in cls.__subclasses__():
        yield from _leaves(child) if child.__subclasses__() else (child,)
