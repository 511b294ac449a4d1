"""Every AWS call passes here: recorded, and where a test wants it, delayed, refused, cut off or answered.

Faults act above the SDK's own retries: what a test injects is what the code under test gets.
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

Answer = Callable[[dict[str, Any]], dict[str, Any]]
Shortcut = Callable[[dict[str, Any]], dict[str, Any] | None]
Service = Callable[["Call"], dict[str, Any]]


class Killed(BaseException):
    """A function's process is gone: what it did stays done, and it does nothing more."""


class Caller(Protocol):
    """What a running function tells about itself, and what may stop it from calling."""

    name: str
    request_id: str
    calls: int
    fate: Killed | None

    def raise_if_over(self) -> None: ...


caller: contextvars.ContextVar[Caller | None] = contextvars.ContextVar("caller", default=None)
unseen: contextvars.ContextVar[bool] = contextvars.ContextVar("unseen", default=False)


@dataclass(frozen=True)
class Call:
    """One AWS call. `function` is None for calls of tests and of AWS itself; `index` counts from 1."""

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
    """The error that the SDK raises for an answer with this code, of the client's own class for it."""
    response = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": http_status(call, code), "RequestId": "injected"},
        **extra,
    }
    kind: Any = call.client.exceptions.from_code(code)
    return cast("ClientError", kind(response, call.operation))


def http_status(call: Call, code: str) -> int:
    """The one that the service's model gives; elsewhere what such codes usually have."""
    model: Any = call.client.meta.service_model
    shape = model.shape_for_error_code(code)
    if shape and (status := shape.metadata.get("error", {}).get("httpStatusCode")):
        return int(status)
    if "Internal" in code or "Unavailable" in code:
        return 500
    return 429 if "Thrott" in code or "TooMany" in code else 400


def transaction_canceled(*codes: str) -> Callable[[Call], BaseException]:
    """A cancelled DynamoDB transaction with these reasons, in the order of its items, padded with `None`.

    With none given, every item meets a `TransactionConflict`.
    """

    def failure(call: Call) -> BaseException:
        size = len(call.params["TransactItems"])
        padded = [*codes, *["None"] * (size - len(codes))] if codes else ["TransactionConflict"] * size
        reasons = [{"Code": code} for code in padded]
        message = f"Transaction cancelled [{', '.join(padded)}]"
        return client_error(call, "TransactionCanceledException", message, CancellationReasons=reasons)

    return failure


class Rule:
    """Acts on some of the calls that match. `hits` counts those it acted on; as a context, it ends with it."""

    def __init__(self, rules: list[Rule], matches: Matcher, action: Callable[[Call], object]) -> None:
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

    def __enter__(self) -> Rule:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Calls:
    """The recorded calls, and the rules that act on those to come."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # moto is not thread-safe, and handlers may call from threads of their own.
        self._lock = threading.RLock()
        self.log: list[Call] = []
        self.rules: list[Rule] = []
        self.answers: dict[str, Answer] = {}
        self.shortcuts: dict[str, Shortcut] = {}
        self.services: dict[str, Service] = {}

    def of(self, function: str) -> list[Call]:
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
    ) -> Rule:
        """Run `action` just before the matching calls, or just after those that succeeded.

        The action stands outside every function: its own AWS calls are not the function's.  `*` matches any
        service or operation; `every=3` skips two of three matching calls; `times=None` never ends.
        """

        def matches(call: Call) -> bool:
            return (
                service in ("*", call.service)
                and operation in ("*", call.operation)
                and function in (None, call.function)
                and (when is None or when(call))
            )

        rule = Rule(self.rules, matches, action)
        rule.times, rule.every, rule.after = times, every, after
        return rule

    def fail(self, service: str, operation: str, failure: Failure, **options: Any) -> Rule:
        """Raise instead of calling or, with `after=True`, although the call took effect (a lost answer).

        `failure` is an error code, an exception or its class, or a function of the call that makes one.
        `Killed` ends the function on the spot.  Options are those of `on`.
        """

        def action(call: Call) -> None:
            raise made(failure, call)

        return self.on(service, operation, action, **options)

    @contextmanager
    def intercepted(self) -> Iterator[None]:
        real: Callable[..., Any] = BaseClient._make_api_call  # type: ignore[attr-defined]

        def make_api_call(client: BaseClient, operation: str, params: dict[str, Any]) -> Any:
            return self._perform(client, operation, params, lambda: real(client, operation, params))

        with mock.patch.object(BaseClient, "_make_api_call", make_api_call):
            yield

    def _perform(self, client: BaseClient, operation: str, params: dict[str, Any], send: Callable[[], Any]) -> Any:
        if unseen.get():
            with self._lock:
                return send()
        by = caller.get()
        call = self._record(by, client, operation, params)
        self._clock.tick()
        try:
            if by:
                by.raise_if_over()
            with outside_functions():
                self._apply(call, after=False)
                response = self._send(call, send)
                self._apply(call, after=True)
        except Killed as death:
            if by:
                by.fate = death
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

    def _send(self, call: Call, send: Callable[[], Any]) -> Any:
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
            return send()


@contextmanager
def outside_functions() -> Iterator[None]:
    """Inside, code belongs to no function: it is AWS's or the test's."""
    token = caller.set(None)
    try:
        yield
    finally:
        caller.reset(token)


@contextmanager
def behind_the_scenes() -> Iterator[None]:
    """Inside, AWS itself is at work: its calls are not recorded and meet no faults."""
    token = unseen.set(True)
    try:
        yield
    finally:
        unseen.reset(token)


def made(failure: Failure, call: Call) -> BaseException:
    if isinstance(failure, str):
        return client_error(call, failure)
    if isinstance(failure, BaseException):
        return failure
    return failure() if isinstance(failure, type) else failure(call)


def validate(call: Call) -> None:
    """Refuse parameters that the SDK would refuse."""
    shape = call.client.meta.service_model.operation_model(call.operation).input_shape
    if shape and (report := ParamValidator().validate(call.params, shape)).has_errors():
        raise ValueError(report.generate_report())
