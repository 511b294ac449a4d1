"""Embeds one batch of texts. What came of it is stored even if the batch fails: it was paid for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.dependencies import dependencies
from core.errors import ContextOverflow, ModelRejected, Unavailable
from core.jobs import Job
from core.jobs.usage import CallUsage, UsageStore
from core.llm.prices import cost
from core.llm.provider import Usage
from kinds.document.dependencies import document_dependencies
from kinds.document.index.embedding import Embedder
from kinds.embedding.files import Outcome, read_outcome, read_texts, write_outcome
from kinds.embedding.lines import LineError
from kinds.embedding.planning import tokens_of

SecondsLeft = Callable[[], float]

RESERVE_SECONDS = 30.0  # for storing vectors before the function times out
MAX_FAULTS = 3
"""Calls for one text that fail at the model. Throttled calls do not count."""
MAX_FAILED_IN_A_ROW = 3
"""After so many texts it is the model that fails and not the texts."""


def on_batch(job: Job, message: Mapping[str, Any], seconds_left: SecondsLeft) -> None:
    """Embed the texts of one batch that have neither a vector nor an error yet."""
    blobs, embedder = dependencies.blobs, document_dependencies.embedder
    batch = message["batch"]
    texts = read_texts(blobs, job.job_id, batch)
    outcome = read_outcome(blobs, job.job_id, batch, dimensions=embedder.dimensions)
    done, vectors, tokens = outcome.done, len(outcome.vectors), outcome.input_tokens
    try:
        embed(texts, outcome, embedder, seconds_left=lambda: seconds_left() - RESERVE_SECONDS)
    finally:
        if outcome.done > done:
            write_outcome(blobs, job.job_id, batch, outcome)
        _count(job, calls=len(outcome.vectors) - vectors, tokens=outcome.input_tokens - tokens)
    dependencies.jobs.progress.mark_batch(job, batch, total=message["batches"])


def embed(texts: Sequence[str], outcome: Outcome, embedder: Embedder, *, seconds_left: SecondsLeft) -> None:
    """Continue the outcome until all texts are done.

    A text that the model refuses is an error of its line. So is one for which the model fails MAX_FAULTS times, if
    it answers for other texts. Raises Throttled without time for another attempt, and Unavailable if the model
    fails for every text.
    """
    failed: dict[int, LineError] = {}  # since the model answered last
    for place in range(outcome.done, len(texts)):
        try:
            answer = embedder.embed_text(texts[place], seconds_left=seconds_left, max_faults=MAX_FAULTS)
        except Unavailable as error:
            failed[place] = LineError("model_failed", f"{error} Submit the text again.")
            if len(failed) == MAX_FAILED_IN_A_ROW:
                raise
            continue
        except ModelRejected as error:
            outcome.errors |= failed
            outcome.errors[place] = LineError(_code(error), str(error))
        else:
            outcome.errors |= failed
            outcome.vectors.append(answer.vector)
            outcome.input_tokens += answer.input_tokens or tokens_of(texts[place])
        failed = {}
    if failed and not outcome.done:
        raise Unavailable("The embedding model fails.")
    outcome.errors |= failed


def _code(error: ModelRejected) -> str:
    return "too_long" if isinstance(error, ContextOverflow) else error.code


def _count(job: Job, *, calls: int, tokens: int) -> None:
    """Add the calls to the usage of the job."""
    if calls:
        paid = cost(job.input["model"], Usage(tokens, 0))
        usage = CallUsage(calls=calls, input_tokens=tokens, output_tokens=0, cost_usd=paid)
        UsageStore(dependencies.dynamodb, dependencies.settings.jobs_table).add(job, usage)
