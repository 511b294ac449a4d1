"""Agents: a question about an owner's documents is answered in steps, with citations that code checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.jobs import Attempt, Completion, Inputs, Job, Kind, Services, Wait
from kinds.agent.models import AgentAnswer, AgentInput, AgentRequested
from kinds.agent.sessions import Sessions


def _prepare(request: AgentInput, inputs: Inputs) -> Mapping[str, Any]:
    from kinds.agent.submission import prepare  # only the functions that submit have its settings

    return prepare(request, inputs)


def _admit(job: Job, services: Services) -> Wait | None:
    from kinds.agent.work import admit  # only the worker has its settings

    return admit(job)


def _work(attempt: Attempt) -> Mapping[str, Any]:
    from kinds.agent.work import work

    return work(attempt, is_last=attempt.job.attempts >= AGENT.max_attempts)


def _complete(job: Job, result: Mapping[str, Any], services: Services) -> Completion:
    """With the answer, the job becomes a turn of its session."""
    sessions = Sessions(services.dynamodb, services.jobs_table)
    return Completion(result=result, writes=[sessions.add(job, job.input["session"])])


def _on_question(query: str, session: str | None) -> Mapping[str, Any]:
    return {"question": query, "session": session}


AGENT = Kind(
    name="agent",
    input=AgentInput,
    example={"question": "Where does the cellar key hang?"},
    result=AgentAnswer,
    stages=("answer",),
    events={"requested": AgentRequested, "completed": AgentAnswer},
    runs_on="worker",
    has_steps=True,
    headline=("tool_calls",),
    prepare=_prepare,
    admit=_admit,
    work=_work,
    on_complete=_complete,
    on_question=_on_question,
)
