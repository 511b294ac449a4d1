"""Stage 1: reads the lines, cuts their texts into batches, and refuses a job that may cost too much."""

from __future__ import annotations

from typing import Any

from core.aws import errors as aws_errors
from core.dependencies import dependencies
from core.errors import CostLimitExceeded, InvalidRequest
from core.jobs import begin, step
from core.jobs.finish import end_step
from core.llm.catalog import Model
from core.llm.estimate import check_cost
from core.llm.prices import cost
from core.llm.provider import Usage
from kinds.embedding import lines
from kinds.embedding.dependencies import embedding_dependencies
from kinds.embedding.files import write_plan
from kinds.embedding.kind import EMBEDDING
from kinds.embedding.planning import batches_of, tokens_of


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    jobs, blobs, lease = dependencies.jobs, dependencies.blobs, event["execution"]
    settings = embedding_dependencies.settings
    job = jobs.apply(event["job_id"], begin(EMBEDDING, stage="plan", lease=lease))
    found = lines.read(blobs.get(job.input["source_key"], etag=job.input["etag"]))
    tokens = [tokens_of(text) for text in found.texts]
    batches = batches_of(tokens, texts=settings.texts_per_batch, most_tokens=settings.tokens_per_batch)
    expected = Usage(sum(tokens), 0)
    facts: dict[str, Any] = {
        "lines": len(found.lines),
        "texts": len(found.texts),
        "batches": len(batches),
        "input_tokens": expected.input_tokens,
        "estimated_cost_usd": cost(job.input["model"], expected),
    }
    try:
        check_cost(Model(name=job.input["model"]), expected, max_cost_usd=job.input.get("max_cost_usd"))
    except InvalidRequest as error:
        jobs.apply(job.job_id, step(verb="planned", lease=lease, **facts))
        raise CostLimitExceeded(str(error)) from None
    write_plan(blobs, job.job_id, found, batches)
    end_step(jobs, blobs, job, step(verb="planned", lease=lease, next_stage="embed", **facts))
    jobs.progress.expect_batches(job, len(batches))
    return {"batches": len(batches), "last_batch": len(batches) - 1}
