"""Passages of made-up documents."""

from __future__ import annotations

from typing import Any

from kinds.agent.passages import Passage


def passage(text: str = "The archive opens on Tuesdays.", **values: Any) -> Passage:
    start = values.pop("start", 0)
    given: dict[str, Any] = {"document_id": "handbook", "version": "v1", "chunk": 0, "heading": ""} | values
    return Passage(text=text, start=start, end=start + len(text), **given)
