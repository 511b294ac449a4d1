"""The loop of an agent: it searches, lets the model choose further calls of tools, and answers from what it found.

Every call of a model is recorded under a name, and every step is stored, so an attempt that goes on repeats none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from core.errors import MalformedAnswer
from core.llm.answers import ModelAnswer
from core.llm.provider import ModelRequest, ToolCall
from kinds.agent import citations, prompts
from kinds.agent.passages import Turn, fit, recent
from kinds.agent.progress import ANSWERING, RESTARTED, Progress
from kinds.agent.tools import Tools, UnusableCall, read_call

ANSWER_NAME = "answer"
"""Under which the answer is recorded."""
TURN_TOKENS = 600
"""Of the turns before, at most; and never more than a third of the context."""


class Calls(Protocol):
    """The calls of a model for one job."""

    def is_affordable(self, *requests: ModelRequest) -> bool:
        """Whether the job's `max_cost_usd` allows all of these."""

    def make(
        self, name: str, request: ModelRequest, on_text: Callable[[str], None] = lambda text: None
    ) -> ModelAnswer:
        """The answer that is recorded under this name, or a new one, whose text `on_text` receives as it comes.

        Raises CostLimitExceeded, and what a call raises.
        """


class Output(Protocol):
    """Where steps go."""

    def write(self, payload: Mapping[str, Any]) -> None: ...

    def write_text(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`turns`: those before it in its session, oldest first. Limits are in tokens of `estimate_text`.

    `secret`: of the job, for `prompts.code_of`.
    """

    text: str
    secret: str
    turns: Sequence[Turn]
    max_steps: int
    context_tokens: int
    answer_tokens: int

    @property
    def queries(self) -> tuple[str, ...]:
        """What is searched for first: the question; in a session also with the question before it."""
        if not self.turns:
            return (self.text,)
        together = f"{self.turns[-1].question} {self.text}"
        return (self.text, together) if self.max_steps > 1 else (together,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer's text, with a notice if it lacks evidence. `stop_reason`: why the model's text ends."""

    text: str
    evidence: citations.Evidence
    tool_calls: int
    stop_reason: str


class Agent:
    """`model`: the provider's id. `earlier`: the steps of earlier attempts."""

    def __init__(
        self,
        question: Question,
        model: str,
        *,
        tools: Tools,
        calls: Calls,
        output: Output,
        earlier: Sequence[Mapping[str, Any]],
    ) -> None:
        self._question, self._model = question, model
        self._tools, self._calls, self._output = tools, calls, output
        self._progress = Progress.of(earlier)
        self._has_begun = bool(earlier)
        self._turns = recent(question.turns, min(TURN_TOKENS, question.context_tokens // 3))

    def answer(self) -> Answered:
        """Raises what a call of a model raises."""
        self._gather()
        return self._answer() if self._progress.passages else self._without_documents()

    # ── tools ────────────────────────────────────────────────────────────────────────────────────────────

    def _gather(self) -> None:
        """Until the model wants to answer, repeats itself or finds nothing new, or until a limit."""
        progress = self._progress
        if not self._has_begun:
            self._think("I search the documents for the words of the question.")
        if progress.pending:
            self._finish(progress.pending.name, progress.pending.input)
        for query in self._question.queries[len(progress.calls) :]:
            self._use(prompts.SEARCH, {"query": query})
        while progress.passages and not progress.is_gathered and self._has_steps_left():
            decision = self._decision()
            if not (self._calls.is_affordable(decision, self._request()) and self._step(decision)):
                return

    def _has_steps_left(self) -> bool:
        return len(self._progress.calls) < self._question.max_steps and not self._progress.is_stuck

    def _step(self, decision: ModelRequest) -> bool:
        """Have the model choose a call and carry it out. False if it wants to answer, or repeats itself."""
        made = self._decide(decision)
        if made is None or not made.tool_calls:
            return False
        return self._carry_out(made.tool_calls[0], thought=made.text.strip())

    def _decide(self, decision: ModelRequest) -> ModelAnswer | None:
        """None if what the model wrote is not a call: another try at the same would not be better."""
        try:
            return self._calls.make(self._decision_name(), decision)
        except MalformedAnswer:
            return None

    def _carry_out(self, call: ToolCall, *, thought: str) -> bool:
        result: Mapping[str, Any] | None = None
        try:
            name, given = read_call(call, self._progress.documents)
        except UnusableCall as error:
            name, given = call.name, {"arguments": call.arguments}
            result = {"error": str(error)}
        if name == prompts.ANSWER or self._progress.has_called(name, given):
            return False
        if thought:
            self._think(thought)
        self._use(name, given, result)
        return True

    def _use(self, name: str, given: Mapping[str, Any], result: Mapping[str, Any] | None = None) -> None:
        self._write({"type": "tool_use", "tool": name, "input": given})
        self._finish(name, given, result)

    def _finish(self, name: str, given: Mapping[str, Any], result: Mapping[str, Any] | None = None) -> None:
        self._write({"type": "tool_result", "tool": name, **(result or self._tools.run(name, given))})

    def _decision_name(self) -> str:
        return f"decision-{len(self._progress.calls)}"

    def _code(self, name: str) -> str:
        return prompts.code_of(self._question.secret, name)

    def _decision(self) -> ModelRequest:
        progress, documents = self._progress, self._progress.documents
        messages = prompts.decision(
            self._question.text,
            turns=self._turns,
            passages=fit(progress.passages, self._question.context_tokens),
            calls=progress.calls,
            documents=documents,
            code=self._code(self._decision_name()),
        )
        return ModelRequest(
            model=self._model,
            messages=messages,
            max_tokens=prompts.DECISION_TOKENS,
            temperature=prompts.TEMPERATURE,
            tools=prompts.tools(documents),
            require_tool=True,
        )

    # ── the answer ───────────────────────────────────────────────────────────────────────────────────────

    def _answer(self) -> Answered:
        """The text is streamed. If an earlier attempt has streamed another one, it starts again."""
        progress = self._progress
        if not progress.is_gathered:
            count = f"{len(progress.passages)} passages of {len(progress.documents)} documents."
            self._think(f"{ANSWERING}{count}")
        streamed = _Streamed(self._output, progress.text)
        made = self._calls.make(ANSWER_NAME, self._request(), streamed.write)
        text = made.text.strip() or citations.NO_ANSWER
        evidence = citations.find(text, progress.passages, question=self._question.text)
        notice = citations.notice(evidence)
        whole = f"{text}\n\n{notice}" if notice else text
        streamed.end(whole)
        return Answered(
            text=whole, evidence=evidence, tool_calls=len(progress.calls), stop_reason=made.stop_reason
        )

    def _request(self) -> ModelRequest:
        passages = fit(self._progress.passages, self._question.context_tokens)
        return ModelRequest(
            model=self._model,
            messages=prompts.answer(
                self._question.text, turns=self._turns, passages=passages, code=self._code(ANSWER_NAME)
            ),
            max_tokens=self._question.answer_tokens,
            temperature=prompts.TEMPERATURE,
            stop=prompts.stop(self._model),
        )

    def _without_documents(self) -> Answered:
        """No model is called: there is nothing to answer from."""
        _Streamed(self._output, self._progress.text).end(citations.NO_ANSWER)
        evidence = citations.Evidence((), ())
        calls = len(self._progress.calls)
        return Answered(text=citations.NO_ANSWER, evidence=evidence, tool_calls=calls, stop_reason="end")

    def _think(self, content: str) -> None:
        self._write({"type": "thinking", "content": content})

    def _write(self, step: Mapping[str, Any]) -> None:
        self._output.write(step)
        self._progress.add(step)


class _Streamed:
    """The text of the answer as it is told. `before`: what an earlier attempt has told of it."""

    def __init__(self, output: Output, before: str) -> None:
        self._output, self._told = output, before
        self._is_new = False
        self._space = ""

    def write(self, text: str) -> None:
        """Text of a new answer. White space before its first word and after its last one is left out."""
        if not self._is_new:
            self._is_new = True
            self._restart()
        text = self._space + text if self._told else text.lstrip()
        words = text.rstrip()
        self._space = text[len(words) :]
        self._tell(words)

    def end(self, whole: str) -> None:
        """Tell what is left of the whole answer."""
        if not whole.startswith(self._told):
            self._restart()
        self._tell(whole[len(self._told) :])

    def _restart(self) -> None:
        if self._told:
            self._output.write_text(RESTARTED)
            self._told = ""

    def _tell(self, text: str) -> None:
        if text:
            self._output.write_text(text)
            self._told += text
