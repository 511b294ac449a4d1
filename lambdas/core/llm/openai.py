"""Any server with OpenAI's `POST /chat/completions`: OpenAI, vLLM, Ollama, llama.cpp and others.

Each call has a connection of its own. So `close` and the deadline can shut it down at any moment, also while the
server has sent no headers yet.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from core.aws.errors import is_transient, reason
from core.errors import MalformedAnswer, ModelFault, ModelRejected, ModelUnavailable, StreamCut
from core.llm import tool_schema
from core.llm.assembly import ToolCalls, reads_answer, usage_of
from core.llm.faults import classify, retry_after
from core.llm.provider import Answer, End, Message, ModelRequest, StopReason, TextPart, ToolCall, Usage
from core.llm.running_call import Connection, Part, RunningCall, read_timeout

if TYPE_CHECKING:
    import openai

CONNECT_SECONDS = 3
NO_KEY = "none"
"""Sent where the server needs no key: the client insists on one."""
STOP_REASONS: Mapping[str, StopReason] = {
    "stop": "end",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "content_filter",
}
_SENT_HEADERS = {
    *("host", "authorization", "content-type", "content-length", "accept", "accept-encoding", "connection"),
    *("user-agent", "idempotency-key"),
}
_SHUT_RDWR = 2  # of the module `socket`
_OPENED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


def read_key(secrets: Any, name: str) -> str:
    """The key in Secrets Manager, by the name or ARN of its secret; '' for no name.

    Raises ModelUnavailable, or ModelRejected if the secret does not exist or may not be read.
    """
    if not name:
        return ""
    try:
        return str(secrets.get_secret_value(SecretId=name)["SecretString"]).strip()
    except (BotoCoreError, ClientError) as error:
        kind = ModelRejected if isinstance(error, ClientError) and not is_transient(error) else ModelUnavailable
        raise kind(f"the secret with the provider's key cannot be read: {reason(error)}") from error


class OpenAIProvider:
    """`base_url`: with the path before `/chat/completions`, such as https://api.openai.com/v1.

    `key`: '' for none. `tools_as_schema`: for servers that ignore `tools` (see `tool_schema`). `transport`: what
    sends the requests, for tests.
    """

    name = "openai"

    def __init__(self, base_url: str, key: str, *, tools_as_schema: bool = False, transport: Any = None) -> None:
        import openai  # takes half a second, and only functions that use it pay for it

        http_client = openai.DefaultHttpxClient(
            follow_redirects=False,
            trust_env=False,
            transport=transport,
            event_hooks={"request": [self._on_request]},
        )
        self._openai = openai
        self._client = openai.OpenAI(
            base_url=base_url, api_key=key or NO_KEY, max_retries=0, http_client=http_client
        )
        # OpenAI's newer models refuse `max_tokens`; other servers may not know the new name.
        is_openai = urlsplit(base_url).hostname == "api.openai.com"
        self._max_tokens = "max_completion_tokens" if is_openai else "max_tokens"
        self._tools_as_schema = tools_as_schema
        self._thread = threading.local()

    def call(self, request: ModelRequest, *, seconds: float) -> Answer:
        return RunningCall(functools.partial(self._parts, request, seconds), seconds=seconds)

    def _parts(self, request: ModelRequest, seconds: float, connection: Connection) -> Iterator[Part]:
        self._thread.connection = connection
        if self._tools_as_schema and tool_schema.is_needed(request):
            parts = self._received(tool_schema.translate(request), seconds)
            yield from _with_tools(parts, request) if request.tools else parts
        else:
            yield from self._received(request, seconds)

    def _received(self, request: ModelRequest, seconds: float) -> Iterator[Part]:
        with self._sent(request, seconds) as stream:
            is_whole = "json" in stream.response.headers.get("content-type", "")
            chunks = self._answer(stream) if is_whole else self._chunks(stream)
            yield from _read(chunks, request.max_tokens)

    def _sent(self, request: ModelRequest, seconds: float) -> openai.Stream[object]:
        """The response, whose body has not been read. This is so also for an answer that is not streamed."""
        headers = {"Connection": "close"}
        if request.idempotency_key is not None:
            headers["Idempotency-Key"] = request.idempotency_key
        timeout = self._openai.Timeout(read_timeout(request, seconds), connect=CONNECT_SECONDS)
        body = _body(request, self._max_tokens)
        try:
            return self._client.post(
                "/chat/completions",
                body=body,
                options={"headers": headers, "timeout": timeout},
                cast_to=object,
                stream=True,
                stream_cls=self._openai.Stream[object],
            )
        except self._openai.APIStatusError as error:
            raise _status_fault(error.status_code, error.response) from error
        except Exception as error:  # of the client, or of the HTTP library where the client does not translate it
            raise _broken(error.__cause__ or error) from error

    def _chunks(self, stream: openai.Stream[object]) -> Iterator[Mapping[str, Any]]:
        """The JSON of each event. Everything that can go wrong with the connection is an error of the port."""
        try:
            for chunk in stream:
                if not isinstance(chunk, dict):
                    raise MalformedAnswer("a chunk of the answer is not an object", billed=True)
                yield chunk
        except ValueError as error:
            raise MalformedAnswer("a chunk of the answer is not JSON", billed=True) from error
        except self._openai.APIConnectionError as error:
            raise _broken(error.__cause__, started=True) from error
        except self._openai.APIError as error:
            raise _fault(error.body, error.message) from error

    def _answer(self, stream: openai.Stream[object]) -> Iterator[Mapping[str, Any]]:
        """The answer, or an error with status 200, also where the request was for a stream."""
        try:
            answer = json.loads(stream.response.read())
        except ValueError as error:
            raise MalformedAnswer("the answer is not JSON", billed=True) from error
        except Exception as error:  # of the HTTP library, which the client does not translate here
            raise _broken(error, started=True) from error
        if not isinstance(answer, dict) or not (answer.get("choices") or answer.get("error")):
            raise MalformedAnswer("the answer has no choices", billed=True)
        yield answer

    def _on_request(self, request: Any) -> None:
        """Keep the client's telemetry, and headers that it reads from the environment, off the wire."""
        for name in set(request.headers) - _SENT_HEADERS:
            del request.headers[name]
        request.extensions["trace"] = functools.partial(_on_connection, self._thread.connection)


