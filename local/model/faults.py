"""Faults on demand, and the count of what was asked and billed."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from local.model.events import (
    Caller,
    ConnectionCut,
    End,
    Event,
    Failure,
    KeepAlive,
    Malformed,
    ProviderError,
    Text,
)

COUNTED = ("throttle", "hang_before_headers", "malformed")
LASTING = ("status", "hang_after_deltas", "cut_after_deltas", "error_in_stream", "drip")
OPTIONS = ("retry_after", "error_after_deltas", "no_usage", "probability", "seed")


@dataclass(frozen=True, slots=True)
class Fault:
    """What one call gets. An empty `kind` is none."""

    kind: str = ""
    value: Any = None
    retry_after: Any = None
    error_after: int = 2
    no_usage: bool = False

    def before(self, caller: Caller) -> None:
        """What happens instead of an answer."""
        if self.kind == "hang_before_headers":
            caller.wait()
        if self.kind in ("throttle", "status"):
            status = 429 if self.kind == "throttle" else int(self.value)
            raise _error(status, None if self.retry_after is None else str(self.retry_after))

    def during(self, events: Iterator[Event], caller: Caller) -> Iterator[Event]:
        """The answer, up to the fault."""
        after = {"malformed": 1, "drip": 0, "error_in_stream": self.error_after}.get(self.kind, self.value)
        deltas = 0
        for event in events:
            if self._is_here and (deltas == after or isinstance(event, End)):
                yield from self._strike(caller)
                return
            deltas += isinstance(event, Text)
            yield End(event.reason, None) if self.no_usage and isinstance(event, End) else event

    @property
    def _is_here(self) -> bool:
        return self.kind in ("malformed", "drip", "error_in_stream", "hang_after_deltas", "cut_after_deltas")

    def _strike(self, caller: Caller) -> Iterator[Event]:
        match self.kind:
            case "malformed":
                yield Malformed()
            case "error_in_stream":
                yield Failure(_error(int(self.value)))
            case "cut_after_deltas":
                raise ConnectionCut
            case "hang_after_deltas":
                caller.wait()
        while self.kind == "drip":
            yield KeepAlive()
            caller.wait(float(self.value))


class Faults:
    """The switches of `PUT /faults`: a JSON object with any of these.

    throttle, hang_before_headers, malformed: the number of calls that get it
    status: an HTTP status that every call gets
    hang_after_deltas, cut_after_deltas: every call, after so many pieces of text
    error_in_stream: the HTTP status of an error that every call gets, after `error_after_deltas` pieces (2)
    drip: seconds between keep-alives without text, which every call gets for ever
    retry_after: the header of `throttle` and `status`
    no_usage: answers without usage
    probability: of a fault in a call, with `seed`; each of the others is then equally probable
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.set({})

    def set(self, switches: Any) -> None:
        """Replace all. Raises ValueError."""
        if not isinstance(switches, dict) or (unknown := set(switches) - {*COUNTED, *LASTING, *OPTIONS}):
            known = ", ".join((*COUNTED, *LASTING, *OPTIONS))
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}; known: {known}" if switches else "no object")
        with self._lock:
            self._switches = dict(switches)
            self._random = random.Random(switches.get("seed", 0))

    def draw(self) -> Fault:
        """The fault of the next call."""
        with self._lock:
            switches = self._switches
            kinds = [kind for kind in (*COUNTED, *LASTING) if kind in switches]
            kinds = [kind for kind in kinds if kind not in COUNTED or switches[kind] > 0]
            probability = switches.get("probability", 1)
            kind = ""
            if kinds and self._random.random() < probability:
                kind = kinds[0] if probability == 1 else self._random.choice(kinds)
            fault = Fault(
                kind=kind,
                value=switches.get(kind),
                retry_after=switches.get("retry_after"),
                error_after=switches.get("error_after_deltas", 2),
                no_usage=bool(switches.get("no_usage")),
            )
            if kind in COUNTED:
                switches[kind] -= 1
            return fault


@dataclass(slots=True)
class Count:
    """Of all calls, or of those with one key. `completed`: answers sent to their end.

    Tokens are what the model computed, also in answers that were cut off.
    """

    requests: int = 0
    completed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, *, requests: int = 0, completed: int = 0, input_tokens: int = 0, output_tokens: int = 0) -> None:
        self.requests += requests
        self.completed += completed
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens


@dataclass(slots=True)
class Calls:
    """Counts by key, which is the header Idempotency-Key, or a hash of the last message."""

    total: Count = field(default_factory=Count)
    by_key: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, key: str, **numbers: int) -> None:
        with self._lock:
            self.total.add(**numbers)
            self.by_key[key].add(**numbers)

    def as_json(self) -> dict[str, Any]:
        with self._lock:
            return asdict(self.total) | {"by_key": {key: asdict(count) for key, count in self.by_key.items()}}


def _error(status: int, retry_after: str | None = None) -> ProviderError:
    kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    code = "rate_limit_exceeded" if status == 429 else None
    error = {"message": f"This error was switched on: {status}.", "type": kind, "param": None, "code": code}
    return ProviderError(status, error, retry_after=retry_after)
