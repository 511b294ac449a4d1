"""Streams text, such as the tokens of a model call, to the subscribers of a job. The text is not logged.

    with Channel(job_id, subscriptions, sockets) as channel:
        for token in tokens:
            channel.write(token)

There is one producer at a time, so it also sends the text so far to new subscribers. Text may be lost if a
connection breaks or the producer is killed, so the whole text belongs into the job's result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType

from botocore.exceptions import BotoCoreError, ClientError

from core.aws import errors as aws_errors
from core.live import messages
from core.live.sockets import SendOutcome, Sockets
from core.live.subscriptions import Subscription, Subscriptions
from core.log import logger

FLUSH_SECONDS = 0.1
"""Text that is written within this time goes into one message: each message costs, and nobody reads faster."""
REFRESH_SECONDS = 1.0
"""The longest delay until a new subscriber receives the text so far."""


class Channel:
    """A text that grows. `clock`: seconds, monotonic."""

    def __init__(
        self,
        job_id: str,
        subscriptions: Subscriptions,
        sockets: Sockets,
        *,
        clock: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self._job_id, self._subscriptions, self._sockets, self._clock = job_id, subscriptions, sockets, clock
        self._sent: list[str] = []
        self._buffer: list[str] = []
        self._index = 0
        self._subscribers: list[Subscription] = []
        self._current: set[str] = set()
        """The `request_id` of each subscriber that has received the whole text so far."""
        self._refreshed_at = self._flushed_at = -FLUSH_SECONDS - REFRESH_SECONDS + clock()

    def write(self, text: str) -> None:
        """Append text. It is sent at once, or with what is written within FLUSH_SECONDS after the last flush."""
        self._buffer.append(text)
        if self._clock() - self._flushed_at >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send the buffered text, and the whole text to new subscribers."""
        added, self._buffer = "".join(self._buffer), []
        self._flushed_at = self._clock()
        self._refresh()
        if not added:
            self._send()
            return
        for piece in messages.pieces(added):
            self._sent.append(piece)
            self._index += 1
            self._send(messages.of_delta(self._job_id, self._index, piece))

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._refreshed_at = -math.inf  # include the newest subscribers
        self.flush()
        self._send()  # once more to those that could not be reached: there is no later piece

    def _refresh(self) -> None:
        if self._clock() - self._refreshed_at < REFRESH_SECONDS:
            return
        self._refreshed_at = self._clock()
        with _log_errors():
            self._subscribers = self._subscriptions.subscribers(self._job_id).active
            self._current &= {subscriber.request_id for subscriber in self._subscribers}

    def _send(self, *deltas: str) -> None:
        """Send the deltas to current subscribers, and the whole text to the others."""
        outdated = [one for one in self._subscribers if one.request_id not in self._current]
        recipients = self._subscribers if deltas else outdated
        if not recipients or not self._sent:
            return
        snapshot = messages.of_snapshot(self._job_id, self._index, "".join(self._sent)) if outdated else []
        outcomes = self._sockets.send_all(
            {one.connection_id: deltas if one.request_id in self._current else snapshot for one in recipients}
        )
        self._record(recipients, outcomes)

    def _record(self, recipients: Sequence[Subscription], outcomes: Mapping[str, SendOutcome]) -> None:
        for subscriber in recipients:
            outcome = outcomes[subscriber.connection_id]
            if outcome is SendOutcome.SENT:
                self._current.add(subscriber.request_id)
            else:  # it receives the whole text next time
                self._current.discard(subscriber.request_id)
            if outcome is SendOutcome.GONE:
                self._remove(subscriber)

    def _remove(self, subscriber: Subscription) -> None:
        self._subscribers = [one for one in self._subscribers if one is not subscriber]
        with _log_errors():
            self._subscriptions.delete_connection(subscriber.connection_id)


@contextmanager
def _log_errors() -> Iterator[None]:
    """The producer does not fail because a subscriber cannot be reached."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        logger.warning("subscribers of a channel not read or deleted", reason=aws_errors.reason(error))
