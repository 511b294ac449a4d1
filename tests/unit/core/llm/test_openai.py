"""The adapter of OpenAI-compatible servers: the real client, with a server's bytes and no network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from email.utils import formatdate
from typing import Any

import httpx2
import pytest
import time_machine
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from core.errors import (
    ContentFiltered,
    ContextOverflow,
    MalformedAnswer,
    ModelFault,
    ModelQuotaExceeded,
    ModelRejected,
    ModelThrottled,
    ModelUnavailable,
    RecadoError,
    StreamCut,
)
from core.llm.openai import OpenAIProvider, read_key
from core.llm.provider import End, Message, TextPart, ToolCall, Usage
from tests.unit.core.llm.samples import ASKED, CALL, CALLED, READ, RESULT, SEARCH, SECONDS, ask, request

NOW = 1_796_000_000
URL = "http://model.example/v1"
DONE = b"data: [DONE]\n\n"


class Stream(httpx2.SyncByteStream):
    """Chunks of a body. An error among them is raised in its turn."""

    def __init__(self, chunks: tuple[bytes | Exception, ...]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


class Server:
    """A server with these answers. It streams `chunks`, or answers with `response`, which may be an error."""

    def __init__(
        self,
        *chunks: bytes | Exception,
        response: httpx2.Response | Exception | None = None,
        url: str = URL,
        key: str = "sk-test",
        tools_as_schema: bool = False,
    ) -> None:
        self.chunks, self._response, self.requests = chunks, response, list[httpx2.Request]()
        transport = httpx2.MockTransport(self._respond)
        self.provider = OpenAIProvider(url, key, tools_as_schema=tools_as_schema, transport=transport)

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if isinstance(self._response, Exception):
            raise self._response
        streamed = {"content-type": "text/event-stream; charset=utf-8"}
        return self._response or httpx2.Response(200, headers=streamed, stream=Stream(self.chunks))

    def ask(self, **changes: Any) -> tuple[str, End]:
        return ask(self.provider, **changes)

    def failure(self, **changes: Any) -> RecadoError:
        """The error of a call. There was one request."""
        with pytest.raises(RecadoError) as caught:
            self.ask(**changes)
        assert len(self.requests) == 1
        return caught.value

    @property
    def body(self) -> dict[str, Any]:
        (sent,) = self.requests
        body: dict[str, Any] = json.loads(sent.content)
        return body


def sse(data: Any, event: str = "") -> bytes:
    named = f"event: {event}\n" if event else ""
    return f"{named}data: {json.dumps(data)}\n\n".encode()


def delta(finish: str | None = None, **fields: Any) -> bytes:
    return sse({"id": "1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def tool_delta(index: int, arguments: str, **fields: Any) -> bytes:
    return delta(tool_calls=[{"index": index, **fields, "function": {"arguments": arguments}}])


def tool_start(index: int, id: str, name: str, arguments: str = "") -> bytes:
    return delta(
        tool_calls=[
            {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        ]
    )


def usage_chunk(given: int = 7, made: int = 3) -> bytes:
    return sse({"choices": [], "usage": {"prompt_tokens": given, "completion_tokens": made, "total_tokens": 0}})


def end(finish: str = "stop", given: int = 7, made: int = 3) -> bytes:
    return delta(finish) + usage_chunk(given, made) + DONE


def whole(message: dict[str, Any], finish: str = "stop") -> httpx2.Response:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return httpx2.Response(200, json={"choices": [choice], "usage": usage})


def error(status: int, message: str, **fields: Any) -> httpx2.Response:
    headers = {"retry-after": str(fields.pop("retry_after"))} if "retry_after" in fields else {}
    return httpx2.Response(status, json={"error": {"message": message, **fields}}, headers=headers)


HELLO = delta(content="Hello")


def sent(**changes: Any) -> dict[str, Any]:
    """The body of the request to the server."""
    server = Server(HELLO, end())
    server.ask(**changes)
    return server.body


# ── the request ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_has_what_the_model_needs() -> None:
    """Messages and limits are sent, and so is the wish for the usage at the end of a stream."""
    system = Message(role="system", content="Be brief.")
    assert sent(messages=[system, ASKED], temperature=0.5, stop=["\n"]) == {
        "model": "some.model-v1:0",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASKED.content}],
        "max_tokens": 50,
        "temperature": 0.5,
        "stop": ["\n"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert set(sent()) == {"model", "messages", "max_tokens", "stream", "stream_options"}


def test_openai_has_another_name_for_the_limit() -> None:
    """OpenAI itself gets `max_completion_tokens`, because its newer models refuse `max_tokens`."""
    server = Server(HELLO, end(), url="https://api.openai.com/v1")
    server.ask()
    assert server.body["max_completion_tokens"] == 50
    assert "max_tokens" not in server.body


def test_tools_and_their_results() -> None:
    """Tools, calls and results are in the form of the API."""
    body = sent(messages=[ASKED, CALLED, RESULT], tools=[SEARCH], require_tool=True)
    function = {"name": "search", "description": SEARCH.description, "parameters": SEARCH.parameters}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body["tool_choice"] == "required"
    call = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": CALL.arguments}}
    assert body["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "On Tuesdays.", "tool_call_id": "call_1"},
    ]


def test_a_schema_is_the_response_format() -> None:
    """The schema of the answer is sent, and is strict."""
    schema = {"type": "object", "properties": {"day": {"type": "string"}}}
    assert sent(schema=schema)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": schema},
    }


def test_only_what_is_configured_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Address and key are those that are given. The environment and the client's telemetry add nothing."""
    for name in ("API_KEY", "BASE_URL", "ORG_ID", "PROJECT_ID", "ADMIN_KEY"):
        monkeypatch.setenv(f"OPENAI_{name}", "https://elsewhere.example")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-From: environment")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    server = Server(HELLO, end())
    server.ask(idempotency_key="job_1-answer")
    (sent,) = server.requests
    assert str(sent.url) == "http://model.example/v1/chat/completions"
    assert sent.headers["authorization"] == "Bearer sk-test"
    assert sent.headers["idempotency-key"] == "job_1-answer"
    assert "elsewhere" not in str(sent.headers)
    assert not [name for name in sent.headers if name.startswith("x-")]


