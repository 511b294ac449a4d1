"""The WebSocket protocol of the service: JSON objects with an `action` to it, and with a `type` from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recado._event_cursor import EventCursor, EventGap
from recado._io import WebSocket
from recado._messages import as_object, parse_json
from recado._streamed_text import StreamedText
from recado.errors import ConnectionFailed
from recado.models import Delta, JobEvent

PING_SECONDS = 60.0
"""A ping is sent after so many seconds without a message."""
PINGS_PER_REPLAY = 5
"""A replay is requested instead of every fifth ping, because a pushed event may have been lost."""


@dataclass
class WebSocketSession:
    """One WebSocket. It sends a ping when it is idle, and fails if no message follows the ping."""

    socket: WebSocket
    _idle_periods: int = field(default=0, init=False)
    _ping_is_unanswered: bool = field(default=False, init=False)

    async def receive(self, seconds: float) -> Mapping[str, Any] | None:
        """The next message. None if none was received in that time; a ping was sent then."""
        text = await self.socket.receive(seconds)
        if text is not None:
            self._ping_is_unanswered = False
            return as_object(parse_json(text))
        if self._ping_is_unanswered:
            raise ConnectionFailed("The WebSocket does not respond.")
        self._ping_is_unanswered = True
        self._idle_periods += 1
        await self._send_ping()
        return None

    async def send(self, action: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"action": action, **fields}))

    async def _send_ping(self) -> None:
        await self.send("ping")


@dataclass
class JobWebSocketSession(WebSocketSession):
    """The WebSocket of one job. It requests a replay if an event or a delta of the text is missing."""

    cursor: EventCursor
    text: StreamedText = field(default_factory=StreamedText)
    _highest_sequence: int = field(default=0, init=False)
    _updates_before_replay: int | None = field(default=-1, init=False)
    """`cursor.updates` when the running replay was requested, else None. The URL requests the first replay."""

    def __post_init__(self) -> None:
        self.text.reset_connection()

    async def accept(self, payload: Any) -> JobEvent | None:
        """The event if it is the next one. If events are missing before it, a replay is requested."""
        try:
            return self.cursor.accept(payload)
        except EventGap as gap:
            self._highest_sequence = max(self._highest_sequence, gap.sequence)
            if self._updates_before_replay is None:
                await self._request_replay()
            return None

    async def handle(self, message: Mapping[str, Any]) -> Delta | None:
        """Process a message that is not about events. Returns the new text, if there is any."""
        delta = None
        if message.get("job_id", self.cursor.job_id) != self.cursor.job_id:
            return None
        match message.get("type"):
            case "delta" | "snapshot":
                delta = self.text.accept(message)
            case "subscribed":
                await self._end_replay(int(message.get("sequence", 0)))
            case "error":
                raise ConnectionFailed(f"{message.get('code')}: {message.get('message')}")
        if self.text.needs_replay and self._updates_before_replay is None:
            await self._request_replay()
        return delta

    def is_caught_up(self, message: Mapping[str, Any]) -> bool:
        """Whether the message ended the last replay."""
        return message.get("type") == "subscribed" and self._updates_before_replay is None

    async def _end_replay(self, sequence: int) -> None:
        self._highest_sequence = max(self._highest_sequence, sequence)
        if self._highest_sequence <= self.cursor.sequence:
            self._updates_before_replay = None
        elif self._updates_before_replay == self.cursor.updates:
            raise EventGap(self._highest_sequence)
        else:
            await self._request_replay()

    async def _send_ping(self) -> None:
        if self._updates_before_replay is not None or self._idle_periods % PINGS_PER_REPLAY == 0:
            await self._request_replay()
        else:
            await super()._send_ping()

    async def _request_replay(self) -> None:
        self._updates_before_replay, self.text.needs_replay = self.cursor.updates, False
        await self.send("subscribe", job_id=self.cursor.job_id, after=self.cursor.sequence)
