"""The work of an agent's job: what the loop needs, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from core.dependencies import dependencies
from core.errors import CostLimitExceeded, ModelUnavailable, NotFound, Postponed, SourceNotFound
from core.jobs import Attempt, Job, Wait
from core.jobs.usage import usage_view
from core.live.step_channel import StepChannel
from core.llm.answers import ModelAnswer
from core.llm.catalog import Model
from core.llm.estimate import model_of
from core.llm.options import sample_facts
from core.llm.prices import cost
from core.llm.provider import ModelRequest, Usage
from core.llm.tokens import estimate_input
from kinds.agent.agent import ANSWER_NAME, Agent, Answered, Question
from kinds.agent.dependencies import agent_dependencies
from kinds.agent.passages import Turn
from kinds.agent.tools import Tools
from kinds.document.index.search import Filter

CALL_SECONDS = 60.0
"""No further call begins in an invocation that has less time left."""
MAX_SLEEP_SECONDS = 3.0
"""Between two calls the worker itself waits so long for the rate limit. Otherwise the job is queued again."""
MAX_TURNS = 6
SAMPLE = "(A recorded sample: no model answered.) The documents were searched."


def admit(job: Job) -> Wait | None:
    """For the first call of the attempt. An answer that is recorded takes no part of the limits."""
    model = dependencies.settings.models.get(job.input["model"])
    if model is None or (job.attempts and dependencies.model_caller.recorded(job, ANSWER_NAME)):
        return None
    return dependencies.model_caller.admit(job, model, tokens=job.input["call_tokens"])


def work(attempt: Attempt, *, is_last: bool) -> Mapping[str, Any]:
    """`is_last`: whether there will be no further attempt."""
    job = attempt.job
    with _channel(job) as channel:
        calls = JobCalls(
            attempt,
            model_of(job, dependencies.settings.models),
            has_begun=bool(channel.earlier),
            while_waiting=channel.refresh,
        )
        agent = Agent(
            _question(attempt),
            calls.model.id,
            tools=Tools(agent_dependencies.library, owner=job.owner, only=_filter(job)),
            calls=calls,
            output=channel,
            earlier=[step.payload for step in channel.earlier],
        )
        try:
            return _result(job, calls, agent.answer())
        except ModelUnavailable:
            if not (is_last and job.input["allow_sample"]):
                raise
            channel.write_text(SAMPLE)
            return _sample(job)


def _channel(job: Job) -> AbstractContextManager[StepChannel]:
    return StepChannel(job, dependencies.jobs.steps, dependencies.subscriptions, dependencies.sockets)


def _filter(job: Job) -> Filter:
    given = job.input["filter"]
    return Filter(document_ids=tuple(given["document_ids"]), metadata=given["metadata"])


def _question(attempt: Attempt) -> Question:
    job, config = attempt.job, agent_dependencies.settings
    return Question(
        text=attempt.blobs.get(job.input["source_key"], etag=job.input["etag"]).decode(),
        secret=job.link_key,
        turns=_turns(attempt),
        max_steps=job.input["max_steps"],
        context_tokens=config.agent_context_tokens,
        answer_tokens=config.agent_answer_tokens,
    )


def _turns(attempt: Attempt) -> list[Turn]:
    job = attempt.job
    job_ids = agent_dependencies.sessions.job_ids(job.owner, job.input["session"], limit=MAX_TURNS)
    found = (_turn(attempt, job_id) for job_id in job_ids if job_id < job.job_id)
    return [turn for turn in found if turn]


def _turn(attempt: Attempt, job_id: str) -> Turn | None:
    """None if the job or its question was deleted."""
    try:
        earlier = dependencies.jobs.get(job_id, owner=attempt.job.owner)
        question = attempt.blobs.get(earlier.input["source_key"]).decode()
    except (NotFound, SourceNotFound):
        return None
    return Turn(question, earlier.result["answer"]) if earlier.result else None


class JobCalls:
    """The calls of the job's model. `has_begun`: whether earlier attempts may have recorded answers.

    `while_waiting` is called now and then during a call.
    """

    def __init__(
        self, attempt: Attempt, model: Model, *, has_begun: bool, while_waiting: Callable[[], None]
    ) -> None:
        self.model = model
        self.answers: list[ModelAnswer] = []
        self._attempt, self._has_begun, self._while_waiting = attempt, has_begun, while_waiting
        self._has_called = False

    def is_affordable(self, *requests: ModelRequest) -> bool:
        limit: float | None = self._attempt.job.input.get("max_cost_usd")
        if limit is None:
            return True
        most = sum(cost(self.model.name, _most(request)) or 0.0 for request in requests)
        return self._spent() + most <= limit

    def make(
        self, name: str, request: ModelRequest, on_text: Callable[[str], None] = lambda text: None
    ) -> ModelAnswer:
        recorded = dependencies.model_caller.recorded(self._attempt.job, name) if self._has_begun else None
        answer = recorded or self._call(name, request, on_text)
        self.answers.append(answer)
        return answer

    def _call(self, name: str, request: ModelRequest, on_text: Callable[[str], None]) -> ModelAnswer:
        job = self._attempt.job
        if not self.is_affordable(request):
            raise CostLimitExceeded(
                "The answer could cost more than is left of max_cost_usd. Raise it, or choose a cheaper model."
            )
        self._admit(request)
        return dependencies.model_caller.call(
            job,
            self.model,
            request,
            name=name,
            require_open=self._require_open,
            seconds_left=self._attempt.seconds_left,
            on_text=on_text,
        )

    def _admit(self, request: ModelRequest) -> None:
        """The worker has admitted the first call before the attempt. Raises Postponed."""
        if not self._has_called:
            self._has_called = True
            return
        if self._attempt.seconds_left() < CALL_SECONDS:
            raise Postponed("worker_time", 1)
        most = _most(request)
        tokens = most.input_tokens + most.output_tokens
        for last in (False, True):
            wait = dependencies.model_caller.admit(self._attempt.job, self.model, tokens=tokens)
            if wait is None:
                return
            if last or wait.seconds > MAX_SLEEP_SECONDS:
                raise Postponed(wait.reason, wait.seconds)
            time.sleep(wait.seconds)

    def _require_open(self) -> None:
        self._attempt.require_open()
        self._while_waiting()

    def _spent(self) -> float:
        used = usage_view(dependencies.jobs.snapshot(self._attempt.job.job_id).usage)
        return float(used["cost_usd"] or 0.0) if used else 0.0


def _most(request: ModelRequest) -> Usage:
    return Usage(estimate_input(request), request.max_tokens)


def _result(job: Job, calls: JobCalls, answered: Answered) -> Mapping[str, Any]:
    evidence = answered.evidence
    return {
        "answer": answered.text,
        "citations": [asdict(citation) for citation in evidence.citations],
        "evidence": "none" if not evidence.citations else "some" if evidence.unsupported else "all",
        "unsupported": list(evidence.unsupported),
        "tool_calls": answered.tool_calls,
        "session": job.input["session"],
        "usage": {
            "input_tokens": sum(answer.usage.input_tokens for answer in calls.answers),
            "output_tokens": sum(answer.usage.output_tokens for answer in calls.answers),
        },
        "cost_usd": _cost(calls.answers),
        "cost_estimated": any(answer.cost_estimated for answer in calls.answers),
        "model": calls.model.name,
        "stop_reason": answered.stop_reason,
        "sample": False,
    }


def _cost(answers: list[ModelAnswer]) -> float | None:
    """None if the model has no known price."""
    known = [answer.cost_usd for answer in answers if answer.cost_usd is not None]
    return round(sum(known), 9) if len(known) == len(answers) else None


def _sample(job: Job) -> Mapping[str, Any]:
    return {
        "answer": SAMPLE,
        "citations": [],
        "evidence": "none",
        "unsupported": [],
        "tool_calls": 0,
        "session": job.input["session"],
        **sample_facts(),
    }
