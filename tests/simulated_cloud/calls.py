"""Records every boto3 call and injects faults into it.

A rule acts on the calls that match it: it runs code before or after them, or makes them fail. Faults are injected
above the retries of the SDK, so the code under test gets exactly the error that the test injects.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast
from unittest import mock

from botocore.client import BaseClient
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from .clock import Clock
from .empty_queries import EmptyQueries

LONG_POLL_SECONDS = 0.02
"""How long ReceiveMessage with WaitTimeSeconds waits for other threads, in real time. The clock does not move."""

OperationFake = Callable[[dict[str, Any]], dict[str, Any]]
Shortcut = Callable[[dict[str, Any]], dict[str, Any] | None]
ServiceFake = Callable[["Call"], dict[str, Any]]


class Killed(BaseException):
    """The process of a function has died. What it did stays done, and it does nothing more."""


class Caller(Protocol):
    """The running function, as this module needs it. `killed_by` is set once the function is dead."""

    name: str
    request_id: str
    calls: int
    killed_by: Killed | None

    def raise_if_ended(self) -> None:
        """Raise `Killed` if the function is dead or out of time."""


caller: contextvars.ContextVar[Caller | None] = contextvars.ContextVar("caller", default=None)
recording_off: contextvars.ContextVar[bool] = contextvars.ContextVar("recording_off", default=False)


@dataclass(frozen=True)
class Call:
    """One AWS call.

    `function` is the short name of the function that made the call, or None for calls of the test and of AWS.
    `index` counts the calls of one invocation from 1.
    """

    function: str | None
    service: str
    operation: str
    params: dict[str, Any]
    index: int
    request_id: str | None
    client: BaseClient = field(repr=False, compare=False)

    @property
    def action(self) -> str:
        return f"{self.service}:{self.operation}"


Matcher = Callable[[Call], bool]
Failure = str | BaseException | type[BaseException] | Callable[[Call], BaseException]


def client_error(call: Call, code: str, message: str = "injected", **extra: Any) -> ClientError:
    """The error that the SDK raises for a response with this code, as an instance of the client's own class."""
    response = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": http_status(call, code), "RequestId": "injected"},
        **extra,
    }
    kind: Any = call.client.exceptions.from_code(code)
    return cast("ClientError", kind(response, call.operation))


def http_status(call: Call, code: str) -> int:
    """The status in the service's model. If the model has none, a status guessed from the code's name."""
    model: Any = call.client.meta.service_model
    shape = model.shape_for_error_code(code)
    if shape and (status := shape.metadata.get("error", {}).get("httpStatusCode")):
        return int(status)
    if "Internal" in code or "Unavailable" in code:
        return 500
    return 429 if "Thrott" in code or "TooMany" in code else 400


def transaction_canceled(*codes: str) -> Callable[[Call], BaseException]:
    """A failure that cancels a DynamoDB transaction.

    `codes` are the cancellation reasons in the order of the items, filled up with `None`. Without `codes`, every
    item gets `TransactionConflict`.
    """

    def failure(call: Call) -> BaseException:
        size = len(call.params["TransactItems"])
        padded = [*codes, *["None"] * (size - len(codes))] if codes else ["TransactionConflict"] * size
        reasons = [{"Code": code} for code in padded]
        message = f"Transaction cancelled [{', '.join(padded)}]"
        return client_error(call, "TransactionCanceledException", message, CancellationReasons=reasons)

    return failure


