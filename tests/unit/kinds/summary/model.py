"""A model for tests of summaries, and jobs of the kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from core.aws.blobs import Blobs
from core.jobs import Job, Wait
from core.llm import answers
from core.llm.answers import ModelAnswer
from core.llm.catalog import Model
from core.llm.provider import ModelRequest, StopReason, Usage
from core.llm.tokens import estimate_input
from kinds.summary.files import Plan, write_parts
from kinds.summary.summarizer import Summarizer
from tests.unit.examples import job

MODEL = Model(name="bedrock/amazon.nova-lite-v1:0")
_TEXT = re.compile(r"\n\nText ([0-9a-f]+):\n(.*)\nEnd of text \1\.\n\nSummary:", re.DOTALL)


def summary_job(**given: Any) -> Job:
    stored = {"style": "paragraph", "max_words": 100, "allow_sample": False, "model": MODEL.name}
    return job(kind="summary", input=stored | given)


def text_of(request: ModelRequest) -> str:
    """The text that the call is about."""
    found = _TEXT.search(request.messages[-1].content)
    assert found is not None
    return found[2]


class FakeCaller:
    """Answers as `write` says, and records answers as the caller does.

    `paid`: how often each call was answered. `errors`: what the next calls raise, None for an answer. `waits`:
    what the next admissions return.
    """

    def __init__(self, blobs: Blobs, write: Callable[[ModelRequest], str] = lambda request: "Short. ") -> None:
        self.blobs, self.write = blobs, write
        self.paid: Counter[str] = Counter()
        self.requests: dict[str, ModelRequest] = {}
        self.order: list[str] = []
        self.errors: list[Exception | None] = []
        self.waits: list[Wait | None] = []
        self.stop_reason: StopReason = "end"
        self.cost_usd: float | None = 0.001

    def recorded(self, job: Job, name: str) -> ModelAnswer | None:
        return answers.recorded(self.blobs, job.job_id, name)

    def admit(self, job: Job, model: Model, *, tokens: int) -> Wait | None:
        self.order.append(f"admit {tokens}")
        return self.waits.pop(0) if self.waits else None

    def call(
        self,
        job: Job,
        model: Model,
        request: ModelRequest,
        *,
        name: str,
        require_open: Callable[[], None],
        seconds_left: Callable[[], float],
        on_text: Callable[[str], None] | None = None,
    ) -> ModelAnswer:
        self.order.append(f"call {estimate_input(request) + request.max_tokens}")
        require_open()
        error = self.errors.pop(0) if self.errors else None
        if error:
            raise error
        self.paid[name] += 1
        self.requests[name] = request
        answer = ModelAnswer(
            text=self.write(request),
            usage=Usage(estimate_input(request), request.max_tokens),
            cost_usd=self.cost_usd,
            cost_estimated=False,
            model=model.name,
            stop_reason=self.stop_reason,
        )
        answers.record(self.blobs, job.job_id, name, answer)
        return answer


def summarizer(
    parts: list[str],
    caller: FakeCaller,
    *,
    part_tokens: int = 600,
    of: Job | None = None,
    seconds_left: Callable[[], float] = lambda: 300.0,
) -> Summarizer:
    """Of a job whose first stage has written these parts."""
    subject = of or summary_job()
    write_parts(caller.blobs, subject.job_id, parts, part_tokens=part_tokens)
    return Summarizer(
        subject,
        Plan(len(parts), part_tokens),
        MODEL,
        blobs=caller.blobs,
        caller=caller,  # type: ignore[arg-type]
        require_open=lambda: None,
        seconds_left=seconds_left,
    )
