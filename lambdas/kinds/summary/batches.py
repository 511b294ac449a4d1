"""The messages of a summary: one for each part, and then one that has the summaries of the parts merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.dependencies import dependencies
from core.errors import ModelUnavailable, Postponed
from core.jobs import Job, step
from core.llm.estimate import model_of
from kinds.summary import sample
from kinds.summary.files import Plan, read_plan, totals, write_result
from kinds.summary.summarizer import Summarizer


def on_batch(job: Job, message: Mapping[str, Any], seconds_left: Callable[[], float]) -> None:
    """Summarize a part or, if the message says `reduce`, merge the summaries of all parts and write the result."""
    plan = read_plan(dependencies.blobs, job.job_id)
    try:
        if not sample.stands_in(dependencies.blobs, job):
            _work(job, message, plan, seconds_left)
    except (ModelUnavailable, Postponed) as error:
        if not sample.may_stand_in(dependencies.blobs, job, message["batch"], error):
            raise
    if not message.get("reduce"):
        dependencies.jobs.progress.mark_batch(job, message["batch"], total=plan.parts)
    elif sample.stands_in(dependencies.blobs, job):
        _write(job, plan, sample.SAMPLE)


def _work(job: Job, message: Mapping[str, Any], plan: Plan, seconds_left: Callable[[], float]) -> None:
    summarizer = Summarizer(
        job,
        plan,
        model_of(job, dependencies.settings.models),
        blobs=dependencies.blobs,
        caller=dependencies.model_caller,
        require_open=lambda: dependencies.jobs.require_open(job.job_id),
        seconds_left=seconds_left,
    )
    if not message.get("reduce"):
        summarizer.summarize(message["batch"])
        return
    summarized = step(verb="summarized", lease=message["execution"], next_stage="reduce", parts=plan.parts)
    dependencies.jobs.apply(job.job_id, summarized)
    _write(job, plan, summarizer.reduce())


def _write(job: Job, plan: Plan, result: Mapping[str, Any]) -> None:
    blobs = dependencies.blobs
    write_result(blobs, job.job_id, {**result, "parts": plan.parts, **totals(blobs, job.job_id)})
