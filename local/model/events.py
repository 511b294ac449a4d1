"""What an answer consists of, whichever protocol carries it, and the caller that it goes to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments`: as the model wrote them; incomplete JSON if the answer was cut off."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class End:
    """`reason`: a stop reason of Bedrock."""

    reason: str
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Bytes without text."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """JSON that ends in the middle."""


class ProviderError(Exception):
    """An error of the upstream or of a request. `error`: OpenAI's error object, which has at least `message`."""

    def __init__(self, status: int, error: Mapping[str, Any], *, retry_after: str | None = None) -> None:
        super().__init__(error["message"])
        self.status, self.error, self.retry_after = status, dict(error), retry_after


@dataclass(frozen=True, slots=True)
class Failure:
    """An error after the status line has been sent. Nothing follows it."""

    error: ProviderError


@dataclass(frozen=True, slots=True)
class Head:
    """What else a response says. `request`: a chat completion. `started`: by the monotonic clock."""

    number: int
    request: Mapping[str, Any]
    started: float


Event = Text | ToolCall | End | KeepAlive | Malformed | Failure


def invalid(message: str) -> ProviderError:
    return ProviderError(400, {"message": message, "type": "invalid_request_error", "param": None, "code": None})


class CallerGone(Exception):
    """The caller has closed its connection."""


class ConnectionCut(Exception):
    """The connection ends here, in the middle of the answer."""


class Caller:
    """The caller of one request. `leave` may be called by another thread."""

    def __init__(self) -> None:
        self._gone = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    @property
    def is_gone(self) -> bool:
        return self._gone.is_set()

    def leave(self) -> None:
        with self._lock:
            self._gone.set()
        for callback in self._callbacks:
            callback()

    def on_leave(self, callback: Callable[[], object]) -> None:
        """Call it when the caller leaves, or now if it has left."""
        with self._lock:
            self._callbacks.append(callback)
        if self.is_gone:
            callback()

    def wait(self, seconds: float | None = None) -> None:
        """Wait; None: for ever. Raises CallerGone as soon as the caller leaves."""
        if self._gone.wait(seconds):
            raise CallerGone
