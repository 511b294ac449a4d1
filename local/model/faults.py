"""Faults on demand, and the count of what was asked and billed."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
LASTING = ("status", "hang_after_deltas", "cut_after_deltas", "end_after_deltas", "error_in_stream", "drip")
OPTIONS = ("retry_after", "error_after_deltas", "no_usage", "probability", "seed")


@dataclass(frozen=True, slots=True)
class Fault:
    """What one call gets: `kind` of the `switches`; no kind is no fault."""

    kind: str
    switches: Mapping[str, Any]

    def before(self, caller: Caller) -> None:
        """What happens instead of an answer."""
        if self.kind == "hang_before_headers":
            caller.wait()
        if self.kind in ("throttle", "status"):
            retry_after = self.switches.get("retry_after")
            status = 429 if self.kind == "throttle" else self.switches["status"]
            raise _error(status, None if retry_after is None else str(retry_after))

    def during(self, events: Iterator[Event], caller: Caller) -> Iterator[Event]:
        """The answer, up to the fault."""
        pieces = {"malformed": 1, "drip": 0, "error_in_stream": self.switches.get("error_after_deltas", 2)}
        after, deltas = pieces.get(self.kind, self.switches.get(self.kind)), 0
        for event in events:
            if self.kind and (deltas == after or isinstance(event, End)):
                yield from self._strike(caller)
                return
            deltas += isinstance(event, Text)
            if isinstance(event, End) and self.switches.get("no_usage"):
                event = End(event.reason, None)
            yield event

    def _strike(self, caller: Caller) -> Iterator[Event]:
        match self.kind:
            case "malformed":
                yield Malformed()
            case "error_in_stream":
                yield Failure(_error(self.switches[self.kind]))
            case "cut_after_deltas":
                raise ConnectionCut
            case "hang_after_deltas":
                caller.wait()
        while self.kind == "drip":
            yield KeepAlive()
            caller.wait(self.switches[self.kind])


class Faults:
    """The switches of `PUT /faults`: a JSON object with any of these.

    throttle, hang_before_headers, malformed: the number of calls that get it
    status: an HTTP status that every call gets
    hang_after_deltas, cut_after_deltas, end_after_deltas: every call, after so many pieces of text. `cut` closes
        the connection, `end` ends the body in good order, but without what says that the answer is complete
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
        known = {*COUNTED, *LASTING, *OPTIONS}
        if not isinstance(switches, dict) or set(switches) - known:
            raise ValueError(f"expected an object with {', '.join(sorted(known))} or some of them")
        wrong = [name for name, value in switches.items() if not isinstance(value, int | float)]
        if set(wrong) - {"retry_after"}:
            raise ValueError(f"no number: {', '.join(wrong)}")
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
            fault = Fault(kind, dict(switches))
            if kind in COUNTED:
                switches[kind] -= 1
            return fault


class Calls:
    """Counts of calls: requests, completed (answers sent to their end), input_tokens, output_tokens.

    Tokens are what the model computed; of an answer that was cut off, the output only. There are counts of all
    calls, and by key, which is the header Idempotency-Key, or a hash of the last message.
    """

    NAMES = ("requests", "completed", "input_tokens", "output_tokens")

    def __init__(self) -> None:
        self._lock = threading.RLock()  # an answer that was left counts when it is collected, perhaps inside
        self._by_key: dict[str, Counter[str]] = defaultdict(lambda: Counter(dict.fromkeys(self.NAMES, 0)))

    def add(self, key: str, **numbers: int) -> None:
        with self._lock:
            self._by_key[key].update(numbers)

    def total(self, name: str) -> int:
        with self._lock:
            return sum(counts[name] for counts in self._by_key.values())

    def as_json(self) -> dict[str, Any]:
        totals = {name: self.total(name) for name in self.NAMES}
        with self._lock:
            return {**totals, "by_key": {key: dict(counts) for key, counts in self._by_key.items()}}


def _error(status: int, retry_after: str | None = None) -> ProviderError:
    kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    code = "rate_limit_exceeded" if status == 429 else None
    error = {"message": f"This error was switched on: {status}.", "type": kind, "param": None, "code": code}
    return ProviderError(status, error, retry_after=retry_after)
