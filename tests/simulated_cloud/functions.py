"""Runs Lambda handlers in the process of the test, as the Lambda runtime for Python does.

Each invocation sees the environment variables of its function only, has a context on the virtual clock, and gets
and returns JSON. Python code, layers and the file system are those of the test process.
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
from .template import handler_folder

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
    """The function ran longer than its timeout."""


class Environ(type(os.environ)):  # type: ignore[misc]  # code may check for os.environ's own class
    """`os.environ` that shows a running function only its own variables."""

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
class LambdaContext:
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
    """One run of a function. The context variable `caller` holds it during the run. `calls` counts AWS calls."""

    def __init__(self, function: LambdaFunction, clock: Clock, environment: dict[str, str]) -> None:
        self.function = function
        self.name = short_name(function)
        self.request_id = str(uuid.uuid4())
        self.environment = environment
        self.calls = 0
        self.killed_by: Killed | None = None
        self._clock = clock
        self.started = clock.time
        self._deadline = clock.time + int(function.timeout)

    def remaining(self) -> int:
        """Milliseconds until the timeout."""
        return max(0, int((self._deadline - self._clock.time) * 1000))

    def raise_if_ended(self) -> None:
        if not self.killed_by and self._clock.time > self._deadline:
            self.killed_by = TimedOut(f"{self.request_id} Task timed out after {self.function.timeout}.00 seconds")
        if self.killed_by:
            raise self.killed_by

    def context(self) -> LambdaContext:
        return LambdaContext(
            function_name=self.function.function_name,
            memory_limit_in_mb=int(self.function.memory_size),
            invoked_function_arn=self.function.function_arn,
            aws_request_id=self.request_id,
            log_group_name=f"/aws/lambda/{self.function.function_name}",
            remaining=self.remaining,
        )


@dataclass(frozen=True)
class InvocationResult:
    """The result of an invocation: `payload` is its JSON. A failed invocation has the exception in `error`."""

    payload: str
    error: BaseException | None
    invocation: Invocation

    @property
    def value(self) -> Any:
        return json.loads(self.payload)


class Functions:
    """The deployed functions. `invocations` records all runs, `errors` what they raised, by short name.

    `enqueue` is called for asynchronous invocations.
    """

    def __init__(self, clock: Clock, source: Path) -> None:
        self._clock = clock
        self._source = source
        self._owners: dict[str, str] = {}
        self._seen: tuple[int, str] = (0, "")
        self._found: list[ModuleType] = []
        self.errors: list[tuple[str, BaseException]] = []
        self.invocations: list[Invocation] = []
        self.import_errors: list[ImportError] = []
        self.enqueue: Callable[[LambdaFunction, str], None] = lambda function, body: None

    def get(self, name: str) -> LambdaFunction:
        """The function with this physical name or ARN."""
        return lambda_backends[ACCOUNT][REGION].get_function(name)

    def call(self, function: LambdaFunction, event: Any) -> InvocationResult:
        """Invoke a function and wait for it.

        Errors of the handler are in the result. Only an ImportError is raised, because it is a mistake of the test
        setup and not a behaviour of the function.
        """
        invocation = Invocation(function, self._clock, environment_of(function))
        self.invocations.append(invocation)
        token = caller.set(invocation)
        try:
            payload, error = self._run(invocation, json.loads(json.dumps(event, default=json_default))), None
        except (Exception, Killed, SystemExit) as raised:
            payload, error = failure_payload(invocation, raised), raised
            self.errors.append((invocation.name, raised))
        finally:
            caller.reset(token)
        if isinstance(error, ImportError):
            # Also recorded, because Step Functions or a poller may catch it.
            self.import_errors.append(error)
            raise error
        return InvocationResult(payload, error, invocation)

    def reset(self) -> None:
        """Forget all invocations, and clear the caches of all modules: every function starts cold again."""
        self._owners.clear()
        self.errors.clear()
        self.invocations.clear()
        self.import_errors.clear()
        for module in self._modules():
            clear_caches(module)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Inside the block, moto's Lambda invokes the handlers, each with its own environment variables."""

        def invoke(model: LambdaFunction, body: str, request: Any, response: Any) -> bytes:
            return self._invoke_api(model, body, request, response)

        source = str(self._source)
        added = [] if source in sys.path else [source]
        with (
            mock.patch.object(LambdaFunction, "invoke", invoke),
            mock.patch.object(os, "environ", Environ(os.environ)),
            mock.patch.object(threading.Thread, "start", inheriting_caller(threading.Thread.start)),
            mock.patch.object(sys, "path", [*added, *sys.path]),
        ):
            yield

    def _run(self, invocation: Invocation, event: Any) -> str:
        handler = self._handler(invocation)
        result = handler(event, invocation.context())
        invocation.raise_if_ended()
        payload: str = to_json(result)
        if len(payload.encode()) > MAX_RESPONSE_BYTES:
            raise ResponseSizeTooLarge(
                f"Response payload size exceeded maximum allowed payload size ({MAX_RESPONSE_BYTES} bytes)."
            )
        return payload

    def _handler(self, invocation: Invocation) -> Callable[[Any, LambdaContext], Any]:
        module_name, _, attribute = str(invocation.function.handler).replace("/", ".").rpartition(".")
        module = importlib.import_module(module_name)
        self._start_cold_for(invocation.function, module)
        return cast("Callable[[Any, LambdaContext], Any]", getattr(module, attribute))

    def _start_cold_for(self, function: LambdaFunction, module: ModuleType) -> None:
        # Two functions may share a module, but each has its own process in AWS: clear the caches in between.
        owner = self._owners.setdefault(module.__name__, function.function_name)
        if owner != function.function_name:
            self._owners[module.__name__] = function.function_name
            clear_caches(module)

    def _modules(self) -> list[ModuleType]:
        seen = len(sys.modules), next(reversed(sys.modules))
        if seen != self._seen:
            root, loaded = str(self._source), list(sys.modules.values())
            self._found = [m for m in loaded if str(getattr(m, "__file__", None) or "").startswith(root)]
            self._seen = seen
        return self._found

    def _invoke_api(self, model: LambdaFunction, body: str, request: Any, response: Any) -> bytes:
        headers = {key.lower(): value for key, value in dict(request or {}).items()}
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        if kind == "Event":
            self.enqueue(model, body)
        if kind != "RequestResponse":
            return b""
        result = self.call(model, json.loads(body or "{}"))
        if result.error:
            response["x-amz-function-error"] = "Unhandled"
        return result.payload.encode()


