"""OpenAI's `POST /v1/chat/completions`: requests, and events as responses.

https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from local.model.events import (
    ConnectionCut,
    End,
    Event,
    Failure,
    Head,
    KeepAlive,
    Malformed,
    ProviderError,
    Text,
    ToolCall,
    Usage,
    invalid,
)

STREAM_TYPE = "text/event-stream"
_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "content_filtered": "content_filter",
    "model_context_window_exceeded": "length",
}


def read(body: bytes, model: str) -> dict[str, Any]:
    """The body. Raises ProviderError with what llama.cpp would accept. `model` is in the body."""
    try:
        request = json.loads(body)
    except ValueError:
        raise invalid("the request body is not JSON") from None
    messages = request.get("messages") if isinstance(request, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(turn, dict) for turn in messages):
        raise invalid("messages must be a list with at least one message")
    for n, message in enumerate(messages):
        if message.get("role") not in ("system", "developer", "user", "assistant", "tool"):
            raise invalid(f"messages[{n}].role is not a known role")
        if message["role"] == "tool" and not message.get("tool_call_id"):
            raise invalid(f"messages[{n}].tool_call_id is missing")
        if not isinstance(message.get("content"), str | list | None):
            raise invalid(f"messages[{n}].content must be a string or a list of parts")
    if not isinstance(request.get("model"), str):
        raise invalid("model must be a string")
    if request.get("n", 1) != 1:
        raise invalid("n must be 1")
    limit = request.pop("max_completion_tokens", None) or request.get("max_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise invalid("max_tokens must be at least 1")
    return {**request, **({"max_tokens": limit} if limit else {})}


def whole(events: Iterable[Event], head: Head) -> bytes:
    """The body of a response. Raises ProviderError, or ConnectionCut if the answer has no end."""
    text, calls = "", list[dict[str, Any]]()
    for event in events:
        match event:
            case Text(piece):
                text += piece
            case ToolCall():
                calls.append(_call(event))
            case Malformed():
                return b'{"choices": [{"index": 0, "mess'
            case Failure(error):
                raise error
            case End(reason, usage):
                message = {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})
                choice = {"index": 0, "message": message, "finish_reason": _REASONS.get(reason, reason)}
                answer = {**_head(head, "chat.completion"), "choices": [choice], **_usage(usage)}
                return json.dumps(answer).encode()
    raise ConnectionCut


def stream(events: Iterable[Event], head: Head) -> Iterator[bytes]:
    """The server-sent events of a response."""
    yield _chunk(head, {"role": "assistant", "content": ""})
    calls = 0
    for event in events:
        match event:
            case Text(text):
                yield _chunk(head, {"content": text})
            case ToolCall():
                yield _chunk(head, {"tool_calls": [{"index": calls, **_call(event)}]})
                calls += 1
            case KeepAlive():
                yield b": keep-alive\n\n"
            case Malformed():
                yield b'data: {"choices": [{"ind\n\n'
            case Failure(failure):
                yield _data({"error": failure.error})
            case End(reason, usage):
                yield _chunk(head, {}, _REASONS.get(reason, reason))
                if (head.request.get("stream_options") or {}).get("include_usage") and usage:
                    yield _data({**_head(head), "choices": [], **_usage(usage)})
                yield b"data: [DONE]\n\n"


def error(failure: ProviderError) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    headers = {"content-type": "application/json"}
    headers |= {"retry-after": failure.retry_after} if failure.retry_after else {}
    return failure.status, headers, json.dumps({"error": failure.error}).encode()


def _chunk(head: Head, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return _data({**_head(head), "choices": [choice]})


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _head(head: Head, kind: str = "chat.completion.chunk") -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{head.number}",
        "object": kind,
        "created": int(time.time()),
        "model": head.request["model"],
    }


def _usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    total = usage.input_tokens + usage.output_tokens
    counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens, "total_tokens": total}
    return {"usage": counts}
