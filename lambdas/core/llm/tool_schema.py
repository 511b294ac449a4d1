"""Tools for servers that drop them, such as llama.cpp: the tools become one JSON schema, its JSON a tool call.

The model answers either `{"tool": <name>, "arguments": {…}}` or `{"answer": <text>}`, one call a turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core import ids
from core.errors import MalformedAnswer
from core.llm.provider import Message, ModelRequest, Tool, ToolCall

_INSTRUCTIONS = "You can use these tools, one at a time. Answer with JSON only, in one of these forms:"


def is_needed(request: ModelRequest) -> bool:
    """Whether the request has tools, or an earlier turn that called one."""
    return bool(request.tools) or any(each.tool_calls or each.role == "tool" for each in request.messages)


def translate(request: ModelRequest) -> ModelRequest:
    """The same request without tools: a system message describes them, and a schema allows nothing else.

    Stop sequences are dropped, because one inside of the JSON would cut it.
    """
    messages = [_plain(message, request.messages) for message in request.messages]
    if not request.tools:
        return replace(request, messages=messages)
    system = [_described(request)]
    if messages and messages[0].role == "system":  # some templates allow only one
        system.append(messages.pop(0).content)
    messages.insert(0, Message(role="system", content="\n\n".join(system)))
    return replace(request, messages=messages, tools=(), require_tool=False, schema=_schema(request), stop=())


def read(text: str, request: ModelRequest) -> str | ToolCall:
    """What the model answered with: its text or a call. Raises MalformedAnswer if it is neither."""
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    match given:
        case {"tool": str(name), "arguments": dict(arguments)} if name in {tool.name for tool in request.tools}:
            return ToolCall(id=ids.new("call"), name=name, arguments=_dumps(arguments))
        case {"answer": answer} if not request.require_tool:
            return answer if isinstance(answer, str) else _dumps(answer)
    raise MalformedAnswer("the model wrote neither an answer nor a call of a tool", billed=True)


def _plain(message: Message, all_messages: Sequence[Message]) -> Message:
    """The message with the JSON that the model would have written, or with a tool's result as the user's text."""
    if message.tool_calls:
        forms = [message.content] if message.content else []
        forms += [f'{{"tool": {_dumps(call.name)}, "arguments": {call.arguments}}}' for call in message.tool_calls]
        return Message(role="assistant", content="\n".join(forms))
    if message.role == "tool":
        calls = [call for each in all_messages for call in each.tool_calls]
        name = next((call.name for call in calls if call.id == message.tool_call_id), "the tool")
        return Message(role="user", content=f"Result of {name}:\n{message.content}")
    return message


def _described(request: ModelRequest) -> str:
    lines = [
        f'{{"tool": {_dumps(tool.name)}, "arguments": {_dumps(tool.parameters)}}} {tool.description}'.rstrip()
        for tool in request.tools
    ]
    if not request.require_tool:
        lines.append('{"answer": "your answer"} when you need no tool')
    return "\n".join([_INSTRUCTIONS, *lines])


def _schema(request: ModelRequest) -> dict[str, Any]:
    forms = [object_schema(tool={"const": tool.name}, arguments=_own_parameters(tool)) for tool in request.tools]
    if not request.require_tool:
        forms.append(object_schema(answer=request.schema or {"type": "string"}))
    definitions = {
        f"{tool.name}.{name}": _referring(schema, tool.name)
        for tool in request.tools
        for name, schema in tool.parameters.get("$defs", {}).items()
    }
    return {"oneOf": forms, **({"$defs": definitions} if definitions else {})}


def object_schema(**properties: Any) -> dict[str, Any]:
    """A JSON schema of an object with exactly these properties, each with its schema."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _own_parameters(tool: Tool) -> Any:
    return _referring({key: value for key, value in tool.parameters.items() if key != "$defs"}, tool.name)


def _referring(schema: Any, tool: str) -> Any:
    """The schema with references to the definitions where they are now: at the root, with the tool's name."""
    if isinstance(schema, Mapping):
        return {
            key: value.replace("#/$defs/", f"#/$defs/{tool}.", 1)
            if key == "$ref" and isinstance(value, str)
            else _referring(value, tool)
            for key, value in schema.items()
        }
    return [_referring(each, tool) for each in schema] if isinstance(schema, (list, tuple)) else schema


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