class ResponseSizeTooLarge(Exception):
    """Lambda's error `Function.ResponseSizeTooLarge`."""


ERROR_TYPES = {
    TimedOut: "Sandbox.Timedout",
    Killed: "Runtime.ExitError",
    SystemExit: "Runtime.ExitError",
    ResponseSizeTooLarge: "Function.ResponseSizeTooLarge",
}


def short_name(function: LambdaFunction) -> str:
    """The name by which tests refer to the function: the folder of its handler."""
    return handler_folder(str(function.handler))


def environment_of(function: LambdaFunction) -> dict[str, str]:
    """The environment variables of an invocation."""
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
    """The error response of the Python runtime."""
    return json.dumps(
        {
            "errorMessage": str(error),
            "errorType": ERROR_TYPES.get(type(error), type(error).__name__),
            "requestId": invocation.request_id,
            "stackTrace": traceback.format_tb(error.__traceback__)[1:],
        }
    )


def json_default(value: Any) -> Any:
    """How AWS writes bytes and times into the JSON of an event."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "timestamp"):
        return value.timestamp()
    raise TypeError(f"{type(value).__name__} in an event")


def clear_caches(module: ModuleType) -> None:
    """Call `cache_clear` of all objects of the module that have it, such as functions with `functools.cache`."""
    for value in list(vars(module).values()):
        if not isinstance(value, type) and callable(clear := getattr(value, "cache_clear", None)):
            clear()


def inheriting_caller(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """Patch of `Thread.start`: a thread that a function starts makes its AWS calls as that function."""

    def start_inheriting(thread: threading.Thread) -> None:
        if caller.get():
            context, run = contextvars.copy_context(), thread.run
            thread.run = lambda: context.run(run)  # type: ignore[method-assign]
        start(thread)

    return start_inheriting
