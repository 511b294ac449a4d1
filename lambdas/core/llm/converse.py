"""The request of Bedrock's Converse and ConverseStream, which is stricter about turns than OpenAI's.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from core.errors import ModelRejected
from core.llm.provider import Message, ModelRequest, Tool, ToolCall

NO_OUTPUT = "(no output)"
"""The text of an empty tool result: the service refuses blank texts and results without content."""

Block = dict[str, Any]


def arguments(request: ModelRequest) -> dict[str, Any]:
    """The arguments of both operations. Raises ModelRejected if the first turn is not the user's."""
    turns = _turns(request.messages)
    if not turns or turns[0]["role"] != "user":
        raise ModelRejected("messages: the first one after those of `system` must have role `user` and a text")
    given = {
        "modelId": request.model,
        "messages": turns,
        "system": _system(request.messages),
        "inferenceConfig": _inference(request),
        "toolConfig": _tool_config(request),
        "outputConfig": _output_config(request),
    }
    return {name: value for name, value in given.items() if value}


def _system(messages: Sequence[Message]) -> list[Block]:
    return [{"text": each.content} for each in messages if each.role == "system" and each.content.strip()]


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The other messages. Roles must alternate, so consecutive messages of one role become one turn."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(message)) if message.role != "system" else []
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> Iterator[Block]:
    if message.role == "tool":
        content = [{"text": message.content if message.content.strip() else NO_OUTPUT}]
        yield {"toolResult": {"toolUseId": message.tool_call_id, "content": content}}
        return
    if message.content.strip():
        yield {"text": message.content}
    for call in message.tool_calls:
        yield {"toolUse": {"toolUseId": call.id, "name": call.name, "input": _input(call)}}


def _input(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object, which the service demands. What is none is shown to the model as it wrote it."""
    try:
        given = json.loads(call.arguments)
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {"invalid_arguments": call.arguments}


def _inference(request: ModelRequest) -> dict[str, Any]:
    """`maxTokens` is always sent: the service reserves the model's maximum otherwise."""
    config: dict[str, Any] = {"maxTokens": request.max_tokens}
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if request.stop:
        config["stopSequences"] = list(request.stop)
    return config


def _tool_config(request: ModelRequest) -> dict[str, Any]:
    """Must be there also if only earlier turns have tool blocks. Then it lists the tools of those."""
    tools = [_tool(tool) for tool in request.tools or _tools_of(request.messages)]
    if not tools:
        return {}
    return {"tools": tools, "toolChoice": {"any": {}}} if request.require_tool else {"tools": tools}


def _tools_of(messages: Sequence[Message]) -> list[Tool]:
    names = dict.fromkeys(call.name for message in messages for call in message.tool_calls)
    return [Tool(name=name, description="", parameters={"type": "object"}) for name in names]


def _tool(tool: Tool) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": tool.name, "inputSchema": {"json": dict(tool.parameters)}}
    if tool.description.strip():
        spec["description"] = tool.description
    return {"toolSpec": spec}


def _output_config(request: ModelRequest) -> dict[str, Any]:
    if request.schema is None:
        return {}
    schema = {"name": "answer", "schema": json.dumps(request.schema)}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
