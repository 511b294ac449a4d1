"""Summaries of long texts: the text is cut into parts, each part is summarized, and the summaries are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.jobs import Inputs, Job, Kind
from kinds.summary.models import Summary, SummaryInput, SummaryPlanned, SummaryRequested, SummarySummarized


def _prepare(request: SummaryInput, inputs: Inputs) -> Mapping[str, Any]:
    from kinds.summary.submission import prepare  # only the API has its settings

    return prepare(request, inputs)


def _on_batch(job: Job, message: Mapping[str, Any], seconds_left: Callable[[], float]) -> None:
    from kinds.summary.batches import on_batch  # only the worker has its settings

    on_batch(job, message, seconds_left)


SUMMARY = Kind(
    name="summary",
    input=SummaryInput,
    example={
        "text": "# The house\n\nThe cellar key hangs behind the door. The gardener comes on Mondays.",
        "max_words": 30,
    },
    result=Summary,
    stages=("plan", "summarize", "reduce"),
    events={
        "requested": SummaryRequested,
        "planned": SummaryPlanned,
        "summarized": SummarySummarized,
        "completed": Summary,
    },
    runs_on="machine",
    headline=("parts",),
    prepare=_prepare,
    on_batch=_on_batch,
)