def test_a_request_without_key_and_idempotency_key() -> None:
    """A server without keys gets a placeholder, and there is no header for a key that is not set."""
    server = Server(HELLO, end(), key="")
    server.ask()
    assert server.requests[0].headers["authorization"] == "Bearer none"
    assert "idempotency-key" not in server.requests[0].headers


def test_a_redirect_is_not_followed() -> None:
    """The prompt goes to the configured address alone."""
    moved = httpx2.Response(307, headers={"location": "http://elsewhere.example/v1/chat/completions"})
    failure = Server(response=moved).failure()
    assert isinstance(failure, ModelRejected)
    assert "redirects" in str(failure)


# ── the answer ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_arrives_in_parts() -> None:
    """Each text is a part. The usage comes in a chunk without choices."""
    server = Server(delta(role="assistant", content=None), HELLO, delta(content=" there"), end())
    assert list(server.provider.call(request(), seconds=SECONDS)) == [
        TextPart("Hello"),
        TextPart(" there"),
        End(stop_reason="end", usage=Usage(7, 3)),
    ]


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_is_not_streamed(stream: bool) -> None:
    """It is read also where the request was for a stream and the server ignored that."""
    server = Server(response=whole({"content": "Hello"}))
    assert server.ask(stream=stream) == ("Hello", End(stop_reason="end", usage=Usage(7, 3)))
    assert server.body["stream"] is stream


@pytest.mark.parametrize(
    ("finish", "mapped"),
    [("stop", "end"), ("length", "max_tokens"), ("content_filter", "content_filter"), ("abort", MalformedAnswer)],
)
@pytest.mark.parametrize("text", ["Hello", ""])
def test_every_finish_reason(finish: str, mapped: str | type[RecadoError], text: str) -> None:
    """Each reason has one of the port, with and without text before it; an unknown one is malformed."""
    server = Server(delta(content=text), end(finish))
    if isinstance(mapped, str):
        assert server.ask() == (text, End(stop_reason=mapped, usage=Usage(7, 3)))  # type: ignore[arg-type]
    else:
        assert type(server.failure()) is mapped


