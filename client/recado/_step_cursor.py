"""The steps of a job that were seen, however they are cut into messages and however often they are repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recado._messages import TOKEN
from recado.models import Step


@dataclass
class StepCursor:
    """Accepts each step, and each part of the text between two steps, once.

    A WebSocket sends all steps from the first one whenever it is opened. Server-sent events go on after
    `last_event_id`. The two divide the text differently. A worker that was killed has told some text that was not
    stored: a repetition lacks it and goes on with other text, which is new then.

    `updates` counts what was new. `ended`: no step will follow.
    """

    job_id: str
    last_event_id: str = ""
    updates: int = 0
    ended: bool = False
    _seen: list[dict[str, Any]] = field(default_factory=list)
    """All steps so far. Successive texts are one step."""
    _place: int = 0
    """The step that is expected next: the number of steps in `_seen`, unless they are being repeated."""
    _offset: int = 0
    """How much was repeated of the text at that place, in characters."""

    def start_over(self) -> None:
        """All steps will be sent again."""
        self._place, self._offset, self.last_event_id = 0, 0, ""

    def note_id(self, event_id: str) -> None:
        """Server-sent events go on after this one."""
        if event_id != self.last_event_id:
            self.last_event_id = event_id
            self.updates += 1

    def accept(self, message: Mapping[str, Any]) -> Step | None:
        """The step, or the part of its text that is new. None if nothing is."""
        payload = {name: value for name, value in message.items() if name != "job_id"}
        if payload["type"] == TOKEN:
            payload["content"] = self._new_text(str(payload.get("content", "")))
            is_new = bool(payload["content"])
        else:
            is_new = self._is_new(payload)
        if not is_new:
            return None
        self.updates += 1
        return Step.of(payload)

    def _new_text(self, content: str) -> str:
        repeated = _common_length(self._expected_text(), content)
        new = content[repeated:]
        if new:
            self._forget_rest(self._offset + repeated)
            if self._place == len(self._seen):
                self._seen.append({"type": TOKEN, "content": ""})
            self._seen[-1]["content"] += new
        self._offset += len(content)
        return new

    def _is_new(self, payload: dict[str, Any]) -> bool:
        if self._offset:
            if self._expected_text():  # the text ends earlier than before
                self._forget_rest(self._offset)
            self._place, self._offset = self._place + 1, 0
        is_new = self._seen[self._place : self._place + 1] != [payload]
        if is_new:
            self._seen[self._place :] = [payload]
        self._place += 1
        return is_new

    def _expected_text(self) -> str:
        """What is left to repeat of the text at this place."""
        step = self._seen[self._place] if self._place < len(self._seen) else {}
        return str(step["content"])[self._offset :] if step.get("type") == TOKEN else ""

    def _forget_rest(self, offset: int) -> None:
        """What was seen goes no further than this offset of the text at this place."""
        kept = self._seen[self._place : self._place + 1] if offset else []
        for step in kept:
            step["content"] = step["content"][:offset]
        self._seen[self._place :] = kept


def _common_length(one: str, other: str) -> int:
    """The number of characters with which both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
