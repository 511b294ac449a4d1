"""The position in a job's event log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recado.errors import RecadoError
from recado.models import JobEvent


class EventGap(RecadoError):
    """Events are missing before the event number `sequence`."""

    def __init__(self, sequence: int) -> None:
        super().__init__(f"Events are missing before event {sequence}.")
        self.sequence = sequence


@dataclass
class EventCursor:
    """`sequence`: of the last event that was accepted. `status`: of the job after it, empty if unknown.

    `etag`: of the last status that was read. `updates` counts new events and statuses. `ended`: no event will
    follow. `step`: the number of the last step in a stream of server-sent events, if the job has steps.
    """

    job_id: str
    sequence: int = 0
    status: str = ""
    etag: str | None = None
    updates: int = 0
    ended: bool = False
    step: int = 0

    @property
    def last_event_id(self) -> str:
        """What a stream of server-sent events goes on from; empty at the beginning."""
        if self.step:
            return f"{self.sequence}.{self.step}"
        return str(self.sequence or "")

    def note_id(self, event_id: str) -> None:
        """Take in the id of a step, which is not an event: `sequence.step`. The stream goes on after it."""
        _, _, step = event_id.partition(".")
        if step.isascii() and step.isdecimal() and int(step) > self.step:
            self.step = int(step)
            self.updates += 1

    def accept(self, payload: Any) -> JobEvent | None:
        """The event if it is the next one, None for a repetition. Raises EventGap if events are missing."""
        event = JobEvent.of(payload)
        if event.job_id != self.job_id or event.sequence <= self.sequence:
            return None
        if event.sequence != self.sequence + 1:
            raise EventGap(event.sequence)
        self.sequence, self.status = event.sequence, event.status
        self.ended = self.ended or event.is_final
        self.updates += 1
        return event
