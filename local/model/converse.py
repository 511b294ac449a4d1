"""Amazon Bedrock's Converse and ConverseStream: requests as chat completions, events as responses.

Requests are validated against botocore's model of the service, and against rules of AWS that are not in it.
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import botocore.session
from botocore.model import StructureShape
from botocore.validate import ParamValidator

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

STREAM_TYPE = "application/vnd.amazon.eventstream"
_EXCEPTIONS = {
    403: "AccessDeniedException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


def read(body: bytes, model: str) -> dict[str, Any]:
    """The request as the body of a chat completion. Raises ProviderError with what AWS would refuse."""
    try:
        request = json.loads(body)
    except ValueError:
        raise invalid("The request body is not JSON.") from None
    _validate_shape({**request, "modelId": model} if isinstance(request, dict) else request)
    messages = request.get("messages") or []
    _validate_turns(messages, has_tools="toolConfig" in request)
    system = "\n".join(_checked_text(block, "system", n) for n, block in enumerate(request.get("system") or []))
    turns = itertools.chain.from_iterable(_turn(message, n) for n, message in enumerate(messages))
    options = request.get("inferenceConfig") or {}
    return {
        "model": model,
        "messages": [*([{"role": "system", "content": system}] if system else []), *turns],
        **_given(
            max_tokens=options.get("maxTokens"),
            temperature=options.get("temperature"),
            top_p=options.get("topP"),
            stop=options.get("stopSequences") or None,
            response_format=_response_format(request.get("outputConfig")),
            **_tools(request.get("toolConfig")),
        ),
    }


def whole(events: Iterable[Event], head: Head) -> bytes:
    """The body of a Converse response. Raises ProviderError, or ConnectionCut if the answer has no end."""
    blocks: list[dict[str, Any]] = []
    for event in events:
        match event:
            case Text(text) if blocks and "text" in blocks[-1]:
                blocks[-1]["text"] += text
            case Text(text):
                blocks.append({"text": text})
            case ToolCall(id, name, arguments):
                with_arguments = _tool_use(id, name, arguments)
                blocks += [{"toolUse": with_arguments}] if with_arguments else []
            case Malformed():
                return b'{"output": {"message": {"role": "assis'
            case Failure(error):
                raise error
            case End(reason, usage):
                message = {"role": "assistant", "content": blocks}
                answer = {"output": {"message": message}, "stopReason": reason} | _metadata(head, usage)
                return json.dumps(answer).encode()
    raise ConnectionCut


def stream(events: Iterable[Event], head: Head) -> Iterator[bytes]:
    """The frames of a ConverseStream response."""
    yield frame("messageStart", {"role": "assistant"})
    index, is_open = 0, False
    for event in events:
        if is_open and isinstance(event, ToolCall | End):
            yield frame("contentBlockStop", {"contentBlockIndex": index})
            index, is_open = index + 1, False
        match event:
            case Text() | KeepAlive():
                is_open = True
                yield _delta(index, {"text": event.text if isinstance(event, Text) else ""})
            case ToolCall(id, name, arguments):
                start = {"toolUse": {"toolUseId": id, "name": name}}
                yield frame("contentBlockStart", {"start": start, "contentBlockIndex": index})
                yield _delta(index, {"toolUse": {"input": arguments}})
                yield frame("contentBlockStop", {"contentBlockIndex": index})
                index += 1
            case Malformed():
                yield encode_frame(_headers("event", "contentBlockDelta"), b'{"delta": {"te')
            case Failure(error):
                name = _exception(error)[0].replace("ModelError", "ModelStreamError")
                payload = json.dumps({"message": _message(error)}).encode()
                yield encode_frame(_headers("exception", name[0].lower() + name[1:]), payload)
            case End(reason, usage):
                yield frame("messageStop", {"stopReason": reason})
                if usage:
                    yield frame("metadata", _metadata(head, usage))


def error(failure: ProviderError) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    name, status = _exception(failure)
    headers = {"content-type": "application/json", "x-amzn-ErrorType": name}
    headers |= {"retry-after": failure.retry_after} if failure.retry_after else {}
    return status, headers, json.dumps({"message": _message(failure)}).encode()


def _exception(failure: ProviderError) -> tuple[str, int]:
    """Bedrock's exception for an error of any server, and its status."""
    if failure.status in _EXCEPTIONS:
        return _EXCEPTIONS[failure.status], failure.status
    return ("InternalServerException", 500) if failure.status >= 500 else ("ValidationException", 400)


def frame(event: str, payload: Mapping[str, Any]) -> bytes:
    return encode_frame(_headers("event", event), json.dumps(payload).encode())


