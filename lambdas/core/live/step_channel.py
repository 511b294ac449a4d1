"""Writes a job's steps and streams its text: to the table, and to the WebSockets that follow the steps.

    with StepChannel(job, jobs.steps, subscriptions, sockets) as channel:
        channel.write({"type": "tool_use", "tool": "search_documents", "input": {"query": "keys"}})
        for token in tokens:
            channel.write_text(token)

WebSockets get text as it comes. The table gets it in pieces, for server-sent events and for those who come late.
There is one producer at a time, so it also sends what was before to new subscribers, in order and without gaps.
What a subscriber has received is stored with its subscription, for the next producer and for the function `push`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from core.aws.batch import log_and_continue
from core.errors import JobClosed
from core.jobs.job import Job
from core.jobs.steps import TOKEN, Step, StepStore
from core.live import messages
from core.live.channel import FLUSH_SECONDS, REFRESH_SECONDS
from core.live.sockets import SendOutcome, Sockets
from core.live.subscriptions import HANDSHAKE_SECONDS, Subscription, Subscriptions

PIECE_SECONDS = 1.0
"""Text that is written within this time is one step."""
MAX_PIECES = 190
"""Steps with text, after which only the end of a text becomes another one. With those it is 200 of a job."""


@dataclass(slots=True)
class _Receiver:
    """A subscriber, how many of the messages it has received, and the step that is stored as its last one.

    `stored`: None until its first messages were sent.
    """

    subscription: Subscription
    position: int
    stored: int | None


class StepChannel:
    """`clock`: seconds, monotonic; `now`: epoch seconds. Raises JobClosed if another worker writes the steps."""

    def __init__(
        self,
        job: Job,
        steps: StepStore,
        subscriptions: Subscriptions,
        sockets: Sockets,
        *,
        clock: Callable[[], float] = lambda: time.monotonic(),
        now: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self._job, self._steps = job, steps
        self._subscriptions, self._sockets = subscriptions, sockets
        self._clock, self._now = clock, now
        self._lock = threading.RLock()
        self._messages: list[Mapping[str, Any]] = []
        """What a subscriber receives from the first step on."""
        self._ends: list[int] = [0]
        """How many messages there are after each stored step, by its number."""
        self._unsent: list[str] = []
        self._unstored: list[str] = []
        self._receivers: dict[str, _Receiver] = {}
        self._flushed_at = self._stored_at = self._refreshed_at = -math.inf
        self._pieces = 0
        self.earlier = self._steps.read(job.job_id)
        """The steps of earlier attempts."""
        for step in self.earlier:
            self._pieces += step.payload["type"] == TOKEN
            self._append(step.payload)

    def write(self, payload: Mapping[str, Any]) -> None:
        """Write and send a step. The text before it is stored first."""
        with self._lock:
            self._store_text()
            self._steps.append(self._job, len(self._ends), payload)
            self._append(payload)
            self._refresh(REFRESH_SECONDS)
            self._send()
            self._save_positions(self._receivers.values())

    def write_text(self, text: str) -> None:
        """Append text. It is sent at once, or with what is written within FLUSH_SECONDS."""
        with self._lock:
            if not self._unstored:
                self._stored_at = self._clock()
            self._unsent.append(text)
            self._unstored.append(text)
            if self._clock() - self._flushed_at >= FLUSH_SECONDS:
                self._flush_text()
                self._refresh(REFRESH_SECONDS)
                self._send()
            if self._clock() - self._stored_at >= PIECE_SECONDS and self._pieces < MAX_PIECES:
                self._store_text()

    def refresh(self) -> None:
        """Send new subscribers what was before. To be called now and then while nothing is written."""
        with self._lock:
            self._refresh(REFRESH_SECONDS)
            self._send()

    def __enter__(self) -> StepChannel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if not isinstance(error, JobClosed):  # a job that has ended has all its steps
                with log_and_continue():
                    self._store_text()
            self._flush_text()
            self._refresh(0)
            self._send()
            self._send()  # once more to those that could not be reached
            self._save_positions(self._receivers.values())

    def _append(self, payload: Mapping[str, Any]) -> None:
        self._messages.append(payload)
        self._ends.append(len(self._messages))

    def _store_text(self) -> None:
        """Store what is not stored yet as one step. It was sent already, or is sent now."""
        self._flush_text()
        text, self._unstored = "".join(self._unstored), []
        if text:
            self._steps.append(self._job, len(self._ends), {"type": TOKEN, "content": text})
            self._ends.append(len(self._messages))
            self._pieces += 1
            self._stored_at = self._clock()

    # ── WebSockets ───────────────────────────────────────────────────────────────────────────────────────

    def _flush_text(self) -> None:
        self._flushed_at = self._clock()
        text, self._unsent = "".join(self._unsent), []
        if text:
            self._messages.append({"type": TOKEN, "content": text})

    def _refresh(self, seconds: float) -> None:
        """Read the subscribers, if that was so long ago."""
        if self._clock() - self._refreshed_at < seconds:
            return
        self._refreshed_at = self._clock()
        with log_and_continue():  # the work does not fail because nobody can be told of it
            found = self._subscriptions.subscribers(self._job.job_id).of_steps
            self._receivers = {
                one.request_id: self._receivers.get(one.request_id) or self._receiver(one) for one in found
            }

    def _receiver(self, subscription: Subscription) -> _Receiver:
        known = last_received(subscription, self.earlier)
        return _Receiver(subscription, self._ends[known], known if subscription.active else None)

    def _send(self) -> None:
        end = len(self._messages)
        waiting = [one for one in self._receivers.values() if one.position < end]
        if not waiting:
            return
        packed = {
            start: encode(self._job.job_id, self._messages[start:]) for start in {w.position for w in waiting}
        }
        outcomes = self._sockets.send_all(
            {one.subscription.connection_id: packed[one.position] for one in waiting}
        )
        for one in waiting:
            outcome = outcomes[one.subscription.connection_id]
            if outcome is SendOutcome.SENT:
                one.position = end
            elif outcome is SendOutcome.GONE and self._now() - one.subscription.connected_at >= HANDSHAKE_SECONDS:
                self._remove(one.subscription)
        self._save_positions(one for one in waiting if one.stored is None)

    def _save_positions(self, receivers: Iterable[_Receiver]) -> None:
        """So that the next producer, and `push` at the job's end, go on where this one was."""
        number, end = len(self._ends) - 1, self._ends[-1]
        for one in receivers:
            if one.position >= end and one.stored != number:
                with log_and_continue():
                    self._subscriptions.save_steps(one.subscription, number)
                    one.stored = number

    def _remove(self, subscription: Subscription) -> None:
        del self._receivers[subscription.request_id]
        with log_and_continue():
            self._subscriptions.delete_connection(subscription.connection_id)


def last_received(subscription: Subscription, steps: Sequence[Step]) -> int:
    """The number of the last of the job's steps that a subscriber has received.

    Its position is stored after steps of other types than text: text is sent before it becomes a step.
    """
    number = subscription.steps or 0
    while subscription.active and number < len(steps) and steps[number].payload["type"] == TOKEN:
        number += 1
    return number


def encode(job_id: str, steps: Iterable[Mapping[str, Any]]) -> list[str]:
    """The messages for these steps. Successive texts are joined, and long ones are cut to the size of a frame."""
    encoded: list[str] = []
    text = ""
    for step in steps:
        if step["type"] == TOKEN:
            text += step["content"]
            continue
        encoded += [*_of_text(job_id, text), messages.of_type(**step, job_id=job_id)]
        text = ""
    return [*encoded, *_of_text(job_id, text)]


def _of_text(job_id: str, text: str) -> list[str]:
    pieces = messages.pieces(text) if text else []
    return [messages.of_type(TOKEN, content=piece, job_id=job_id) for piece in pieces]
