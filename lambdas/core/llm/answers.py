"""Answers of models, with their cost. They are recorded beside the job, so that none is paid for twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.aws.blobs import Blobs, work_folder
from core.errors import SourceNotFound
from core.llm.provider import StopReason, ToolCall, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A whole answer. `cost_usd`: None if no price of the model is known. `cost_estimated`: the tokens, and so the
    cost, are estimates, because the provider did not count them.
    """

    text: str
    usage: Usage
    cost_usd: float | None
    cost_estimated: bool
    model: str
    stop_reason: StopReason
    tool_calls: Sequence[ToolCall] = ()


def answer_key(job_id: str, name: str) -> str:
    """The key of a recorded answer. `name`: of the call within its job."""
    return f"{work_folder(job_id)}answers/{name}.json"


def record(blobs: Blobs, job_id: str, name: str, answer: ModelAnswer) -> None:
    """Store an answer: the next attempt at the same job reads it instead of calling the model."""
    blobs.put(answer_key(job_id, name), json.dumps(asdict(answer)).encode(), content_type="application/json")


def recorded(blobs: Blobs, job_id: str, name: str) -> ModelAnswer | None:
    """The answer that an earlier attempt recorded, if any."""
    try:
        fields: dict[str, Any] = json.loads(blobs.get(answer_key(job_id, name)))
    except SourceNotFound:
        return None
    calls = tuple(ToolCall(**call) for call in fields.pop("tool_calls"))
    return ModelAnswer(**{**fields, "usage": Usage(**fields["usage"]), "tool_calls": calls})
