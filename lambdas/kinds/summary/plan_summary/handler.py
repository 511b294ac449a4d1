"""Stage 1: reads the text, cuts it into parts, and refuses a job that may cost too much."""

from __future__ import annotations

from typing import Any

from core.aws import errors as aws_errors
from core.dependencies import dependencies
from core.errors import (
    ContextOverflow,
    CostLimitExceeded,
    DocumentTooLarge,
    EmptyDocument,
    InvalidRequest,
    JobFailure,
)
from core.jobs import Job, begin, step
from core.jobs.finish import end_step
from core.llm.catalog import Model
from core.llm.estimate import check_cost, model_of
from core.llm.prices import cost
from core.llm.tokens import estimate_text
from kinds.document.dependencies import document_dependencies
from kinds.document.index.whole_text import live_text
from kinds.document.reading.parse import parse
from kinds.summary.dependencies import summary_dependencies
from kinds.summary.estimate import Estimate, Sizes, estimate
from kinds.summary.files import result_key, write_parts
from kinds.summary.kind import SUMMARY
from kinds.summary.parts import parts_of
from kinds.summary.prompts import Form


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    jobs, blobs, lease = dependencies.jobs, dependencies.blobs, event["execution"]
    job = jobs.apply(event["job_id"], begin(SUMMARY, stage="plan", lease=lease))
    model = model_of(job, dependencies.settings.models)
    size, parts = parts_of(_text(job), summary_dependencies.settings.summary_part_tokens)
    if not parts:
        raise EmptyDocument("The document contains only white space.")
    form = Form(job.input["style"], job.input["max_words"])
    expected = estimate([estimate_text(part) for part in parts], form, Sizes(size))
    facts: dict[str, Any] = {
        "parts": len(parts),
        "input_tokens": expected.usage.input_tokens,
        "calls": expected.calls,
        "estimated_cost_usd": cost(model.name, expected.usage),
    }
    if refusal := _refusal(job, model, expected):
        jobs.apply(job.job_id, step(verb="planned", lease=lease, **facts))
        raise refusal
    write_parts(blobs, job.job_id, parts, part_tokens=size)
    end_step(jobs, blobs, job, step(verb="planned", lease=lease, next_stage="summarize", **facts))
    jobs.progress.expect_batches(job, len(parts))
    return {"parts": len(parts), "last_part": len(parts) - 1, "result_key": result_key(job.job_id)}


def _text(job: Job) -> str:
    """The whole text of the job's source. Raises InvalidDocument."""
    source, blobs, limits = job.input, dependencies.blobs, document_dependencies.limits
    if "document_id" in source:
        return live_text(document_dependencies.catalog, blobs, job.owner, source["document_id"])
    data = blobs.get(source["source_key"], etag=source["etag"], max_bytes=limits.max_bytes + 1)
    if len(data) > limits.max_bytes:
        raise DocumentTooLarge(f"The document has more than {limits.max_bytes} bytes, which is the limit.")
    return parse(data, limits=limits).text


def _refusal(job: Job, model: Model, expected: Estimate) -> JobFailure | None:
    """Why the model must not be called for this job, if so."""
    tokens = expected.largest.input_tokens + expected.largest.output_tokens
    if not model.fits(tokens):
        return ContextOverflow(
            f"A call would have up to {tokens} tokens, which is above the limit of {model.name}. "
            "Choose another model, or split the document."
        )
    try:
        check_cost(model, expected.usage, max_cost_usd=job.input.get("max_cost_usd"))
    except InvalidRequest as error:
        return CostLimitExceeded(str(error))
    return None
