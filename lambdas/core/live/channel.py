"""Text as it comes, like the tokens of a model call: straight to the sockets of a job's listeners, into no log.

    with Channel(job_id, subscriptions, sockets) as channel:
        for token in tokens:
            channel.write(token)

One producer speaks at a time, so who comes late is sent by it as well: the text so far, then what is added. What
is said here may be lost (a socket breaks, a producer is killed); the whole text belongs into the job's result.
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
"""What comes faster goes together: a person reads no faster, and each message costs."""
REFRESH_SECONDS = 1.0
"""How long who comes late may wait for the text so far."""


class Channel:
    """A text that grows. `clock` and its like: seconds, monotonic."""

    def __init__(
        self,
        job_id: str,
        subscriptions: Subscriptions,
        sockets: Sockets,
        *,
        clock: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self._job_id, self._audience, self._sockets, self._clock = job_id, subscriptions, sockets, clock
        self._said: list[str] = []
        self._unsaid: list[str] = []
        self._index = 0
        self._listeners: list[Subscription] = []
        self._greeted: set[str] = set()
        self._refreshed_at = self._flushed_at = -FLUSH_SECONDS - REFRESH_SECONDS + clock()

    def write(self, text: str) -> None:
        """Add to the text. It is said at once, or with what is written a tenth of a second after that."""
        self._unsaid.append(text)
        if self._clock() - self._flushed_at >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Say what has not been said yet; where that is nothing, only to those who have come late."""
        added, self._unsaid = "".join(self._unsaid), []
        self._flushed_at = self._clock()
        self._refresh()
        if not added:
            self._say()
            return
        for piece in messages.pieces(added):
            self._said.append(piece)
            self._index += 1
            self._say(messages.of_delta(self._job_id, self._index, piece))

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._refreshed_at = -math.inf  # who has come by now is sent as well
        self.flush()
        self._say()  # there is no later piece that would bring it to who could not be reached

    def _refresh(self) -> None:
        if self._clock() - self._refreshed_at < REFRESH_SECONDS:
            return
        self._refreshed_at = self._clock()
        with _harmless():
            self._listeners = list(self._audience.subscribers(self._job_id).joined)
            self._greeted &= {listener.asking for listener in self._listeners}

    def _say(self, *news: str) -> None:
        """These to who has heard all that came before; the text so far to everybody else."""
        to_greet = [one for one in self._listeners if one.asking not in self._greeted]
        to_tell = self._listeners if news else to_greet
        if not to_tell or not self._said:
            return
        snapshot = messages.of_snapshot(self._job_id, self._index, "".join(self._said)) if to_greet else []
        self._settle(
            to_tell,
            self._sockets.send_all(
                {one.connection_id: news if one.asking in self._greeted else snapshot for one in to_tell}
            ),
        )

    def _settle(self, offset: Sequence[Subscription], outcomes: Mapping[str, SendOutcome]) -> None:
        for listener in offset:
            outcome = outcomes[listener.connection_id]
            if outcome is SendOutcome.SENT:
                self._greeted.add(listener.asking)
            else:  # it is sent all of it again
                self._greeted.discard(listener.asking)
            if outcome is SendOutcome.GONE:
                self._forget(listener)

    def _forget(self, listener: Subscription) -> None:
        self._listeners = [one for one in self._listeners if one is not listener]
        with _harmless():
            self._audience.forget(listener.connection_id)


@contextmanager
def _harmless() -> Iterator[None]:
    """Who makes a text is not to fail because somebody cannot be told of it."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        logger.warning("a text's listeners were not looked after", reason=aws_errors.reason(error))
