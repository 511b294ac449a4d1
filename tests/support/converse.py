"""Bedrock's Converse and ConverseStream as bytes, and a real boto3 client that gets them without a network."""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.awsrequest import AWSResponse

from core.aws import clients

JSON, EVENT_STREAM = "application/json", "application/vnd.amazon.eventstream"


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """A message of https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html"""
    packed = b"".join(
        struct.pack("!B", len(name)) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", len(packed) + len(payload) + 16, len(packed))
    checked = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return checked + struct.pack("!I", zlib.crc32(checked))


def event(name: str, fields: Mapping[str, Any]) -> bytes:
    headers = {":message-type": "event", ":event-type": name, ":content-type": JSON}
    return frame(headers, json.dumps(fields).encode())


def exception(name: str, message: str) -> bytes:
    """An error inside of a stream. `name` begins with a small letter."""
    headers = {":message-type": "exception", ":exception-type": name, ":content-type": JSON}
    return frame(headers, json.dumps({"message": message}).encode())


def text_event(text: str) -> bytes:
    return event("contentBlockDelta", {"delta": {"text": text}, "contentBlockIndex": 0})


def usage(given: int, made: int) -> dict[str, Any]:
    return {"inputTokens": given, "outputTokens": made, "totalTokens": given + made}


def end_events(reason: str = "end_turn", given: int = 7, made: int = 3) -> bytes:
    metadata = {"usage": usage(given, made), "metrics": {"latencyMs": 1}}
    return event("messageStop", {"stopReason": reason}) + event("metadata", metadata)


def answer(content: list[dict[str, Any]], reason: str = "end_turn", given: int = 7, made: int = 3) -> bytes:
    """The body of a response to Converse."""
    message = {"role": "assistant", "content": content}
    fields = {"output": {"message": message}, "stopReason": reason, "metrics": {"latencyMs": 1}}
    return json.dumps({**fields, "usage": usage(given, made)}).encode()


class Body:
    """What a caller needs of a `urllib3.HTTPResponse`. An error among the chunks is raised in its turn."""

    def __init__(self, chunks: Iterable[bytes | Exception], shutdown: Callable[[], None]) -> None:
        self._chunks, self.shutdown = chunks, shutdown

    def stream(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def close(self) -> None:
        """There is nothing to close."""


@dataclass(kw_only=True)
class Response:
    """A response of the service, sent in these chunks. `shut_down`: set when its connection is shut down."""

    chunks: Iterable[bytes | Exception]
    status: int = 200
    content_type: str = EVENT_STREAM
    headers: Mapping[str, str] = field(default_factory=dict)
    shut_down: threading.Event = field(default_factory=threading.Event)


def error(status: int, code: str, message: str, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()} | {"x-amzn-ErrorType": code}
    body = json.dumps({"message": message}).encode()
    return Response(chunks=[body], status=status, content_type=JSON, headers=named)


def client(respond: Callable[[], Response]) -> tuple[Any, list[Any]]:
    """The client of the functions, and the requests that it sends. `respond` may raise."""
    made, requests = clients.model("bedrock-runtime"), list[Any]()

    def send(request: Any, **_: object) -> AWSResponse:
        requests.append(request)
        response = respond()
        headers = {"content-type": response.content_type, **response.headers}
        return AWSResponse(request.url, response.status, headers, Body(response.chunks, response.shut_down.set))

    made.meta.events.register("before-send.bedrock-runtime.*", send)
    return made, requests
