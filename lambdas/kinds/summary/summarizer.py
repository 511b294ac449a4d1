"""The calls of one summary: one for each part, and those that merge the summaries of parts, level by level.

Every answer is recorded under the name of its call: `part-0007`, or `reduce-2-1` for the second call of the second
level. Whatever is repeated has the same names, and so pays nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from core.aws.blobs import Blobs
from core.errors import ModelRejected, Postponed
from core.jobs import Job
from core.llm.catalog import Model
from core.llm.tokens import estimate_input
from kinds.summary import prompts
from kinds.summary.estimate import Sizes
from kinds.summary.files import Plan, read_part
from kinds.summary.parts import groups_of, joined, to_tokens, to_words, whole_sentences
from kinds.summary.prompts import Form, Prompt

if TYPE_CHECKING:
    from core.llm.answers import ModelAnswer
    from core.llm.caller import ModelCaller

CALL_SECONDS = 60.0
"""No further call begins in an invocation that has less time left."""

_NOTHING = "The model wrote nothing. Choose another model."


class Summarizer:
    """`require_open` raises JobClosed if the job has ended; `seconds_left`: until the function times out."""

    def __init__(
        self,
        job: Job,
        plan: Plan,
        model: Model,
        *,
        blobs: Blobs,
        caller: ModelCaller,
        require_open: Callable[[], None],
        seconds_left: Callable[[], float],
    ) -> None:
        self._job, self._plan, self._model = job, plan, model
        self._blobs, self._caller = blobs, caller
        self._require_open, self._seconds_left = require_open, seconds_left
        self._form, self._sizes = Form(job.input["style"], job.input["max_words"]), Sizes(plan.part_tokens)
        self._has_called = False

    def summarize(self, number: int) -> ModelAnswer:
        """The summary of a part. Of a text with one part, it is the whole summary."""
        single = self._plan.parts == 1
        prompt = prompts.whole(self._form) if single else prompts.part(self._sizes.words, self._sizes.tokens)
        return self._answer(f"part-{number:04d}", prompt, lambda: read_part(self._blobs, self._job.job_id, number))

    def reduce(self) -> dict[str, Any]:
        """The result, from the summaries of all parts. Raises Postponed before the function's time is over."""
        last = self._merged([self.summarize(number) for number in range(self._plan.parts)])
        summary = to_words(_text_of(last), self._form.words)
        if not summary:
            raise ModelRejected(_NOTHING)
        return {
            "summary": summary,
            "model": self._model.name,
            "stop_reason": last.stop_reason,
            "sample": False,
        }

    def _merged(self, answers: Sequence[ModelAnswer]) -> ModelAnswer:
        """The last answer, which is made from all of these."""
        if len(answers) == 1:
            return answers[0]
        texts, level = self._texts(answers), 1
        while len(groups := groups_of(texts, self._plan.part_tokens)) > 1:
            texts = [text for n, group in enumerate(groups) for text in self._merge(group, f"reduce-{level}-{n}")]
            level += 1
        if not texts:
            raise ModelRejected(_NOTHING)
        return self._answer(f"reduce-{level}-0", prompts.final(self._form), lambda: joined(texts))

    def _merge(self, group: list[str], name: str) -> list[str]:
        if len(group) == 1:
            return group
        prompt = prompts.merge(self._sizes.words, self._sizes.tokens)
        return self._texts([self._answer(name, prompt, lambda: joined(group))])

    def _texts(self, answers: Sequence[ModelAnswer]) -> list[str]:
        """Without empty ones, and none longer than asked for, so that each level has fewer."""
        return [text for answer in answers if (text := to_tokens(_text_of(answer), self._sizes.tokens))]

    def _answer(self, name: str, prompt: Prompt, text: Callable[[], str]) -> ModelAnswer:
        """The answer that is recorded under this name, or a new one."""
        return self._caller.recorded(self._job, name) or self._call(name, prompt, text())

    def _call(self, name: str, prompt: Prompt, text: str) -> ModelAnswer:
        if self._has_called and self._seconds_left() < CALL_SECONDS:
            raise Postponed("summary_reduce", 1)
        self._has_called = True
        request = prompt.request(text, model=self._model.id, code=prompts.code_of(self._job.job_id, name))
        wait = self._caller.admit(self._job, self._model, tokens=estimate_input(request) + request.max_tokens)
        if wait is not None:
            raise Postponed(wait.reason, wait.seconds)
        return self._caller.call(
            self._job,
            self._model,
            request,
            name=name,
            require_open=self._require_open,
            seconds_left=self._seconds_left,
        )


def _text_of(answer: ModelAnswer) -> str:
    """Without a last sentence that was cut off."""
    text = answer.text.strip()
    return whole_sentences(text) if answer.stop_reason == "max_tokens" else text