@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_is_filtered(stream: bool) -> None:
    """The model refuses with a text of its own and the reason `stop`."""
    refused = {"content": None, "refusal": "I cannot."}
    server = Server(delta(**refused), end()) if stream else Server(response=whole(refused))
    assert server.ask(stream=stream) == ("I cannot.", End(stop_reason="content_filter", usage=Usage(7, 3)))


def test_parallel_tool_calls_are_assembled_by_index() -> None:
    """Pieces of two calls may alternate, and only the first piece of each has the id."""
    server = Server(
        tool_start(0, "call_1", "search", '{"query": '),
        tool_start(1, "call_2", "read"),
        tool_delta(0, '"tram'),
        tool_delta(1, '{"id": 4'),
        tool_delta(0, '"}'),
        tool_delta(1, "}"),
        end("tool_calls"),
    )
    calls = (CALL, ToolCall(id="call_2", name="read", arguments='{"id": 4}'))
    assert server.ask(tools=[SEARCH, READ])[1].tool_calls == calls


@pytest.mark.parametrize("index", [{"index": 0}, {"index": None}, {}])
def test_whole_tool_calls_that_share_an_index(index: dict[str, Any]) -> None:
    """Some servers send whole calls with the same index or none: their ids tell them apart."""
    calls = [ToolCall(id=f"call_{n}", name="read", arguments=f'{{"id": {n}}}') for n in (1, 2)]
    chunks = [
        delta(tool_calls=[{**index, "id": c.id, "function": {"name": c.name, "arguments": c.arguments}}])
        for c in calls
    ]
    assert Server(*chunks, end("stop")).ask(tools=[READ])[1] == End(
        stop_reason="tool_use", usage=Usage(7, 3), tool_calls=tuple(calls)
    )


def test_tool_calls_that_are_not_streamed() -> None:
    """They have no index."""
    functions = [{"name": "search", "arguments": CALL.arguments}, {"name": "read", "arguments": ""}]
    calls = [{"id": f"call_{n}", "type": "function", "function": f} for n, f in enumerate(functions, 1)]
    _, ended = Server(response=whole({"content": None, "tool_calls": calls}, "tool_calls")).ask(stream=False)
    assert ended.tool_calls == (CALL, ToolCall(id="call_2", name="read", arguments="{}"))


@pytest.mark.parametrize("finish", ["length", "tool_calls"])
def test_a_tool_call_that_is_cut_off_is_no_call(finish: str) -> None:
    """Arguments cut by `max_tokens` end with that reason and without a call, whatever the server says."""
    server = Server(tool_start(0, "call_1", "search", '{"query": "ab'), end(finish, made=8))
    assert server.ask(tools=[SEARCH], max_tokens=8)[1] == End(stop_reason="max_tokens", usage=Usage(7, 8))


def test_arguments_that_are_no_json_stay_as_they_are() -> None:
    """They never become an empty object: who runs the tool tells the model."""
    _, ended = Server(tool_start(0, "call_1", "search", '{"query": "ab'), end("tool_calls")).ask(tools=[SEARCH])
    assert ended.tool_calls[0].arguments == '{"query": "ab'


def test_missing_usage_is_none() -> None:
    """A stream without the usage chunk is complete."""
    assert Server(HELLO, delta("stop"), DONE).ask() == ("Hello", End(stop_reason="end", usage=None))


@pytest.mark.parametrize("last", [(), (httpx2.ReadError("reset"),), (sse({"error": {"message": "late"}}),)])
def test_what_breaks_after_the_finish_reason_loses_the_usage_only(last: tuple[bytes | Exception, ...]) -> None:
    """The answer was complete, also without [DONE], and is not paid for again."""
    assert Server(HELLO, delta("stop"), *last).ask() == ("Hello", End(stop_reason="end", usage=None))


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=4)


SHARED = Server()
"""For properties, because making a client takes long."""


