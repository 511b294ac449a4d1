"""Calls models for jobs: within the limits, watched for cancellation, recorded, and never repeated by itself."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from botocore.exceptions import BotoCoreError, ClientError

from core import events
from core.aws import errors as aws_errors
from core.aws.blobs import Blobs
from core.errors import (
    ContentFiltered,
    DeadlineExceeded,
    JobClosed,
    MalformedAnswer,
    ModelFault,
    ModelRejected,
    ModelThrottled,
    Postponed,
)
from core.jobs.job import Job
from core.jobs.kind import Wait
from core.jobs.machine import PROVIDER_THROTTLED
from core.jobs.usage import CallUsage, UsageStore
from core.llm import answers, in_flight, rate_limit
from core.llm.answers import ModelAnswer
from core.llm.catalog import Model
from core.llm.gate import ModelGate
from core.llm.in_flight import ModelCalls
from core.llm.prices import cost
from core.llm.provider import Answer, End, ModelRequest, Provider, Usage
from core.llm.tokens import estimate_input, estimate_text
from core.log import logger

CHECK_SECONDS = 1.0
"""How often a running call looks whether its job was canceled."""
RESERVE_SECONDS = 15.0
"""Of the invocation, for recording the answer."""
THROTTLE_MIN_SECONDS, THROTTLE_MAX_SECONDS = 10.0, 300.0
KNOWS_IDEMPOTENCY_KEYS = ("openai",)
"""Providers that are sent an idempotency key."""


class ModelCaller:
    """`provider_of(name)` makes an adapter. `clock`: epoch seconds."""

    def __init__(
        self,
        provider_of: Callable[[str], Provider],
        gate: ModelGate,
        calls: ModelCalls,
        blobs: Blobs,
        usage: UsageStore,
        *,
        clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self._provider_of, self._gate, self._calls = provider_of, gate, calls
        self._blobs, self._usage = blobs, usage
        self._clock = clock

    def recorded(self, job: Job, name: str) -> ModelAnswer | None:
        """The answer of an earlier attempt at the call `name` of the job, if there is one."""
        return answers.recorded(self._blobs, job.job_id, name)

    def admit(self, job: Job, model: Model, *, tokens: int) -> Wait | None:
        """None if the call may be made now. May sleep half a second. `tokens`: of prompt and answer, at most."""
        since = job.waiting_since if job.waiting_for == in_flight.REASON else None
        wait = self._calls.wait(job.owner, waited=self._clock() - _epoch(since) if since else 0.0)
        if wait is not None:
            return wait
        return self._gate.admit(model, owner=job.owner, tokens=tokens, waited=job.waiting_for == rate_limit.REASON)

    def call(
        self,
        job: Job,
        model: Model,
        request: ModelRequest,
        *,
        name: str,
        require_open: Callable[[], None],
        seconds_left: Callable[[], float],
        on_text: Callable[[str], None] = lambda text: None,
    ) -> ModelAnswer:
        """Make the call once, after `admit`. `name`: of the call within the job, for `recorded`.

        `on_text` receives text as it comes. Raises JobClosed if the job is canceled meanwhile, Postponed if the
        provider throttles or the owner has too many calls, ModelRejected, and ModelFault.
        """
        call = _Call(job, model, replace(request, idempotency_key=self._idempotency_key(job, model, name)))
        try:
            require_open()
            provider = self._provider_of(model.provider)
            with self._calls.place(job.owner):
                call.is_sent = True
                answer = provider.call(call.request, seconds=seconds_left() - RESERVE_SECONDS)
                end = call.read(answer, on_text, require_open)
            made = call.answer(end)
        except (JobClosed, ModelFault, ModelRejected, Postponed) as error:
            with _log_errors():
                self._account_failure(call, error)
            if isinstance(error, ModelThrottled):
                raise self._postponed(job, error) from error
            raise
        answers.record(self._blobs, job.job_id, name, made)
        with _log_errors():
            self._account(call, made)
        return made

    def _idempotency_key(self, job: Job, model: Model, name: str) -> str | None:
        """The same after a lost worker, whose call may have been answered; another one after a failed call."""
        if model.provider not in KNOWS_IDEMPOTENCY_KEYS:
            return None
        return f"{job.job_id}-{name}-{self._usage.faults(job.job_id)}"

    def _account(self, call: _Call, made: ModelAnswer) -> None:
        used = made.usage
        self._usage.add(
            call.job,
            CallUsage(
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cost_usd=made.cost_usd,
                estimated=made.cost_estimated,
            ),
        )
        self._gate.settle(call.model, reserved=call.reserved, used=used.input_tokens + used.output_tokens)
        self._gate.succeeded(call.model, call.job.owner)

    def _account_failure(self, call: _Call, error: Exception) -> None:
        """A provider may bill the whole answer of a call that was interrupted, so its cost is a limit."""
        billed = call.is_sent and (isinstance(error, JobClosed) or getattr(error, "billed", False) or call.text)
        if billed:
            most = call.most()
            self._usage.add(
                call.job,
                CallUsage(
                    input_tokens=most.input_tokens,
                    output_tokens=most.output_tokens,
                    cost_usd=cost(call.model.name, most),
                    estimated=True,
                    partial_text=call.text,
                ),
            )
        else:
            self._gate.settle(call.model, reserved=call.reserved, used=0)
        if isinstance(error, ModelFault):
            self._usage.count_fault(call.job)
        if isinstance(error, (JobClosed, ModelThrottled, Postponed)):
            self._gate.released(call.model, call.job.owner)
        elif isinstance(error, ModelFault):
            self._gate.failed(call.model, call.job.owner)
        else:
            self._gate.succeeded(call.model, call.job.owner)  # a refusal is an answer

    def _postponed(self, job: Job, error: ModelThrottled) -> Exception:
        now = self._clock()
        seconds = throttle_wait(error.retry_after, age=now - _epoch(job.created_at))
        if now + seconds < _epoch(job.deadline):
            return Postponed(PROVIDER_THROTTLED, seconds, cause=error)
        until = events.timestamp(now + seconds)
        return DeadlineExceeded(f"The provider throttles until {until}, which is after the job's deadline.")


class _Call:
    """One call, with the text that has come."""

    def __init__(self, job: Job, model: Model, request: ModelRequest) -> None:
        self.job, self.model, self.request = job, model, request
        self.input_tokens = estimate_input(request)
        self.is_sent = False
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def reserved(self) -> int:
        return self.input_tokens + self.request.max_tokens

    def most(self) -> Usage:
        """The most that the provider may bill."""
        return Usage(self.input_tokens, self.request.max_tokens)

    def read(self, answer: Answer, on_text: Callable[[str], None], require_open: Callable[[], None]) -> End:
        with _Watch(answer, require_open) as watch:
            for part in answer:
                watch.check()
                if isinstance(part, End):
                    return part
                self._parts.append(part.text)
                on_text(part.text)
        raise MalformedAnswer("The provider's answer has no end.", billed=True)

    def answer(self, end: End) -> ModelAnswer:
        """Raises ContentFiltered, and MalformedAnswer for an answer that is not the JSON that was asked for."""
        if end.stop_reason == "content_filter":
            raise ContentFiltered("The provider's content filter withheld the answer. Change the prompt.")
        if self.request.schema is not None and end.stop_reason != "max_tokens":
            _check_json(self.text)
        usage = end.usage or Usage(self.input_tokens, min(self.request.max_tokens, estimate_text(self.text)))
        return ModelAnswer(
            text=self.text,
            usage=usage,
            cost_usd=cost(self.model.name, usage),
            cost_estimated=end.usage is None,
            model=self.model.name,
            stop_reason=end.stop_reason,
            tool_calls=tuple(end.tool_calls),
        )


class _Watch:
    """Checks the job while a call runs. A thread does so while the provider is silent, and closes the answer."""

    def __init__(self, answer: Answer, require_open: Callable[[], None]) -> None:
        self._answer, self._require_open = answer, require_open
        self._next = time.monotonic() + CHECK_SECONDS
        self._ended = threading.Event()
        self._closed: JobClosed | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def check(self) -> None:
        """Raises JobClosed if the job has ended. Reads the job at most once in CHECK_SECONDS."""
        if self._closed:
            raise self._closed
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + CHECK_SECONDS
            self._require_open()

    def _run(self) -> None:
        while not self._ended.wait(CHECK_SECONDS):
            try:
                self.check()
            except JobClosed as error:
                self._closed = error
                self._answer.close()
                return
            except (BotoCoreError, ClientError) as error:
                logger.warning("job not read during a call", reason=aws_errors.reason(error))

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ended.set()
        if error is not None:
            self._answer.close()
        if self._closed and error is not self._closed:  # the error is that of the closed connection
            raise self._closed from error


def throttle_wait(retry_after: float | None, *, age: float) -> float:
    """Seconds until the next attempt after a throttle: as the provider says, or longer the older the job is.

    Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    if retry_after is not None:
        return max(1.0, retry_after) + random.uniform(0, 1)  # noqa: S311
    return random.uniform(1, max(THROTTLE_MIN_SECONDS, min(THROTTLE_MAX_SECONDS, age)))  # noqa: S311


def _check_json(text: str) -> None:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedAnswer("The model's answer is not the JSON that was asked for.", billed=True) from None


def _epoch(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


@contextmanager
def _log_errors() -> Iterator[None]:
    """Accounts are kept beside the answer: an answer that was paid for is not lost because they cannot be."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        logger.warning("usage of a model not recorded", reason=aws_errors.reason(error))