class CallRule:
    """Runs an action on calls that match. `hits` counts the calls it acted on.

    As a context manager, the rule is removed at the end of the block.
    """

    def __init__(self, rules: list[CallRule], matches: Matcher, action: Callable[[Call], object]) -> None:
        self._rules = rules
        self._matches = matches
        self._action = action
        self.after = False
        self.times: int | None = 1
        self.every = 1
        self.seen = 0
        self.hits = 0
        rules.append(self)

    def apply(self, call: Call, *, after: bool) -> None:
        if after != self.after or self.hits == self.times or not self._matches(call):
            return
        self.seen += 1
        if self.seen % self.every == 0:
            self.hits += 1
            self._action(call)

    def remove(self) -> None:
        if self in self._rules:
            self._rules.remove(self)

    def __enter__(self) -> CallRule:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Calls:
    """The recorded calls, the rules for calls to come, and the operations that are faked.

    `answers` and `services` fake operations that moto lacks, by `service:Operation` and by service. `shortcuts`
    may answer a call instead of moto; a shortcut that returns None lets the call through.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # moto is not thread-safe, and handlers may call from threads of their own.
        self._lock = threading.RLock()
        self.log: list[Call] = []
        self.rules: list[CallRule] = []
        self.answers: dict[str, OperationFake] = {}
        self.shortcuts: dict[str, Shortcut] = {}
        self.services: dict[str, ServiceFake] = {}
        self.queries = EmptyQueries()

    def of(self, function: str) -> list[Call]:
        """The calls that this function made."""
        return [call for call in self.log if call.function == function]

    def reset(self) -> None:
        self.log.clear()
        self.rules.clear()

    def on(
        self,
        service: str,
        operation: str,
        action: Callable[[Call], object],
        *,
        function: str | None = None,
        when: Matcher | None = None,
        times: int | None = 1,
        every: int = 1,
        after: bool = False,
    ) -> CallRule:
        """Run `action` before matching calls, or with `after=True` after those that succeeded.

        `*` matches any service or operation. `every=3` acts on each third matching call. The rule stops after
        `times` actions, or never with `times=None`. AWS calls inside `action` do not count as the function's.
        """

        def matches(call: Call) -> bool:
            return (
                service in ("*", call.service)
                and operation in ("*", call.operation)
                and function in (None, call.function)
                and (when is None or when(call))
            )

        rule = CallRule(self.rules, matches, action)
        rule.times, rule.every, rule.after = times, every, after
        return rule

    def fail(self, service: str, operation: str, failure: Failure, **options: Any) -> CallRule:
        """Make matching calls fail. With `after=True` the call takes effect and only its response is lost.

        `failure` is an error code, an exception, an exception class, or a function that makes an exception from
        the call. `Killed` ends the function at once. `options` are those of `on`.
        """

        def action(call: Call) -> None:
            raise exception_for(failure, call)

        return self.on(service, operation, action, **options)

    @contextmanager
    def intercepted(self) -> Iterator[None]:
        """Intercept the calls of all boto3 clients inside the block."""
        real: Callable[..., Any] = BaseClient._make_api_call  # type: ignore[attr-defined]

        def make_api_call(client: BaseClient, operation: str, params: dict[str, Any]) -> Any:
            return self._perform(client, operation, params, lambda: real(client, operation, params))

        with mock.patch.object(BaseClient, "_make_api_call", make_api_call):
            yield

    def _perform(self, client: BaseClient, operation: str, params: dict[str, Any], send: Callable[[], Any]) -> Any:
        if recording_off.get():
            with self._lock:
                return send()
        by = caller.get()
        call = self._record(by, client, operation, params)
        self._clock.tick()
        try:
            if by:
                by.raise_if_ended()
            with outside_functions():
                self._apply(call, after=False)
                response = self._send(call, params, send)
                self._apply(call, after=True)
        except Killed as killed:
            if by:
                by.killed_by = killed
            raise
        return response

    def _record(self, by: Caller | None, client: BaseClient, operation: str, params: dict[str, Any]) -> Call:
        if by:
            by.calls += 1
        call = Call(
            function=by.name if by else None,
            service=client.meta.service_model.service_name,
            operation=operation,
            params=dict(params),
            index=by.calls if by else 0,
            request_id=by.request_id if by else None,
            client=client,
        )
        self.log.append(call)
        return call

    def _apply(self, call: Call, *, after: bool) -> None:
        for rule in list(self.rules):
            rule.apply(call, after=after)

    def _send(self, call: Call, sent: dict[str, Any], send: Callable[[], Any]) -> Any:
        if (shortcut := self.shortcuts.get(call.action)) and (given := shortcut(call.params)) is not None:
            return given
        if answer := self.answers.get(call.action):
            validate(call)
            return answer(call.params)
        if service := self.services.get(call.service):
            validate(call)
            return service(call)
        if call.action == "lambda:Invoke":  # runs a function, whose threads need the lock
            return send()
        with self._lock:
            if call.action == "sqs:ReceiveMessage":
                sent["WaitTimeSeconds"] = 0  # moto would wait with the lock that other threads need
            if call.action == "dynamodb:Query":
                answer = self.queries.answer(call.client.meta.region_name, call.params, send)
            else:
                answer = send()
        if call.params.get("WaitTimeSeconds") and not answer.get("Messages"):
            threading.Event().wait(LONG_POLL_SECONDS)
        return answer


@contextmanager
def outside_functions() -> Iterator[None]:
    """Inside the block, AWS calls count as the test's, not as those of the running function."""
    token = caller.set(None)
    try:
        yield
    finally:
        caller.reset(token)


@contextmanager
def unrecorded_calls() -> Iterator[None]:
    """Inside the block, AWS calls are those of AWS itself: they are not recorded and no rule acts on them."""
    token = recording_off.set(True)
    try:
        yield
    finally:
        recording_off.reset(token)


def exception_for(failure: Failure, call: Call) -> BaseException:
    if isinstance(failure, str):
        return client_error(call, failure)
    if isinstance(failure, BaseException):
        return failure
    return failure() if isinstance(failure, type) else failure(call)


def validate(call: Call) -> None:
    """Raise ValueError for parameters that the SDK would reject."""
    shape = call.client.meta.service_model.operation_model(call.operation).input_shape
    if shape and (report := ParamValidator().validate(call.params, shape)).has_errors():
        raise ValueError(report.generate_report())