@given(TEXTS, st.booleans(), st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_text_arrives_intact_however_the_bytes_are_split(texts: list[str], ascii: bool, sizes: list[int]) -> None:
    """The network may cut the stream at any byte, and JSON may have characters or escapes."""
    chunks = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    stream = b"".join(f"data: {json.dumps(chunk, ensure_ascii=ascii)}\n\n".encode() for chunk in chunks) + end()
    pieces, start = list[bytes](), 0
    for size in sizes:
        pieces.append(stream[start : start + size])
        start += size
    SHARED.chunks = (*pieces, stream[start:])
    assert SHARED.ask()[0] == "".join(texts)


KEYS = st.sampled_from(
    ["choices", "delta", "content", "tool_calls", "function", "index", "finish_reason", "usage"]
)
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.just("stop"),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(KEYS, values, max_size=4),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(KEYS, VALUES, min_size=1), max_size=3))
def test_a_stream_of_any_json_is_an_answer_or_an_error_of_the_port(chunks: list[Any]) -> None:
    """Whatever a server sends, nothing else is raised."""
    SHARED.chunks = tuple(map(sse, chunks))
    with suppress(RecadoError):
        SHARED.ask()


def test_an_emoji_in_four_chunks_is_intact() -> None:
    """Also where two events have half of its UTF-16 pair each."""
    body = 'data: {"choices": [{"delta": {"content": "😀"}}]}\n\n'.encode()
    at = body.index("😀".encode())
    chunks = [body[: at + 1], *(body[i : i + 1] for i in (at + 1, at + 2)), body[at + 3 :]]
    assert Server(*chunks, end()).ask()[0] == "😀"
    assert Server(delta(content="\ud83d"), delta(content="\ude00"), end()).ask()[0] == "😀"


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "fields", "kind"),
    [
        (429, {"code": "insufficient_quota", "type": "insufficient_quota"}, ModelQuotaExceeded),
        (402, {}, ModelQuotaExceeded),
        (429, {"code": "rate_limit_exceeded", "type": "requests"}, ModelThrottled),
        (429, {}, ModelThrottled),
        (500, {"type": "server_error"}, ModelUnavailable),
        (503, {"type": "engine_overloaded"}, ModelUnavailable),
        (529, {"type": "overloaded_error"}, ModelUnavailable),
        (408, {}, ModelUnavailable),
        (409, {}, ModelUnavailable),
        (400, {"code": "context_length_exceeded", "type": "invalid_request_error"}, ContextOverflow),
        (
            400,
            {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8},
            ContextOverflow,
        ),
        (400, {"code": "content_filter"}, ContentFiltered),
        (400, {"code": None, "type": "invalid_request_error"}, ModelRejected),
        (401, {"code": "invalid_api_key"}, ModelRejected),
        (404, {"code": "model_not_found"}, ModelRejected),
        (413, {}, ModelRejected),
    ],
)
def test_errors_of_the_server(status: int, fields: dict[str, Any], kind: type[RecadoError], stream: bool) -> None:
    """Each has its class and the server's message, was not billed, and was not repeated."""
    failure = Server(response=error(status, "Because of this.", **fields)).failure(stream=stream)
    assert type(failure) is kind
    assert "Because of this." in str(failure)
    assert not getattr(failure, "billed", False)


@pytest.mark.parametrize(
    "body", [b"<html>Bad gateway</html>", b"", b"[]", b'{"detail": "no"}', b'{"error": "no"}']
)
def test_errors_of_what_stands_before_the_server(body: bytes) -> None:
    """A proxy's error page has no error object."""
    assert isinstance(Server(response=httpx2.Response(502, content=body)).failure(), ModelUnavailable)


