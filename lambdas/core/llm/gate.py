"""The gate before calls of models: the circuit of the provider, and the rate limits of the model."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from core.errors import ModelRejected
from core.jobs.kind import Wait
from core.llm.catalog import Model
from core.llm.circuit import Circuits
from core.llm.rate_limit import RateLimiter, Slot

MAX_UNSETTLED = 100
"""Calls that this process remembers. Those that were never made are forgotten at last."""


class ModelGate:
    """A job calls `admit`, then `succeeded`, `failed` or `released` once, and `settle`, all in one process."""

    def __init__(
        self,
        circuits: Circuits,
        limiter: RateLimiter,
        *,
        sleep: Callable[[float], None] = lambda seconds: time.sleep(seconds),
    ) -> None:
        self._circuits, self._limiter, self._sleep = circuits, limiter, sleep
        self._unsettled: deque[tuple[Model, int, Slot]] = deque(maxlen=MAX_UNSETTLED)

    def admit(self, model: Model, *, owner: str, tokens: int, waited: bool) -> Wait | None:
        """None if the job may call now. This sleeps up to 0.5 s. Else the Wait has whole seconds, 1 to 900.

        `tokens`: of the input, and `max_tokens`. `waited`: whether the job has waited before. Raises ModelRejected
        if the limit never allows so many tokens.
        """
        if not model.fits(tokens):
            raise ModelRejected(
                f"The request needs {tokens} tokens, with its max_tokens. The limit of {model.name} allows "
                f"{model.tokens and model.tokens.limit}. Shorten the input or lower max_tokens."
            )
        wait = self._circuits.admit(model.provider, owner)
        if wait is not None:
            return wait
        reserved = self._limiter.reserve(model, owner=owner, tokens=tokens, waited=waited)
        if isinstance(reserved, Wait):
            self._circuits.give_back(model.provider, owner)
            return reserved
        if model.tokens is not None:
            self._unsettled.append((model, tokens, reserved))
        if reserved.seconds > 0:
            self._sleep(reserved.seconds)
        return None

    def settle(self, model: Model, *, reserved: int, used: int) -> None:
        """After a call that was admitted with `reserved` tokens. Those that it did not use are free at once.

        Tokens of a call that is not settled count until the window has passed.
        """
        of_this_size = (call for call in self._unsettled if call[:2] == (model, reserved))
        # The oldest of several, whosever it is: tokens that are given back too early in the window do no harm.
        call = next(of_this_size, None)
        if call is not None:
            self._unsettled.remove(call)
            self._limiter.settle(model, call[2], reserved=reserved, used=used)

    def succeeded(self, model: Model, owner: str) -> None:
        """The provider answered. A refusal of the request (ModelRejected) is an answer, too."""
        self._circuits.succeeded(model.provider, owner)

    def failed(self, model: Model, owner: str) -> None:
        """The provider did not answer, or not to the end: any ModelFault but ModelThrottled."""
        self._circuits.failed(model.provider, owner)

    def released(self, model: Model, owner: str) -> None:
        """The call was not made, or it was canceled or throttled: this says nothing about the provider."""
        self._circuits.give_back(model.provider, owner)
