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
    follow.
    """

    job_id: str
    sequence: int = 0
    status: str = ""
    etag: str | None = None
    updates: int = 0
    ended: bool = False

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
