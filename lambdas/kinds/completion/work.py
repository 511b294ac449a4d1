"""The work of a completion: one call, whose answer is recorded before the job completes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from core.dependencies import dependencies
from core.errors import ModelUnavailable
from core.jobs import Attempt, Job, Wait
from core.live.channel import Channel
from core.llm.answers import ModelAnswer
from core.llm.estimate import model_of
from core.llm.options import sample_facts
from kinds.completion.prompt import model_request

CALL = "completion"
SAMPLE = "(A recorded sample: no model answered.) The largest planet of the solar system is Jupiter."


def admit(job: Job) -> Wait | None:
    """A call whose answer is recorded takes no part of the limits."""
    model = dependencies.settings.models.get(job.input["model"])
    if model is None or (job.attempts and dependencies.model_caller.recorded(job, CALL)):
        return None
    return dependencies.model_caller.admit(job, model, tokens=job.input["input_tokens"] + job.input["max_tokens"])


def complete(attempt: Attempt, *, is_last: bool) -> Mapping[str, Any]:
    """`is_last`: whether there will be no further attempt."""
    job = attempt.job
    earlier = dependencies.model_caller.recorded(job, CALL) if job.attempts > 1 else None
    try:
        return _result(earlier or _call(attempt))
    except ModelUnavailable:
        if is_last and job.input["allow_sample"]:
            return {"text": SAMPLE, **sample_facts()}
        raise


def _call(attempt: Attempt) -> ModelAnswer:
    job = attempt.job
    stored, model = job.input, model_of(job, dependencies.settings.models)
    content = json.loads(attempt.blobs.get(stored["source_key"], etag=stored["etag"]))
    request = model_request(
        content,
        model=model.id,
        max_tokens=stored["max_tokens"],
        temperature=stored.get("temperature"),
        stream=stored["stream"],
    )
    with _listeners(job) as on_text:
        return dependencies.model_caller.call(
            job,
            model,
            request,
            name=CALL,
            require_open=attempt.require_open,
            seconds_left=attempt.seconds_left,
            on_text=on_text,
        )


@contextmanager
def _listeners(job: Job) -> Iterator[Callable[[str], None]]:
    """Where the text goes as it is made. A later attempt starts over: listeners get its whole text anew."""
    if not job.input["stream"]:
        yield lambda text: None
        return
    with Channel(job.job_id, dependencies.subscriptions, dependencies.sockets) as channel:
        yield channel.write


def _result(answer: ModelAnswer) -> Mapping[str, Any]:
    return {
        "text": answer.text,
        "usage": asdict(answer.usage),
        "cost_usd": answer.cost_usd,
        "cost_estimated": answer.cost_estimated,
        "model": answer.model,
        "stop_reason": answer.stop_reason,
        "sample": False,
    }
