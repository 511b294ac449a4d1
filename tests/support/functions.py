"""Runs the project's Lambda handlers in this process, as the runtime would.

Each invocation has the environment of its function and nothing else of the test's, a context on the virtual
clock, and a payload that went through JSON both ways.
"""

from __future__ import annotations

import base64
import contextvars
import importlib
import json
import os
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from unittest import mock

from awslambdaric.lambda_runtime_marshaller import to_json  # type: ignore[import-untyped]
from moto.awslambda.models import LambdaFunction, lambda_backends

from .calls import Killed, caller
from .clock import Clock
from .template import folder

ACCOUNT, REGION = "123456789012", "eu-west-1"
MAX_RESPONSE_BYTES = 6 * 1024 * 1024
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
RUNTIME_VARIABLES = {
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
    "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
    "TZ": ":UTC",
}


class TimedOut(Killed):
    """The function used up its time."""


class Environ(type(os.environ)):  # type: ignore[misc]  # code may check for os.environ's own class
    """`os.environ` that shows a running function its own variables only."""

    def __init__(self, base: Any) -> None:
        self.__dict__.update(base.__dict__)

    def _own(self) -> MutableMapping[str, str] | None:
        by = cast("Invocation | None", caller.get())
        return by.environment if by else None

    def __getitem__(self, key: str) -> str:
        own = self._own()
        return own[key] if own is not None else super().__getitem__(key)

    def __setitem__(self, key: str, value: str) -> None:
        own = self._own()
        if own is None:
            super().__setitem__(key, value)
        else:
            own[key] = value

    def __delitem__(self, key: str) -> None:
        own = self._own()
        if own is None:
            super().__delitem__(key)
        else:
            del own[key]

    def __iter__(self) -> Iterator[str]:
        own = self._own()
        return iter(list(own)) if own is not None else super().__iter__()

    def __len__(self) -> int:
        own = self._own()
        return len(own) if own is not None else super().__len__()


@dataclass
class Context:
    """The `context` argument of a handler."""

    function_name: str
    memory_limit_in_mb: int
    invoked_function_arn: str
    aws_request_id: str
    log_group_name: str
    remaining: Callable[[], int]
    log_stream_name: str = "2026/11/30/[$LATEST]simulated"
    function_version: str = "$LATEST"
    client_context: None = None
    identity: None = None

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining()


class Invocation:
    """One run of a function; what `caller` holds meanwhile."""

    def __init__(self, function: LambdaFunction, clock: Clock, environment: dict[str, str]) -> None:
        self.function = function
        self.name = short_name(function)
        self.request_id = str(uuid.uuid4())
        self.environment = environment
        self.calls = 0
        self.fate: Killed | None = None
        self._clock = clock
        self.started = clock.time
        self._deadline = clock.time + int(function.timeout)

    def remaining(self) -> int:
        return max(0, int((self._deadline - self._clock.time) * 1000))

    def raise_if_over(self) -> None:
        if not self.fate and self._clock.time > self._deadline:
            self.fate = TimedOut(f"{self.request_id} Task timed out after {self.function.timeout}.00 seconds")
        if self.fate:
            raise self.fate

    def context(self) -> Context:
        return Context(
            function_name=self.function.function_name,
            memory_limit_in_mb=int(self.function.memory_size),
            invoked_function_arn=self.function.function_arn,
            aws_request_id=self.request_id,
            log_group_name=f"/aws/lambda/{self.function.function_name}",
            remaining=self.remaining,
        )


@dataclass(frozen=True)
class Outcome:
    """What the caller of a function gets: its JSON, or the error as JSON and the exception itself."""

    payload: str
    error: BaseException | None
    invocation: Invocation

    @property
    def value(self) -> Any:
        return json.loads(self.payload)


