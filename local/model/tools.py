"""Tools for models without them: one JSON schema for the answer, and the JSON turned back into a call.

llama.cpp enforces `response_format`, but the template of the small model drops `tools`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from local.model.events import Text, ToolCall, invalid

RESULT = "Result of "
_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*"([^"]*)"\s*,\s*"arguments"\s*:\s*(.*)', re.DOTALL)


def without_tools(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a chat completion with its tools as prompt and `response_format`, and tool turns as text."""
    offered = [tool["function"] for tool in body.get("tools") or []]
    choice = body.get("tool_choice") or "auto"
    messages = list(_as_text(body["messages"]))
    plain = {
        key: value for key, value in body.items() if key not in ("tools", "tool_choice", "parallel_tool_calls")
    }
    if not offered or choice == "none":
        return plain | {"messages": messages}
    if isinstance(choice, dict):
        offered = [tool for tool in offered if tool["name"] == choice["function"]["name"]]
        if not offered:
            raise invalid("tool_choice names a tool that is not in tools")
    forms = [_form(tool) for tool in offered]
    if choice == "auto":
        forms.append(_answer_form(body.get("response_format")))
    definitions: dict[str, Any] = {}  # `$ref` starts at the root of the whole schema
    for tool in offered:
        definitions |= tool.get("parameters", {}).get("$defs", {})
    schema = {"oneOf": forms} | ({"$defs": definitions} if definitions else {})
    response_format = {"type": "json_schema", "json_schema": {"name": "step", "schema": schema}}
    return plain | {
        "messages": _instructed(messages, offered, may_answer=choice == "auto"),
        "response_format": response_format,
    }


def is_step(body: dict[str, Any]) -> bool:
    """Whether the answer is JSON of one of the forms."""
    return bool(body.get("tools")) and body.get("tool_choice") != "none"


def read_step(text: str, call_id: str) -> Iterator[Text | ToolCall]:
    """The call or the text that the model wrote as JSON. What is cut off stays cut off."""
    call = _CALL.match(text)
    try:
        step = json.loads(text)
    except ValueError:
        yield ToolCall(call_id, call[1], call[2]) if call else Text(text)
        return
    if isinstance(step, dict) and "tool" in step:
        yield ToolCall(call_id, step["tool"], json.dumps(step.get("arguments", {})))
        return
    answer = step.get("answer", text) if isinstance(step, dict) else text
    yield Text(answer if isinstance(answer, str) else json.dumps(answer))


def _form(tool: dict[str, Any]) -> dict[str, Any]:
    parameters = tool.get("parameters") or {"type": "object", "properties": {}}
    arguments = {key: value for key, value in parameters.items() if key != "$defs"}
    return _object(tool={"const": tool["name"]}, arguments=arguments)


def _answer_form(response_format: dict[str, Any] | None) -> dict[str, Any]:
    return _object(answer=((response_format or {}).get("json_schema") or {}).get("schema") or {"type": "string"})


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _instructed(
    messages: list[dict[str, Any]], offered: list[dict[str, Any]], *, may_answer: bool
) -> list[dict[str, Any]]:
    """With the tools in the system message."""
    lines = [f"- {t['name']}: {t.get('description', '')} {json.dumps(t.get('parameters', {}))}" for t in offered]
    answers = ', {"answer": text} answers' if may_answer else ""
    text = "\n".join(
        [f'Answer with JSON: {{"tool": name, "arguments": {{...}}}} calls a tool{answers}. Tools:', *lines]
    )
    if messages[0]["role"] == "system":
        first, *rest = messages
        return [first | {"content": f"{first['content']}\n\n{text}"}, *rest]
    return [{"role": "system", "content": text}, *messages]


def _as_text(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Without tool turns: a call is the JSON that the model wrote, a result is what the user says."""
    names: dict[str, str] = {}

    def plain(message: dict[str, Any]) -> tuple[str, str]:
        if message["role"] == "tool":
            return "user", f"{RESULT}{names.get(message['tool_call_id'], 'the tool')}: {_text(message)}"
        calls = message.get("tool_calls") or []
        names.update((call["id"], call["function"]["name"]) for call in calls)
        steps = [
            f'{{"tool": "{c["function"]["name"]}", "arguments": {c["function"]["arguments"]}}}' for c in calls
        ]
        return message["role"], "\n".join(part for part in [_text(message), *steps] if part)

    for role, group in itertools.groupby(map(plain, messages), key=lambda turn: turn[0]):
        yield {"role": role, "content": "\n\n".join(text for _, text in group)}


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
