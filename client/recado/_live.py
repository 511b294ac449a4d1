"""What is said over a WebSocket: JSON objects with an `action` there, with a `type` back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recado._cursor import Cursor, Gap, Text, events_of, mapping
from recado._io import Socket
from recado.errors import BadAnswer, ConnectionFailed
from recado.models import Delta, JobEvent

PING_SECONDS, SILENCES_PER_REPLAY = 60.0, 5
"""What a ping is sent after; one silence in five asks for a replay instead, in case that something was lost."""


@dataclass
class Line:
    """One WebSocket. A ping is sent where nothing is heard; whatever is heard is life, the service's pings too."""

    socket: Socket
    _silences: int = field(default=0, init=False)
    _unanswered: bool = field(default=False, init=False)

    async def receive(self, seconds: float) -> Mapping[str, Any] | None:
        """The next message, or None after a silence, which a ping has been sent into."""
        text = await self.socket.receive(seconds)
        if text is not None:
            self._unanswered = False
            return mapping(loads(text))
        if self._unanswered:
            raise ConnectionFailed("the WebSocket is silent")
        self._unanswered = True
        self._silences += 1
        await self._probe()
        return None

    async def say(self, action: str, **facts: Any) -> None:
        await self.socket.send(json.dumps({"action": action, **facts}))

    async def _probe(self) -> None:
        await self.say("ping")


@dataclass
class JobLine(Line):
    """One job's WebSocket: a replay is asked for where an event or a piece of its text is missing."""

    cursor: Cursor
    text: Text = field(default_factory=Text)
    _highest: int = field(default=0, init=False)
    _asked_at: int | None = field(default=-1, init=False)
    """How much was known when the replay began that is under way. The link itself asks for the first one."""

    def __post_init__(self) -> None:
        self.text.connect()

    async def take(self, payload: Any) -> JobEvent | None:
        """The event if it is the next one; what is missing before one that is not is asked for."""
        try:
            return self.cursor.take(payload)
        except Gap as gap:
            self._highest = max(self._highest, gap.sequence)
            if self._asked_at is None:
                await self._ask()
            return None

    async def hear(self, message: Mapping[str, Any]) -> Delta | None:
        """What is new of the text, if the message is about that. Anything else than events is dealt with."""
        delta = None
        if not self._is_ours(message):
            return None
        match message.get("type"):
            case "delta" | "snapshot":
                delta = self.text.take(message)
            case "subscribed":
                await self._end_replay(int(message.get("sequence", 0)))
            case "error":
                raise ConnectionFailed(f"{message.get('code')}: {message.get('message')}")
        if self.text.is_wanted and self._asked_at is None:
            await self._ask()
        return delta

    def is_caught_up(self, message: Mapping[str, Any]) -> bool:
        return message.get("type") == "subscribed" and self._asked_at is None

    async def _end_replay(self, sequence: int) -> None:
        self._highest = max(self._highest, sequence)
        if self._highest <= self.cursor.sequence:
            self._asked_at = None
        elif self._asked_at == self.cursor.news:
            raise Gap(self._highest)
        else:
            await self._ask()

    async def _probe(self) -> None:
        if self._asked_at is not None or self._silences % SILENCES_PER_REPLAY == 0:
            await self._ask()
        else:
            await super()._probe()

    async def _ask(self) -> None:
        self._asked_at, self.text.is_wanted = self.cursor.news, False
        await self.say("subscribe", job_id=self.cursor.job_id, after=self.cursor.sequence)

    def _is_ours(self, message: Mapping[str, Any]) -> bool:
        return bool(message.get("job_id", self.cursor.job_id) == self.cursor.job_id)


def payloads(message: Mapping[str, Any] | None) -> Sequence[Any]:
    """The events that a message brings, in order; none if it is about something else."""
    return events_of(message) if message and message.get("type") == "events" else ()


def loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise BadAnswer("a message that is no JSON") from None