def _on_connection(connection: Connection, event: str, info: Mapping[str, Any]) -> None:
    """Called by the HTTP library at each step of a request."""
    if event in _OPENED:
        shut_down: Callable[[int], object] = info["return_value"].get_extra_info("socket").shutdown
        connection.opened(functools.partial(shut_down, _SHUT_RDWR))


# ── the request ──────────────────────────────────────────────────────────────────────────────────────────


def _body(request: ModelRequest, max_tokens: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
        max_tokens: request.max_tokens,
        "stream": request.stream,
    }
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop:
        body["stop"] = list(request.stop)
    if request.schema is not None:
        schema = {"name": "answer", "strict": True, "schema": dict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
            }
            for t in request.tools
        ]
        body["tool_choice"] = "required" if request.require_tool else "auto"
    return body


def _message(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


# ── the answer ───────────────────────────────────────────────────────────────────────────────────────────


@reads_answer
def _read(chunks: Iterable[Mapping[str, Any]], max_tokens: int) -> Iterator[Part]:
    """The parts. What goes wrong after the finish reason loses the usage only: the answer is complete.

    A whole answer is read like a stream of one chunk. A refusal ends with `stop`, but it is not the answer.
    """
    calls, finish, usage, refused = ToolCalls(), "", None, False
    try:
        for chunk in chunks:
            usage = _usage(chunk) or usage
            choice = _choice(chunk)
            message = choice.get("delta") or choice.get("message") or {}
            refused = refused or bool(message.get("refusal"))
            yield from _content(message, calls)
            finish = choice.get("finish_reason") or finish
    except (ModelFault, ModelRejected):
        if not finish:
            raise
    if finish:
        yield _end("content_filter" if refused else finish, usage, calls, max_tokens)


def _choice(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice; {} without one, as in the chunk with the usage. Raises the error that came instead."""
    if fields.get("error"):
        raise _fault(fields["error"])
    if fields.get("choices"):
        choice: Mapping[str, Any] = fields["choices"][0]
        return choice
    if "message" in fields:  # the data of `event: error`
        raise _fault(fields)
    return {}


def _content(message: Mapping[str, Any], calls: ToolCalls) -> Iterator[TextPart]:
    """The text of a message, or of a part of it. Its tool calls go to `calls`."""
    for position, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        calls.add(
            call.get("index", position),
            id=call.get("id") or "",
            name=function.get("name") or "",
            arguments=function.get("arguments") or "",
        )
    text = message.get("content") or message.get("refusal")
    if text:
        yield TextPart(text)


def _end(finish: str, usage: Usage | None, calls: ToolCalls, max_tokens: int) -> End:
    if finish not in STOP_REASONS:
        raise MalformedAnswer(f"the model's answer ended with {finish}", billed=True)
    return calls.end(STOP_REASONS[finish], usage, max_tokens=max_tokens)


def _usage(fields: Mapping[str, Any]) -> Usage | None:
    match fields.get("usage"):
        case {"prompt_tokens": given, "completion_tokens": made}:
            return usage_of(given, made)
    return None


def _with_tools(parts: Iterable[Part], request: ModelRequest) -> Iterator[Part]:
    """The answer to a request that `tool_schema` translated: its JSON is no text for anybody."""
    text = ""
    for part in parts:
        if isinstance(part, TextPart):
            text += part.text
        elif part.stop_reason != "end":
            yield part
        else:
            yield from _read_back(tool_schema.read(text, request), part)


def _read_back(answer: str | ToolCall, end: End) -> Iterator[Part]:
    if isinstance(answer, ToolCall):
        yield End(stop_reason="tool_use", usage=end.usage, tool_calls=(answer,))
    else:
        yield TextPart(answer)
        yield end


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────


def _status_fault(status: int, response: Any) -> ModelFault | ModelRejected:
    if 300 <= status < 400:
        return ModelRejected("the provider's base URL redirects: set the address that it redirects to")
    try:
        answer = json.loads(response.content)
    except ValueError:
        answer = None
    error = answer.get("error", answer) if isinstance(answer, dict) else None
    wait = retry_after(response.headers.get("retry-after"))
    return _fault(error, f"HTTP {status}", status=status, wait=wait, billed=False)


def _fault(
    error: object, message: str = "", *, status: int | None = None, wait: float | None = None, billed: bool = True
) -> ModelFault | ModelRejected:
    """The error of the port for an error object. Its `code` may be a word or an HTTP status."""
    fields = error if isinstance(error, dict) else {"message": error} if isinstance(error, str) else {}
    code = fields.get("code")
    status = status if status is not None or not isinstance(code, int) else code
    codes = (str(code), str(fields.get("type")))
    text = str(fields.get("message") or message)
    return classify(text, status=status, codes=codes, retry_after=wait, billed=billed)


def _broken(cause: BaseException | None, *, started: bool = False) -> ModelFault:
    """The error for a connection that broke. `started`: after the headers of the answer.

    The HTTP library's classes are told apart by name, because importing them would be importing an HTTP client.
    """
    name = type(cause).__name__
    if name in ("ConnectError", "ConnectTimeout"):
        return ModelUnavailable("the provider cannot be reached", billed=False)
    if name.endswith("Timeout"):
        return ModelUnavailable("the model has sent nothing for too long", billed=True)
    if started:
        return StreamCut("the connection was closed before the end of the answer", billed=True)
    return ModelUnavailable(f"the call failed: {name}", billed=True)
