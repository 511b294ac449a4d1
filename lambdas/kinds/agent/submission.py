"""What a submission does for an agent: it checks the model and the cost, and stores the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.dependencies import dependencies
from core.jobs import Inputs
from core.llm.estimate import check_limits, choose_model
from core.llm.provider import Usage
from core.llm.tokens import estimate_text
from kinds.agent.dependencies import agent_dependencies
from kinds.agent.models import AgentInput

DEFAULT_STEPS = 4
PROMPT_TOKENS = 600
"""What a prompt has beside the question and the passages, at most."""


def prepare(request: AgentInput, inputs: Inputs) -> Mapping[str, Any]:
    """The stored input. Raises InvalidRequest, which names the field, and PayloadTooLarge.

    One call must be possible: within the model's limit, and for `max_cost_usd`. The work ends before a call that
    would cost more than is left.
    """
    config = agent_dependencies.settings
    model = choose_model(dependencies.settings.models, request.model)
    given = PROMPT_TOKENS + estimate_text(request.question) + config.agent_context_tokens
    largest = Usage(given, config.agent_answer_tokens)
    check_limits(model, largest, max_cost_usd=request.max_cost_usd)
    stored = {
        "model": model.name,
        "max_steps": request.max_steps or DEFAULT_STEPS,
        "session": request.session or inputs.job_id,
        "call_tokens": largest.input_tokens + largest.output_tokens,
        "allow_sample": request.allow_sample,
        "filter": request.filter.model_dump(mode="json"),
        **inputs.keep_text(request.question, field="input.question"),
    }
    return stored | ({} if request.max_cost_usd is None else {"max_cost_usd": request.max_cost_usd})
