"""Completions: one call of a language model, whose text arrives over WebSocket as it is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core.jobs import Attempt, Inputs, Job, Kind, Services, Wait
from kinds.completion.models import Completed, CompletionInput, CompletionRequested, JsonSchemaFormat


def _prepare(request: CompletionInput, inputs: Inputs) -> Mapping[str, Any]:
    """Prompts are files: they are not in the job's row, in events or in logs."""
    from kinds.completion.prompt import price  # only the API has its settings

    content: dict[str, Any] = {"messages": request.turns(), "stop": request.stop}
    if isinstance(request.response_format, JsonSchemaFormat):
        content["schema"] = request.response_format.json_schema
    priced = price(request, content)
    stored = inputs.keep_text(json.dumps(content, ensure_ascii=False), field=f"input.{_source(request)}")
    options: dict[str, Any] = {"stream": request.stream, "allow_sample": request.allow_sample}
    if request.temperature is not None:
        options["temperature"] = request.temperature
    return {**priced, **options, **stored}


def _source(request: CompletionInput) -> str:
    return next(name for name in ("messages", "prompt", "template") if getattr(request, name) is not None)


def _admit(job: Job, services: Services) -> Wait | None:
    from kinds.completion.work import admit  # only the worker has its settings

    return admit(job)


def _work(attempt: Attempt) -> Mapping[str, Any]:
    from kinds.completion.work import complete

    return complete(attempt, is_last=attempt.job.attempts >= COMPLETION.max_attempts)


COMPLETION = Kind(
    name="completion",
    input=CompletionInput,
    example={"prompt": "Name the largest planet of the solar system."},
    result=Completed,
    stages=("call",),
    events={"requested": CompletionRequested, "completed": Completed},
    runs_on="worker",
    prepare=_prepare,
    admit=_admit,
    work=_work,
)
