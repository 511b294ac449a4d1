"""The file of rejected records: JSON Lines with `record`, `line`, `reason` and `text`."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kinds.dataset.reading.records import Reject

MAX_LISTED = 100_000
"""Records in the file. Further ones are only counted."""
MAX_TEXT_BYTES = 10_000
MAX_EXAMPLES = 5
"""Of each reason, in the report."""
EXAMPLE_CHARACTERS = 200


class RejectsFile:
    """`examples`: by reason, some of the rejected records."""

    def __init__(self, path: Path) -> None:
        self.listed = 0
        self.examples: dict[str, list[dict[str, Any]]] = {}
        self._file = path.open("w", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, reject: Reject) -> None:
        if self.listed == MAX_LISTED:
            return
        text = reject.data[:MAX_TEXT_BYTES].decode(errors="replace")
        shown = {"record": reject.record, "line": reject.line, "reason": reject.reason, "text": text}
        cut = {"text_truncated": True} if len(reject.data) > MAX_TEXT_BYTES else {}
        self._file.write(json.dumps(shown | cut) + "\n")
        self.listed += 1
        examples = self.examples.setdefault(reject.reason, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(shown | {"text": text[:EXAMPLE_CHARACTERS]})
