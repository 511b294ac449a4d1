"""A text that a job writes, received as numbered deltas and snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recado.models import Delta


@dataclass
class StreamedText:
    """Accepts each delta once and in order, and joins the parts of snapshots.

    The service sends deltas in order, and may lose some. After a replay request it sends the whole text as a
    snapshot with the next delta, and continues with deltas.
    """

    index: int = 0
    """The number of the last delta that was accepted."""
    needs_replay: bool = False
    """Whether a delta was missing and a replay has to be requested."""
    _gaps: int = 0
    _parts: list[str] = field(default_factory=list)
    _snapshot_id: tuple[int, int] = (0, 0)
    """The index and the number of parts of the snapshot that is being received."""

    def reset_connection(self) -> None:
        """Forget an incomplete snapshot and earlier replay requests: a new connection does not continue them."""
        self._parts, self._gaps, self.needs_replay = [], 0, False

    def accept(self, message: Mapping[str, Any]) -> Delta | None:
        """The new text of a `delta` or `snapshot` message. None for repetitions, gaps and partial snapshots."""
        return self._accept_delta(message) if message.get("type") == "delta" else self._accept_snapshot(message)

    def _accept_delta(self, message: Mapping[str, Any]) -> Delta | None:
        delta = Delta.of(message)
        if delta.index == self.index + 1:
            self.index = delta.index
            return delta
        if delta.index > self.index:
            self._note_gap()
        return None

    def _accept_snapshot(self, message: Mapping[str, Any]) -> Delta | None:
        """The snapshot after its last part. Its index is lower than before if the job has restarted the text."""
        piece = Delta.of({**message, "is_snapshot": True})
        part, parts = int(message.get("part", 0)), int(message.get("parts", 1))
        if part == 0:
            self._parts, self._snapshot_id = [], (piece.index, parts)
        if self._snapshot_id != (piece.index, parts) or part != len(self._parts):
            self._note_gap()
            return None
        self._parts.append(piece.text)
        if len(self._parts) < parts:
            return None
        snapshot = {"job_id": message.get("job_id"), "index": piece.index, "text": "".join(self._parts)}
        self.reset_connection()
        self.index = piece.index
        return Delta.of({"type": "snapshot", **snapshot, "is_snapshot": True})

    def _note_gap(self) -> None:
        """Request a replay at the 1st, 2nd, 4th, 8th, … gap only: the replay may take a while to arrive."""
        self._gaps += 1
        self.needs_replay = self.needs_replay or self._gaps & (self._gaps - 1) == 0
