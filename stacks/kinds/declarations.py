"""The one door from what is deployed to the code: what kinds of jobs declare of themselves."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "lambdas"))  # the functions' source root

from core.errors import Retryable
from core.jobs import Kind
from core.jobs.kind import NOTIFY
from kinds import KINDS

__all__ = ["KINDS", "NOTIFY", "Kind", "retryable_errors"]


def retryable_errors() -> list[str]:
    """The names of errors that are worth another try. Step Functions compares names, and knows no subclasses."""
    return [cls.__name__ for cls in Retryable.__subclasses__()]
