"""Requests to the model's service, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from local.model.service import Service

MODEL = "a-model"
HELLO: dict[str, Any] = {"modelId": MODEL, "messages": [{"role": "user", "content": [{"text": "one two three"}]}]}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "one two three"}]}


def switch(service: Service, **switches: Any) -> None:
    assert service.handle("PUT", "/faults", {}, json.dumps(switches).encode()).status == 200


def text_of(stream: Iterable[dict[str, Any]]) -> str:
    deltas = (event["contentBlockDelta"]["delta"] for event in stream if "contentBlockDelta" in event)
    return "".join(delta.get("text", "") for delta in deltas)


def sent_events(body: bytes) -> list[Any]:
    """The data of server-sent events but for [DONE], which must be the last."""
    lines = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