def encode_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """A message of `application/vnd.amazon.eventstream`. Type 7 is a string.

    https://smithy.io/2.0/aws/amazon-eventstream.html
    """
    packed = b"".join(
        struct.pack("!B", len(name.encode()))
        + name.encode()
        + struct.pack("!BH", 7, len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return message + struct.pack("!I", zlib.crc32(message))


def _headers(kind: str, name: str) -> dict[str, str]:
    return {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}


def _delta(index: int, delta: Mapping[str, Any]) -> bytes:
    return frame("contentBlockDelta", {"delta": delta, "contentBlockIndex": index})


def _metadata(head: Head, usage: Usage | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"metrics": {"latencyMs": round((time.monotonic() - head.started) * 1000)}}
    if usage:
        total = usage.input_tokens + usage.output_tokens
        counts = {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens, "totalTokens": total}
        metadata["usage"] = counts
    return metadata


def _message(failure: ProviderError) -> str:
    if failure.error.get("type") == "exceed_context_size_error":
        return "Input is too long for requested model."
    return str(failure.error["message"])


def _tool_use(call_id: str, name: str, arguments: str) -> dict[str, Any] | None:
    """None if the arguments are cut off: a response that is not streamed has no place for half a JSON."""
    try:
        return {"toolUseId": call_id, "name": name, "input": json.loads(arguments)}
    except ValueError:
        return None


@functools.cache
def _shape() -> StructureShape:
    model = botocore.session.get_session().get_service_model("bedrock-runtime")
    shape = model.operation_model("Converse").input_shape
    assert isinstance(shape, StructureShape)
    return shape


def _validate_shape(request: Any) -> None:
    report = ParamValidator().validate(request, _shape())
    if report.has_errors():
        # A value may be a piece of a prompt.
        raise invalid(re.sub(r", value: .*?, (?=type: <)", ", ", report.generate_report(), flags=re.DOTALL))


def _validate_turns(messages: list[dict[str, Any]], *, has_tools: bool) -> None:
    if not messages or messages[0]["role"] != "user":
        raise invalid("A conversation must start with a user message.")
    for n, (message, following) in enumerate(itertools.zip_longest(messages, messages[1:])):
        if message["role"] not in ("user", "assistant"):
            raise invalid(f"messages.{n}.role must be user or assistant.")
        if following and following["role"] == message["role"]:
            raise invalid("A conversation must alternate between user and assistant roles.")
        if not message["content"]:
            raise invalid(f"The content field in the Message object at messages.{n} is empty.")
        called = {block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block}
        results = {b["toolResult"]["toolUseId"] for b in (following or {}).get("content", []) if "toolResult" in b}
        if following and called != results:
            raise invalid(
                f"messages.{n + 1} must have a toolResult for each toolUse of messages.{n} and no other."
            )
        if n == 0 and any("toolResult" in block for block in message["content"]):
            raise invalid("messages.0 has a toolResult without a toolUse before it.")
        if called and not has_tools:
            raise invalid("The toolConfig field must be defined when using toolUse and toolResult content blocks.")


def _turn(message: dict[str, Any], n: int) -> Iterator[dict[str, Any]]:
    """One turn as turns of a chat completion, where each tool result is one of its own."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for m, block in enumerate(message["content"]):
        if use := block.get("toolUse"):
            function = {"name": use["name"], "arguments": json.dumps(use["input"])}
            calls.append({"id": use["toolUseId"], "type": "function", "function": function})
        elif result := block.get("toolResult"):
            yield {"role": "tool", "tool_call_id": result["toolUseId"], "content": _result(result, n, m)}
        else:
            texts.append(_checked_text(block, f"messages.{n}.content", m))
    if texts or calls:
        yield {"role": message["role"], "content": "\n".join(texts), **_given(tool_calls=calls or None)}


def _result(result: dict[str, Any], n: int, m: int) -> str:
    place = f"messages.{n}.content.{m}.toolResult.content"
    if not result["content"] and result.get("status") == "error":
        raise invalid(f"{place} is empty. A result with the status error needs content.")
    return "\n".join(
        json.dumps(block["json"]) if "json" in block else _checked_text(block, place, k)
        for k, block in enumerate(result["content"])
    )


def _checked_text(block: dict[str, Any], place: str, n: int) -> str:
    if "text" not in block:
        raise invalid(f"The model doesn't support the content block {next(iter(block), '')} at {place}.{n}.")
    if not block["text"].strip():
        raise invalid(f"The text field in the ContentBlock object at {place}.{n} is blank.")
    return str(block["text"])


def _response_format(config: dict[str, Any] | None) -> dict[str, Any] | None:
    if not config or "textFormat" not in config:
        return None
    definition = config["textFormat"]["structure"]["jsonSchema"]
    try:
        schema = json.loads(definition["schema"])
    except ValueError:
        raise invalid("outputConfig.textFormat.structure.jsonSchema.schema is not JSON.") from None
    return {"type": "json_schema", "json_schema": {"name": definition.get("name", "answer"), "schema": schema}}


def _tools(config: dict[str, Any] | None) -> dict[str, Any]:
    if not config:
        return {}
    tools = [tool["toolSpec"] for tool in config["tools"] if "toolSpec" in tool]
    functions = [
        {"name": t["name"], "description": t.get("description", ""), "parameters": t["inputSchema"]["json"]}
        for t in tools
    ]
    choice = config.get("toolChoice") or {}
    named = {"type": "function", "function": {"name": choice["tool"]["name"]}} if "tool" in choice else "auto"
    return {
        "tools": [{"type": "function", "function": function} for function in functions],
        "tool_choice": "required" if "any" in choice else named,
    }


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
