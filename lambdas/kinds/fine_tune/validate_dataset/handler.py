"""Stage 1: checks the dataset, and refuses a job whose training may cost too much."""

from __future__ import annotations

from typing import Any

from core.aws import errors as aws_errors
from core.dependencies import dependencies
from core.errors import CostLimitExceeded, JobFailure
from core.jobs import Job, begin, step
from core.jobs.finish import end_step
from core.llm.prices import training_cost
from kinds.fine_tune.dataset import Dataset, check, described
from kinds.fine_tune.dependencies import fine_tune_dependencies
from kinds.fine_tune.families import family_of
from kinds.fine_tune.files import dataset_key, result_key
from kinds.fine_tune.kind import FINE_TUNE
from kinds.fine_tune.models import InvalidDataset

NAMED_ERRORS = 5


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    jobs, blobs, lease = dependencies.jobs, dependencies.blobs, event["execution"]
    job = jobs.apply(event["job_id"], begin(FINE_TUNE, stage="validate", lease=lease))
    source, family = job.input, family_of(job.input["base_model"])
    found = check(
        blobs.get(source["source_key"], etag=source["etag"]),
        family,
        min_examples=fine_tune_dependencies.settings.fine_tune_min_examples,
    )
    tokens = found.tokens * job.input["epochs"]
    cost = training_cost(source["base_model"], tokens)
    facts: dict[str, Any] = {
        "examples": found.lines,
        "format": found.format,
        "converted_to": family.format if found.format not in (None, family.format) else None,
        "training_tokens": tokens,
        "estimated_cost_usd": cost,
        "error_count": found.errors.count,
        "errors": found.errors.as_json(),
        "warning_count": found.warnings.count,
        "warnings": found.warnings.as_json(),
    }
    if refusal := _refusal(job, found, cost):
        jobs.apply(job.job_id, step(verb="validated", lease=lease, **facts))
        raise refusal
    blobs.put(dataset_key(job.job_id), found.data.getvalue(), content_type="application/jsonl")
    end_step(jobs, blobs, job, step(verb="validated", lease=lease, next_stage="train", **facts))
    return {"result_key": result_key(job.job_id)}


def _refusal(job: Job, found: Dataset, cost: float | None) -> JobFailure | None:
    """Why nothing must be trained for this job, if so."""
    if found.errors.count:
        named = " ".join(described(found.errors, NAMED_ERRORS))
        counted = (
            f"The dataset has {found.errors.count} errors"
            if found.errors.count > 1
            else "The dataset has an error"
        )
        return InvalidDataset(f"{counted}. {named} The event fine_tune.validated lists them.")
    limit = job.input.get("max_cost_usd")
    if limit is not None and (cost is None or cost > limit):
        return CostLimitExceeded(
            f"The training may cost up to {cost} USD, more than max_cost_usd. Nothing was spent. Use fewer "
            "examples or epochs, or raise max_cost_usd."
        )
    return None
