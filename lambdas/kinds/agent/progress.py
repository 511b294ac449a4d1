"""How far an agent is: what its steps so far say. An attempt that goes on reads them instead of asking again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.jobs.steps import TOKEN
from kinds.agent import prompts
from kinds.agent.passages import Passage
from kinds.agent.prompts import PastCall
from kinds.agent.tools import passage

USELESS_CALLS = 2
"""After so many calls in a row that found nothing new, there is no progress."""
ANSWERING = "I answer from "
"""What the last thought before the answer begins with: nothing more is gathered then."""
RESTARTED = "\n\n(The model was interrupted. Its answer starts again.)\n\n"


@dataclass(slots=True)
class Progress:
    """`pending`: a call without a result. `text`: the answer that was streamed, since it last started again."""

    calls: list[PastCall] = field(default_factory=list)
    pending: PastCall | None = None
    text: str = ""
    is_gathered: bool = False
    _found: dict[tuple[str, str, int], tuple[float, Passage]] = field(default_factory=dict)
    _useless: int = 0

    @classmethod
    def of(cls, steps: Iterable[Mapping[str, Any]]) -> Progress:
        progress = cls()
        for step in steps:
            progress.add(step)
        return progress

    def add(self, step: Mapping[str, Any]) -> None:
        """Take in a step that was written."""
        if step["type"] == "tool_use":
            self.pending = PastCall(step["tool"], step["input"], "")
        elif step["type"] == "tool_result" and self.pending:
            new = self._take(step.get("passages", ()))
            outcome = step.get("error") or f"{len(step['passages'])} passages, {new} of them new"
            self.calls.append(self.pending._replace(outcome=outcome))
            self.pending = None
            self._useless = 0 if new else self._useless + 1
        elif step["type"] == "thinking":
            self.is_gathered = step["content"].startswith(ANSWERING)
        elif step["type"] == TOKEN:
            self.text = (self.text + step["content"]).rpartition(RESTARTED)[2]

    @property
    def is_stuck(self) -> bool:
        return self._useless >= USELESS_CALLS

    @property
    def passages(self) -> list[Passage]:
        """Those that were read first, the latest before the others; then those found, the nearest first."""
        ranked = sorted(self._found.values(), key=lambda found: -found[0])
        return [one for _, one in ranked]

    @property
    def documents(self) -> list[str]:
        """The ids of the documents of all passages, in the order in which they were found."""
        return list(dict.fromkeys(one.document_id for _, one in self._found.values()))

    def has_called(self, name: str, given: Mapping[str, Any]) -> bool:
        return any((call.name, call.input) == (name, given) for call in self.calls)

    def _take(self, passages: Iterable[Mapping[str, Any]]) -> int:
        """How many of them are new."""
        before = len(self._found)
        for fields in passages:
            one = passage(fields)
            key = (one.document_id, one.version, one.chunk)
            is_read = self.pending is not None and self.pending.name == prompts.READ
            rank = 1.0 + len(self.calls) if is_read else float(fields["score"])
            known = self._found.get(key, (rank, one))
            self._found[key] = (max(rank, known[0]), one)
        return len(self._found) - before
