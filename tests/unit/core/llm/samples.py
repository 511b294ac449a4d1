"""Requests and answers for tests of providers."""

from __future__ import annotations

import dataclasses
from typing import Any

from core.llm.provider import Answer, End, Message, ModelRequest, Provider, TextPart, Tool, ToolCall

SECONDS = 30
SEARCH = Tool(
    name="search",
    description="Search the documents.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
READ = Tool(name="read", description="", parameters={"type": "object", "properties": {"id": {"type": "integer"}}})
CALL = ToolCall(id="call_1", name="search", arguments='{"query": "tram"}')
ASKED = Message(role="user", content="When does the archive open?")
CALLED = Message(role="assistant", content="", tool_calls=(CALL,))
RESULT = Message(role="tool", content="On Tuesdays.", tool_call_id="call_1")


def request(**changes: Any) -> ModelRequest:
    return dataclasses.replace(ModelRequest(model="some.model-v1:0", messages=[ASKED], max_tokens=50), **changes)


def whole(answer: Answer) -> tuple[str, End]:
    """The text and the end of an answer. Raises its error."""
    *texts, end = list(answer)
    assert isinstance(end, End)
    return "".join(part.text for part in texts if isinstance(part, TextPart)), end


def ask(provider: Provider, **changes: Any) -> tuple[str, End]:
    return whole(provider.call(request(**changes), seconds=SECONDS))
