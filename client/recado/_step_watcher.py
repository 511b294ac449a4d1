"""Watch the steps of a job until it has ended. Polls do not bring steps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from recado._messages import DONE, STEP_TYPES, as_object, events_in_message, parse_json
from recado._step_cursor import StepCursor
from recado._watcher import Transport, Watcher
from recado._websocket import PING_SECONDS, PINGS_PER_REPLAY, WebSocketSession
from recado.errors import ConnectionFailed
from recado.models import JobEvent, Step

StepTransport = Literal["auto", "websocket", "sse"]


@dataclass
class StepWebSocketSession(WebSocketSession):
    """The WebSocket of one job. After five pings without a message it has to be opened again: one may be lost."""

    is_over: bool = field(default=False, init=False)

    async def _send_ping(self) -> None:
        self.is_over = self._idle_periods % PINGS_PER_REPLAY == 0
        await super()._send_ping()


@dataclass
class StepWatcher(Watcher[Step]):
    """A job without steps is watched to its end, too."""

    TRANSPORTS: ClassVar[Sequence[Transport]] = ("websocket", "sse")
    cursor: StepCursor

    def _session(self, transport: Transport) -> AsyncGenerator[Step, None]:
        return self._websocket() if transport == "websocket" else self._sse()

    async def _websocket(self) -> AsyncGenerator[Step, None]:
        async with self.api.io.socket(await self._live_link()) as socket:
            self.cursor.start_over()
            session = StepWebSocketSession(socket)
            while not (session.is_over or self.cursor.ended):
                message = await session.receive(self.deadline.limit(PING_SECONDS))
                self._is_subscribed = self._is_subscribed or message is not None
                if message and (step := self._accept(message)):
                    yield step

    async def _sse(self) -> AsyncGenerator[Step, None]:
        if not self.cursor.last_event_id:
            self.cursor.start_over()
        async with aclosing(self._sse_messages(self.cursor.last_event_id)) as messages:
            async for message in messages:
                step = self._accept(as_object(parse_json(message.data)))
                self.cursor.note_id(message.id)
                if step:
                    yield step
                if self.cursor.ended:
                    return

    def _accept(self, message: Mapping[str, Any]) -> Step | None:
        if message.get("job_id", self.job.job_id) != self.job.job_id:
            return None
        kind = message.get("type")
        if kind == "error":
            raise ConnectionFailed(f"{message.get('code')}: {message.get('message')}")
        if kind == DONE or any(JobEvent.of(event).is_final for event in events_in_message(message)):
            self.cursor.ended = True
        return self.cursor.accept(message) if kind in STEP_TYPES else None
