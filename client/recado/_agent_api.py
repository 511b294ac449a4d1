"""Questions to agents: methods of `Recado` and `AsyncRecado`, written once for both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from recado._api import RECHECK_SECONDS, Operations, document_filter
from recado._deadline import Deadline
from recado._http import without_none
from recado._operations import iteration, operation
from recado._step_cursor import StepCursor
from recado._step_watcher import StepTransport, StepWatcher
from recado.models import Job, Step, raise_unless_completed


class AgentOperations(Operations):
    """Questions, and the steps of their answers."""

    @operation
    async def ask(
        self,
        question: str,
        *,
        document_ids: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        session: str | None = None,
        max_steps: int | None = None,
        model: str | None = None,
        max_cost_usd: float | None = None,
        idempotency_key: str | None = None,
        on_step: Callable[[Step], object] | None = None,
        timeout: float | None = None,
        check: bool = True,
        transport: StepTransport = "auto",
    ) -> Job:
        """Have an agent answer a question from your documents. Returns the job after its end.

        Its `result` has `answer`, `citations`, `evidence` (whether `all`, `some` or `none` of the answer has
        citations) and `session`. The next question with this `session` sees what was said before. Only these
        documents, whose metadata contains all of `metadata`, are searched. `max_steps`: calls of tools at most.
        `on_step` is called with each step as it comes; see `steps`.

        Raises JobFailed or JobCanceled, unless `check` is False, and WaitTimeout after `timeout` seconds. The job
        continues after a WaitTimeout.
        """
        fields = {
            "question": question,
            "filter": document_filter(document_ids, metadata),
            "session": session,
            "max_steps": max_steps,
            "model": model,
            "max_cost_usd": max_cost_usd,
        }
        job = await self._create_job("/jobs", {"kind": "agent", "input": without_none(fields)}, idempotency_key)
        deadline = self._deadline(job, timeout)
        async with aclosing(self._steps(job, deadline, transport)) as steps:
            async for step in steps:
                if on_step:
                    on_step(step)
        job = await self._ended_job(job.job_id, deadline)
        if check:
            raise_unless_completed(job)
        return job

    @iteration
    async def steps(
        self, job: Job | str, *, timeout: float | None = None, transport: StepTransport = "auto"
    ) -> AsyncGenerator[Step, None]:
        """The steps of an agent's job from the first one on, as they happen, until the job has ended.

        Each step is yielded once and in order, however often the connection breaks. The answer comes in parts, as
        steps of the type `token`: word by word over a WebSocket, about once a second with server-sent events.
        Raises WaitTimeout after `timeout` seconds.
        """
        found = await self._job(job) if isinstance(job, str) else job
        async with aclosing(self._steps(found, self._deadline(found, timeout), transport)) as steps:
            async for step in steps:
                yield step

    def _steps(self, job: Job, deadline: Deadline, transport: StepTransport) -> AsyncGenerator[Step, None]:
        return StepWatcher(self._api, job, StepCursor(job.job_id), deadline, transport).items()

    async def _ended_job(self, job_id: str, deadline: Deadline) -> Job:
        """The job, of which was reported that it has ended."""
        found = await self._job(job_id)
        while not found.is_final:  # the end was reported too early: do not repeat the request at once
            await deadline.sleep(RECHECK_SECONDS)
            found = await self._job(job_id)
        return found
