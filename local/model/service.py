"""The server without its sockets: a request in, a response out, whose body is made while it is read."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

from local.model import chat, converse, customization, tools
from local.model.customization import Customizations
from local.model.events import (
    Caller,
    ConnectionCut,
    End,
    Event,
    Failure,
    Head,
    ProviderError,
    Text,
    ToolCall,
    Usage,
    invalid,
)
from local.model.faults import Calls, Faults
from local.model.upstreams import Fake, Upstream


class Response(NamedTuple):
    """`body`: in pieces. Reading it raises ConnectionCut where the connection is to be cut, and CallerGone."""

    status: int
    headers: Mapping[str, str]
    body: Iterable[bytes]


class Dialect(Protocol):
    """The protocol of a provider: the modules `chat` and `converse`."""

    STREAM_TYPE: str

    def read(self, body: bytes, model: str) -> dict[str, Any]: ...
    def whole(self, events: Iterable[Event], head: Head) -> bytes: ...
    def stream(self, events: Iterable[Event], head: Head) -> Iterator[bytes]: ...
    def error(self, failure: ProviderError) -> tuple[int, dict[str, str], bytes]: ...


class Service:
    """Answers by `upstream`, in the protocols of Amazon Bedrock and of OpenAI."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream, self.faults, self.calls = upstream, Faults(), Calls()
        self.customizations = Customizations()
        self._numbers = itertools.count(1)

    def handle(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, caller: Caller | None = None
    ) -> Response:
        """`headers`: names in lower case. Raises CallerGone, and ConnectionCut if no response is to be sent."""
        caller, key = caller or Caller(), headers.get("idempotency-key", "")
        if "origin" in headers:
            return _json(403, {"message": "Pages in a browser may not call this."})  # it may spend money
        path, _, query = path.partition("?")
        match method, path.split("/")[1:]:
            case "POST", ["model", model, "converse"]:
                return self._call(converse, unquote(model), False, body, key, caller)
            case "POST", ["model", model, "converse-stream"]:
                return self._call(converse, unquote(model), True, body, key, caller)
            case "POST", ["v1", "chat", "completions"]:
                return self._call(chat, "", False, body, key, caller)
            case _, ["model-customization-jobs", *rest]:
                return self._customize(method, [unquote(part) for part in rest], query, body)
            case "PUT", ["customization"]:
                return _set(self.customizations.set, body)
            case "GET", ["health"]:
                return _json(200, {"status": self.upstream.status(), "model": self.upstream.model})
            case "GET", ["calls"]:
                return _json(200, self.calls.as_json())
            case "DELETE", ["calls"]:
                self.calls = Calls()
                return _json(200, {})
            case "DELETE", ["faults"]:
                return _set(self.faults.set, b"{}")
            case "PUT", ["faults"]:
                return _set(self.faults.set, body)
            case "PUT", ["fake"] if isinstance(self.upstream, Fake):
                return _set(self.upstream.set, body)
        return _json(404, {"message": f"{method} {path} does not exist here"})

    def _customize(self, method: str, path: list[str], query: str, body: bytes) -> Response:
        try:
            return _json(*self.customizations.handle(method, path, query, body))
        except ProviderError as failure:
            return _whole(*customization.error(failure))

    def _call(
        self, dialect: Dialect, model: str, streamed: bool, body: bytes, key: str, caller: Caller
    ) -> Response:
        try:
            request = dialect.read(body, model)
            if self.upstream.model not in (None, request["model"]):
                raise _unknown_model()
            head = Head(next(self._numbers), request, time.monotonic())
            events = self._answer(request, key, caller)
            if not (streamed or request.get("stream")):
                return _whole(200, {"content-type": "application/json"}, dialect.whole(events, head))
            return Response(200, {"content-type": dialect.STREAM_TYPE}, dialect.stream(_begun(events), head))
        except ProviderError as failure:
            return _whole(*dialect.error(failure))

    def _answer(self, request: dict[str, Any], key: str, caller: Caller) -> Iterator[Event]:
        try:
            body = tools.without_tools(request)
        except (KeyError, TypeError, AttributeError):
            raise invalid("messages, tools or tool_choice do not have the form that the API describes") from None
        key = key or prompt_key(body["messages"][-1]["content"])
        self.calls.add(key, requests=1)
        fault = self.faults.draw()
        fault.before(caller)
        for event in fault.during(self._events(request, body, key, caller), caller):
            if isinstance(event, End):
                self.calls.add(key, completed=1)
            yield event

    def _events(self, request: dict[str, Any], body: dict[str, Any], key: str, caller: Caller) -> Iterator[Event]:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        is_step = tools.is_step(request)
        pieces, reason, usage = list[str](), "", None
        try:
            for chunk in self.upstream.chunks(body, caller):
                usage = _usage(chunk) or usage
                for choice in chunk.get("choices") or []:
                    reason = _reason(choice, chunk) or reason
                    if piece := choice["delta"].get("content"):
                        pieces.append(piece)
                        if not is_step:
                            yield Text(piece)
        finally:
            computed = usage or Usage(0, len(pieces))
            self.calls.add(key, input_tokens=computed.input_tokens, output_tokens=computed.output_tokens)
        if not reason:
            raise ConnectionCut
        for event in tools.read_step("".join(pieces), f"call_{next(self._numbers)}") if is_step else ():
            reason = "tool_use" if isinstance(event, ToolCall) and reason == "end_turn" else reason
            yield event
        yield End(reason, usage)


def prompt_key(text: str) -> str:
    """The key under which calls without an Idempotency-Key are counted. `text`: of their last message."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _unknown_model() -> ProviderError:
    message = "The provided model identifier is invalid."
    return ProviderError(404, {"message": message, "type": "invalid_request_error", "code": "model_not_found"})


def _begun(events: Iterator[Event]) -> Iterator[Event]:
    """Wait for the first event: an error before it can still become the status of the response."""
    first = list(itertools.islice(events, 1))

    def all_of_them() -> Iterator[Event]:
        try:
            yield from itertools.chain(first, events)
        except ProviderError as failure:
            yield Failure(failure)

    return all_of_them()


def _reason(choice: Mapping[str, Any], chunk: Mapping[str, Any]) -> str:
    """Bedrock's stop reason. `__verbose` is llama.cpp's; `stop_reason`, the sequence that was found, is vLLM's."""
    details, reason = chunk.get("__verbose") or {}, choice.get("finish_reason")
    found = details.get("stop_type") == "word" or isinstance(choice.get("stop_reason"), str)
    reasons = {
        "stop": "stop_sequence" if found else "end_turn",
        "length": "model_context_window_exceeded" if details.get("truncated") else "max_tokens",
        "content_filter": "content_filtered",
    }
    return reasons.get(reason or "", reason or "")


def _usage(chunk: Mapping[str, Any]) -> Usage | None:
    usage = chunk.get("usage")
    return Usage(usage["prompt_tokens"], usage["completion_tokens"]) if usage else None


def _set(setter: Callable[[Any], None], body: bytes) -> Response:
    try:
        setter(json.loads(body))
    except ValueError as error:
        return _json(400, {"message": str(error)})
    return _json(200, {})


def _json(status: int, value: Any) -> Response:
    return _whole(status, {"content-type": "application/json"}, json.dumps(value).encode())


def _whole(status: int, headers: Mapping[str, str], content: bytes) -> Response:
    return Response(status, {**headers, "content-length": str(len(content))}, [content])