def test_an_error_whose_body_breaks() -> None:
    """Nothing but errors of the port is raised."""
    response = httpx2.Response(500, stream=Stream((b"{", httpx2.ReadError("reset"))))
    assert isinstance(Server(response=response).failure(), ModelUnavailable)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120),
        ({"retry-after": "1400000"}, 1_400_000),
        ({"retry-after": formatdate(NOW + 5, usegmt=True)}, 5),
        ({"retry-after": "soon"}, None),
        ({"x-ratelimit-remaining-requests": "-1", "x-ratelimit-reset-requests": "0"}, None),
    ],
)
@time_machine.travel(NOW, tick=False)
def test_retry_after_of_a_throttle(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds and dates are passed on, and nonsense is ignored. Nobody sleeps here."""
    failure = Server(response=httpx2.Response(429, headers=headers, json={})).failure()
    assert isinstance(failure, ModelThrottled)
    assert failure.retry_after == seconds


INNER = [
    ({"message": "Overloaded", "type": "overloaded_error"}, ModelUnavailable),
    ({"message": "Slow down", "code": "rate_limit_exceeded"}, ModelThrottled),
    ({"message": "Slow down", "code": 429}, ModelThrottled),
    ({"message": "Paid nothing", "code": "insufficient_quota"}, ModelQuotaExceeded),
    ({"message": "Bad", "type": "invalid_request_error"}, ModelRejected),
    ({"message": "Too long", "type": "exceed_context_size_error"}, ContextOverflow),
    ("Something", ModelUnavailable),
]


@pytest.mark.parametrize(("inner", "kind"), INNER)
@pytest.mark.parametrize("stream", [True, False])
def test_an_error_with_status_200(inner: object, kind: type[RecadoError], stream: bool) -> None:
    """It fails by the inner code, and it is no answer."""
    assert type(Server(response=httpx2.Response(200, json={"error": inner})).failure(stream=stream)) is kind


@pytest.mark.parametrize(("inner", "kind"), INNER)
@pytest.mark.parametrize("named", [True, False], ids=["event: error", "data"])
def test_an_error_inside_of_a_stream(inner: object, kind: type[RecadoError], named: bool) -> None:
    """It may be `{"error": …}`, or an event `error` with or without that. What came before may be billed."""
    data = inner if named and isinstance(inner, dict) else {"error": inner}
    failure = Server(HELLO, sse(data, event="error" if named else "")).failure()
    assert type(failure) is kind
    assert getattr(failure, "billed", True)


@pytest.mark.parametrize("answer", [{}, {"choices": None}, {"choices": []}, [], "text", None])
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_without_choices(answer: object, stream: bool) -> None:
    """A 200 without an answer is malformed."""
    body, headers = json.dumps(answer).encode(), {"content-type": "application/json"}
    response = httpx2.Response(200, content=body, headers=headers)
    assert isinstance(Server(response=response).failure(stream=stream), MalformedAnswer)


@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ((HELLO, HELLO), StreamCut),
        ((HELLO, DONE), StreamCut),
        ((HELLO, HELLO[:20]), StreamCut),
        ((), StreamCut),
        ((sse({"choices": None}), sse({"choices": []}), DONE), StreamCut),
        ((HELLO, httpx2.RemoteProtocolError("closed")), StreamCut),
        ((HELLO, httpx2.ReadError("reset")), StreamCut),
        ((HELLO, httpx2.ReadTimeout("silent")), ModelUnavailable),
        ((HELLO, b'data: {"choices": [{"del\n\n'), MalformedAnswer),
        ((HELLO, b'data: "\xff"\n\n'), MalformedAnswer),
        ((HELLO, b"data: 7\n\n"), MalformedAnswer),
        ((sse({"choices": [7]}),), MalformedAnswer),
        ((delta(tool_calls=[{"index": 0}]),), MalformedAnswer),
        ((delta(content=["a"]), end()), MalformedAnswer),
    ],
)
def test_streams_without_their_end(chunks: tuple[bytes | Exception, ...], kind: type[ModelFault]) -> None:
    """None is an answer, and each may be billed."""
    failure = Server(*chunks).failure()
    assert isinstance(failure, kind)
    assert failure.billed


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("failed", "billed"),
    [
        (httpx2.ReadTimeout("silent"), True),
        (httpx2.RemoteProtocolError("closed"), True),
        (httpx2.ReadError("reset"), True),
        (httpx2.ConnectTimeout("slow"), False),
        (httpx2.ConnectError("refused"), False),
    ],
)
def test_a_server_that_is_not_reached(failed: Exception, billed: bool, stream: bool) -> None:
    """It may be billed if the request may have arrived."""
    failure = Server(response=failed).failure(stream=stream)
    assert isinstance(failure, ModelUnavailable)
    assert failure.billed is billed


@pytest.mark.parametrize("broken", [httpx2.ReadTimeout("silent"), httpx2.ReadError("reset")])
def test_a_whole_answer_that_breaks(broken: Exception) -> None:
    """The headers arrived, but the body did not."""
    headers = {"content-type": "application/json"}
    failure = Server(response=httpx2.Response(200, headers=headers, stream=Stream((b"{", broken)))).failure()
    assert isinstance(failure, (ModelUnavailable, StreamCut))
    assert failure.billed


# ── tools as a schema ────────────────────────────────────────────────────────────────────────────────────


def tool_server(*texts: str, finish: str = "stop") -> Server:
    return Server(*(delta(content=text) for text in texts), end(finish), tools_as_schema=True)


def test_tools_become_a_schema_and_its_json_a_call() -> None:
    """The server gets no tools, and its JSON is a call instead of text."""
    server = tool_server('{"tool": "search", ', '"arguments": {"query": "tram"}}')
    text, ended = server.ask(tools=[SEARCH])
    assert (text, ended.stop_reason, ended.usage) == ("", "tool_use", Usage(7, 3))
    ((call),) = ended.tool_calls
    assert (call.name, call.arguments) == ("search", '{"query": "tram"}')
    assert "tools" not in server.body
    assert "oneOf" in server.body["response_format"]["json_schema"]["schema"]


def test_an_answer_instead_of_a_call() -> None:
    """It is the text, without its JSON."""
    assert tool_server('{"answer": "On ', 'Tuesdays."}').ask(tools=[SEARCH]) == (
        "On Tuesdays.",
        End(stop_reason="end", usage=Usage(7, 3)),
    )


def test_a_cut_off_schema_is_no_call() -> None:
    """JSON cut by `max_tokens` is neither a call nor a text."""
    server = tool_server('{"tool": "search", "arguments": {"que', finish="length")
    assert server.ask(tools=[SEARCH]) == ("", End(stop_reason="max_tokens", usage=Usage(7, 3)))


def test_another_form_than_the_schema() -> None:
    """A server that does not enforce the schema does not make a call."""
    assert isinstance(tool_server("I search now.").failure(tools=[SEARCH]), MalformedAnswer)


def test_earlier_tool_turns_without_tools() -> None:
    """The last turn of a conversation with tools is an ordinary one."""
    server = tool_server("On Tuesdays.")
    assert server.ask(messages=[ASKED, CALLED, RESULT])[0] == "On Tuesdays."
    assert [message["role"] for message in server.body["messages"]] == ["user", "assistant", "user"]
    assert "response_format" not in server.body


# ── the key ──────────────────────────────────────────────────────────────────────────────────────────────


class Secrets:
    def __init__(self, answer: str | Exception) -> None:
        self._answer = answer

    def get_secret_value(self, **arguments: str) -> dict[str, str]:
        assert arguments == {"SecretId": "recado/openai"}
        if isinstance(self._answer, Exception):
            raise self._answer
        return {"SecretString": self._answer}


def test_the_key_is_read_by_the_name_of_its_secret() -> None:
    """Without a name nothing is read and there is no key."""
    assert read_key(Secrets("sk-secret\n"), "recado/openai") == "sk-secret"
    assert read_key(None, "") == ""


@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        (ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "GetSecretValue"), ModelRejected),
        (ClientError({"Error": {"Code": "ThrottlingException"}}, "GetSecretValue"), ModelUnavailable),
        (EndpointConnectionError(endpoint_url="https://secrets"), ModelUnavailable),
    ],
)
def test_a_key_that_cannot_be_read(failed: Exception, kind: type[RecadoError]) -> None:
    """What may work later is retried."""
    with pytest.raises(RecadoError, match="cannot be read") as caught:
        read_key(Secrets(failed), "recado/openai")
    assert type(caught.value) is kind
