"""What has been seen of a job: its events by their numbers, and a text that is being made by its pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recado.errors import BadAnswer, RecadoError
from recado.models import Delta, JobEvent


class Gap(RecadoError):
    """Events are missing before the one of this `sequence`."""

    def __init__(self, sequence: int) -> None:
        super().__init__(f"events are missing before event {sequence}")
        self.sequence = sequence


@dataclass
class Cursor:
    """What has been seen of a job. `news` counts whatever was not known before.

    `status` is the job's after the event of this `sequence`, empty where that is not known.
    """

    job_id: str
    sequence: int = 0
    status: str = ""
    etag: str | None = None
    news: int = 0
    ended: bool = False

    def take(self, payload: Any) -> JobEvent | None:
        """The event if it is the next one, None for a repetition. Raises Gap if one is missing before it."""
        event = JobEvent.of(payload)
        if event.job_id != self.job_id or event.sequence <= self.sequence:
            return None
        if event.sequence != self.sequence + 1:
            raise Gap(event.sequence)
        self.sequence, self.status = event.sequence, event.status
        self.ended = self.ended or event.is_final
        self.news += 1
        return event


@dataclass
class Text:
    """How far a text is known, which comes in numbered deltas and, for who comes late, as a snapshot.

    One producer speaks at a time and in order. What it says may be lost; after a replay has been asked for it
    says all of it again as a snapshot, together with the next piece, and goes on from there.
    """

    index: int = 0
    is_wanted: bool = False
    """Whether a replay is to be asked for."""
    _jumps: int = 0
    _parts: list[str] = field(default_factory=list)
    _parts_of: tuple[int, int] = (0, 0)

    def connect(self) -> None:
        """On a new connection nothing is half said."""
        self._parts, self._jumps, self.is_wanted = [], 0, False

    def take(self, message: Mapping[str, Any]) -> Delta | None:
        """What is new in a `delta` or `snapshot`; None for repetitions, jumps, all parts but the last."""
        return self._delta(message) if message.get("type") == "delta" else self._snapshot(message)

    def _delta(self, message: Mapping[str, Any]) -> Delta | None:
        delta = Delta.of(message)
        if delta.index == self.index + 1:
            self.index = delta.index
            return delta
        if delta.index > self.index:
            self._jump()
        return None

    def _snapshot(self, message: Mapping[str, Any]) -> Delta | None:
        """The whole once its last part has come. It replaces all: a producer that begins again counts anew."""
        piece = Delta.of({**message, "is_snapshot": True})
        part, parts = int(message.get("part", 0)), int(message.get("parts", 1))
        if part == 0:
            self._parts, self._parts_of = [], (piece.index, parts)
        if self._parts_of != (piece.index, parts) or part != len(self._parts):
            self._jump()
            return None
        self._parts.append(piece.text)
        if len(self._parts) < parts:
            return None
        whole = {"job_id": message.get("job_id"), "index": piece.index, "text": "".join(self._parts)}
        self.connect()
        self.index = piece.index
        return Delta.of({"type": "snapshot", **whole, "is_snapshot": True})

    def _jump(self) -> None:
        """Ask at the first, second, fourth, eighth … of what does not fit: an answer may be long in coming."""
        self._jumps += 1
        self.is_wanted = self.is_wanted or self._jumps & (self._jumps - 1) == 0


def mapping(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise BadAnswer("a message that is no object")
    return data


def events_of(data: Any) -> list[Any]:
    """The payloads in a page of a log, or in a message of a WebSocket."""
    events = mapping(data).get("events")
    if not isinstance(events, list):
        raise BadAnswer("a log without events")
    return events