class Functions:
    """The deployed functions. `errors` collects what they raised, for tests and for diagnosis."""

    def __init__(self, clock: Clock, source: Path) -> None:
        self._clock = clock
        self._source = source
        self._owners: dict[str, str] = {}
        self.errors: list[tuple[str, BaseException]] = []
        self.invocations: list[Invocation] = []
        self.broken: list[ImportError] = []
        self.post: Callable[[LambdaFunction, str], None] = lambda function, body: None

    def get(self, name: str) -> LambdaFunction:
        """The function with this physical name or ARN."""
        return lambda_backends[ACCOUNT][REGION].get_function(name)

    def call(self, function: LambdaFunction, event: Any) -> Outcome:
        """Invoke and wait. Nothing a handler raises comes out, except that its code cannot be imported."""
        invocation = Invocation(function, self._clock, environment_of(function))
        self.invocations.append(invocation)
        token = caller.set(invocation)
        try:
            payload, error = self._run(invocation, json.loads(json.dumps(event, default=wire))), None
        except (Exception, Killed, SystemExit) as raised:
            payload, error = failure_payload(invocation, raised), raised
            self.errors.append((invocation.name, raised))
        finally:
            caller.reset(token)
        if isinstance(error, ImportError):
            # Kept too, for what calls functions on its own may swallow it.
            self.broken.append(error)
            raise error
        return Outcome(payload, error, invocation)

    def reset(self) -> None:
        """Every function starts cold: what its modules have cached is forgotten."""
        self._owners.clear()
        self.errors.clear()
        self.invocations.clear()
        self.broken.clear()
        for module in self._modules():
            clear_caches(module)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """moto's one way into a function runs ours, in an environment of its own, threads included."""

        def invoke(model: LambdaFunction, body: str, request: Any, response: Any) -> bytes:
            return self._invoke_api(model, body, request, response)

        source = str(self._source)
        added = [] if source in sys.path else [source]
        with (
            mock.patch.object(LambdaFunction, "invoke", invoke),
            mock.patch.object(os, "environ", Environ(os.environ)),
            mock.patch.object(threading.Thread, "start", inheriting(threading.Thread.start)),
            mock.patch.object(sys, "path", [*added, *sys.path]),
        ):
            yield

    def _run(self, invocation: Invocation, event: Any) -> str:
        handler = self._handler(invocation)
        result = handler(event, invocation.context())
        invocation.raise_if_over()
        payload: str = to_json(result)
        if len(payload.encode()) > MAX_RESPONSE_BYTES:
            raise ResponseSizeTooLarge(
                f"Response payload size exceeded maximum allowed payload size ({MAX_RESPONSE_BYTES} bytes)."
            )
        return payload

    def _handler(self, invocation: Invocation) -> Callable[[Any, Context], Any]:
        module_name, _, attribute = str(invocation.function.handler).replace("/", ".").rpartition(".")
        module = importlib.import_module(module_name)
        self._start_cold_for(invocation.function, module)
        return cast("Callable[[Any, Context], Any]", getattr(module, attribute))

    def _start_cold_for(self, function: LambdaFunction, module: ModuleType) -> None:
        # Two functions may share a module, but never a process.
        owner = self._owners.setdefault(module.__name__, function.function_name)
        if owner != function.function_name:
            self._owners[module.__name__] = function.function_name
            clear_caches(module)

    def _modules(self) -> list[ModuleType]:
        root = str(self._source)
        return [m for m in list(sys.modules.values()) if str(getattr(m, "__file__", None) or "").startswith(root)]

    def _invoke_api(self, model: LambdaFunction, body: str, request: Any, response: Any) -> bytes:
        headers = {key.lower(): value for key, value in dict(request or {}).items()}
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        if kind == "Event":
            self.post(model, body)
        if kind != "RequestResponse":
            return b""
        outcome = self.call(model, json.loads(body or "{}"))
        if outcome.error:
            response["x-amz-function-error"] = "Unhandled"
        return outcome.payload.encode()


class ResponseSizeTooLarge(Exception):
    """What Lambda reports as `Function.ResponseSizeTooLarge`."""


ERROR_TYPES = {
    TimedOut: "Sandbox.Timedout",
    Killed: "Runtime.ExitError",
    SystemExit: "Runtime.ExitError",
    ResponseSizeTooLarge: "Function.ResponseSizeTooLarge",
}


def short_name(function: LambdaFunction) -> str:
    return folder(str(function.handler))


def environment_of(function: LambdaFunction) -> dict[str, str]:
    return {
        **{key: os.environ[key] for key in KEPT_VARIABLES if key in os.environ},
        **RUNTIME_VARIABLES,
        "AWS_LAMBDA_FUNCTION_NAME": function.function_name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_size),
        "_HANDLER": str(function.handler),
        **{key: str(value) for key, value in function.environment_vars.items()},
    }


def failure_payload(invocation: Invocation, error: BaseException) -> str:
    """The error object of the Python runtime."""
    return json.dumps(
        {
            "errorMessage": str(error),
            "errorType": ERROR_TYPES.get(type(error), type(error).__name__),
            "requestId": invocation.request_id,
            "stackTrace": traceback.format_tb(error.__traceback__)[1:],
        }
    )


def wire(value: Any) -> Any:
    """How AWS writes into an event what JSON has no type for."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "timestamp"):
        return value.timestamp()
    raise TypeError(f"{type(value).__name__} in an event")


def clear_caches(module: ModuleType) -> None:
    for value in list(vars(module).values()):
        if callable(clear := getattr(value, "cache_clear", None)):
            clear()


def inheriting(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """Threads that a function starts belong to it."""

    def start_inheriting(thread: threading.Thread) -> None:
        if caller.get():
            context, run = contextvars.copy_context(), thread.run
            thread.run = lambda: context.run(run)  # type: ignore[method-assign]
        start(thread)

    return start_inheriting
