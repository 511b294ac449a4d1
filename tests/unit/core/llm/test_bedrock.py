"""The adapter of Bedrock: a real boto3 client, with the service's bytes and no network."""

from __future__ import annotations

import json
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

import pytest
import time_machine
from botocore import exceptions
from hypothesis import given
from hypothesis import strategies as st
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from core.errors import (
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
from core.llm.bedrock import BedrockProvider
from core.llm.provider import End, Message, TextPart, ToolCall, Usage
from tests.support import converse
from tests.support.converse import Response, end_events, error, event, exception, text_event
from tests.unit.core.llm.samples import ASKED, CALL, CALLED, READ, RESULT, SEARCH, SECONDS, ask, request

NOW = 1_796_000_000
HELLO = text_event("Hello")


class Service:
    """Bedrock as the adapter sees it."""

    def __init__(self, *chunks: bytes | Exception, response: Response | Exception | None = None) -> None:
        self._response = response or Response(chunks=chunks)
        client, self.requests = converse.client(self._respond)
        self.provider = BedrockProvider(client)

    def _respond(self) -> Response:
        if isinstance(self._response, Exception):
            raise self._response
        return self._response

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
        body: dict[str, Any] = json.loads(sent.body)
        return body


def whole(content: list[dict[str, Any]], **fields: Any) -> Response:
    return Response(chunks=[converse.answer(content, **fields)], content_type=converse.JSON)


def sent(**changes: Any) -> dict[str, Any]:
    """The body of the request to Bedrock."""
    service = Service(HELLO, end_events())
    service.ask(**changes)
    return service.body


def tool_start(index: int, id: str, name: str) -> bytes:
    return event(
        "contentBlockStart", {"start": {"toolUse": {"toolUseId": id, "name": name}}, "contentBlockIndex": index}
    )


def tool_delta(index: int, text: str) -> bytes:
    return event("contentBlockDelta", {"delta": {"toolUse": {"input": text}}, "contentBlockIndex": index})


def timed_out() -> ReadTimeoutError:
    """As urllib3 raises it: from the time-out of the socket."""
    error = ReadTimeoutError(HTTPConnectionPool("bedrock"), "/", "Read timed out.")
    error.__cause__ = TimeoutError()
    return error


# ── the request ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_has_what_the_model_needs() -> None:
    """Model, limits and messages are where Converse expects them; `maxTokens` is always sent."""
    service = Service(HELLO, end_events())
    system = Message(role="system", content="Be brief.")
    service.ask(messages=[system, ASKED], temperature=0.5, stop=["\n"])
    assert service.body == {
        "system": [{"text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"text": ASKED.content}]}],
        "inferenceConfig": {"maxTokens": 50, "temperature": 0.5, "stopSequences": ["\n"]},
    }
    assert unquote(service.requests[0].url).endswith("/model/some.model-v1:0/converse-stream")
    assert sent()["inferenceConfig"] == {"maxTokens": 50}


def test_turns_alternate_and_no_text_is_blank() -> None:
    """Messages of one role become one turn, and blank texts are not sent."""
    texts = [
        ("system", " "),
        ("user", "a"),
        ("user", "b"),
        ("assistant", " \n"),
        ("user", "c"),
        ("assistant", "d"),
    ]
    body = sent(messages=[Message(role=role, content=text) for role, text in texts])  # type: ignore[arg-type]
    assert "system" not in body
    assert body["messages"] == [
        {"role": "user", "content": [{"text": "a"}, {"text": "b"}, {"text": "c"}]},
        {"role": "assistant", "content": [{"text": "d"}]},
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message(role="system", content="Be brief.")],
        [Message(role="assistant", content="Hello"), ASKED],
        [Message(role="user", content=" ")],
    ],
)
def test_the_first_turn_is_the_users(messages: list[Message]) -> None:
    """What the service would refuse is refused with a message that says what to do, and nothing is sent."""
    service = Service()
    with pytest.raises(ModelRejected, match="role `user` and a text"):
        service.ask(messages=messages)
    assert service.requests == []


def test_tools_and_their_results() -> None:
    """Calls become `toolUse` with an object, results one user turn of `toolResult`, and tools a `toolConfig`."""
    again = ToolCall(id="call_2", name="read", arguments="{}")
    called = Message(role="assistant", content="I search.", tool_calls=(CALL, again))
    empty = Message(role="tool", content="", tool_call_id="call_2")
    body = sent(messages=[ASKED, called, RESULT, empty], tools=[SEARCH, READ], require_tool=True)
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"text": "I search."},
                {"toolUse": {"toolUseId": "call_1", "name": "search", "input": {"query": "tram"}}},
                {"toolUse": {"toolUseId": "call_2", "name": "read", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "call_1", "content": [{"text": "On Tuesdays."}]}},
                {"toolResult": {"toolUseId": "call_2", "content": [{"text": "(no output)"}]}},
            ],
        },
    ]
    search, read = body["toolConfig"]["tools"]
    assert search == {
        "toolSpec": {
            "name": "search",
            "description": "Search the documents.",
            "inputSchema": {"json": SEARCH.parameters},
        }
    }
    assert "description" not in read["toolSpec"]
    assert body["toolConfig"]["toolChoice"] == {"any": {}}


def test_earlier_tool_turns_need_a_tool_config() -> None:
    """A request without tools lists those that earlier turns called, because the service refuses it otherwise."""
    body = sent(messages=[ASKED, CALLED, RESULT])
    assert body["toolConfig"] == {
        "tools": [{"toolSpec": {"name": "search", "inputSchema": {"json": {"type": "object"}}}}]
    }


@pytest.mark.parametrize("text", ['{"query": "ab', '["ab"]', ""])
def test_arguments_that_are_no_object_are_shown_as_they_were_written(text: str) -> None:
    """The service accepts only objects, and an empty one would be another call than the model's."""
    called = Message(
        role="assistant", content="", tool_calls=(ToolCall(id="call_1", name="search", arguments=text),)
    )
    body = sent(messages=[ASKED, called, RESULT])
    assert body["messages"][1]["content"][0]["toolUse"]["input"] == {"invalid_arguments": text}


def test_a_schema_is_the_text_format() -> None:
    """The schema of the answer is sent as JSON text in `outputConfig`."""
    schema = {"type": "object", "properties": {"day": {"type": "string"}}}
    text_format = sent(schema=schema)["outputConfig"]["textFormat"]
    assert text_format["type"] == "json_schema"
    assert json.loads(text_format["structure"]["jsonSchema"]["schema"]) == schema


# ── the answer ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_arrives_in_parts() -> None:
    """Each text is a part, and the end has the reason and the tokens."""
    service = Service(event("messageStart", {"role": "assistant"}), HELLO, text_event(" there"), end_events())
    assert list(service.provider.call(request(), seconds=SECONDS)) == [
        TextPart("Hello"),
        TextPart(" there"),
        End(stop_reason="end", usage=Usage(7, 3)),
    ]


def test_an_answer_that_is_not_streamed() -> None:
    """Without `stream`, Converse is called, and its text is one part."""
    service = Service(response=whole([{"text": "Hello"}]))
    assert service.ask(stream=False) == ("Hello", End(stop_reason="end", usage=Usage(7, 3)))
    assert service.requests[0].url.endswith("/converse")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("reason", "mapped"),
    [
        ("end_turn", "end"),
        ("max_tokens", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("malformed_model_output", MalformedAnswer),
        ("malformed_tool_use", MalformedAnswer),
        ("model_context_window_exceeded", ContextOverflow),
        ("a_new_reason", MalformedAnswer),
    ],
)
def test_every_stop_reason(reason: str, mapped: str | type[RecadoError], stream: bool) -> None:
    """Each reason of the service is a reason or an error of the port."""
    streamed = Response(chunks=[HELLO, end_events(reason)])
    service = Service(response=streamed if stream else whole([{"text": "Hello"}], reason=reason))
    if isinstance(mapped, str):
        assert service.ask(stream=stream) == ("Hello", End(stop_reason=mapped, usage=Usage(7, 3)))  # type: ignore[arg-type]
    else:
        assert type(service.failure(stream=stream)) is mapped


def test_every_stop_reason_of_the_service_is_known() -> None:
    """The test above names all of them, and `tool_use` is tested below."""
    shape = converse.clients.model("bedrock-runtime").meta.service_model.shape_for("StopReason")
    cases = test_every_stop_reason.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {reason for reason, _ in cases} - {"a_new_reason"} | {"tool_use"} == set(shape.enum)


def test_parallel_tool_calls_are_assembled_by_index() -> None:
    """Pieces of two calls may alternate. A call without arguments has an empty object."""
    service = Service(
        tool_start(0, "call_1", "search"),
        tool_start(1, "call_2", "read"),
        tool_delta(0, '{"query": '),
        tool_delta(1, '{"id"'),
        tool_delta(0, '"tram"}'),
        tool_delta(1, ": 4}"),
        tool_start(2, "call_3", "list"),
        end_events("tool_use"),
    )
    assert service.ask(tools=[SEARCH, READ])[1].tool_calls == (
        CALL,
        ToolCall(id="call_2", name="read", arguments='{"id": 4}'),
        ToolCall(id="call_3", name="list", arguments="{}"),
    )


def test_a_tool_call_that_is_not_streamed() -> None:
    """Its arguments are the object as JSON."""
    use = {"toolUse": {"toolUseId": "call_1", "name": "search", "input": {"query": "tram"}}}
    _, end = Service(response=whole([use], reason="tool_use")).ask(stream=False, tools=[SEARCH])
    assert end == End(stop_reason="tool_use", usage=Usage(7, 3), tool_calls=(CALL,))


@pytest.mark.parametrize("reason", ["max_tokens", "tool_use"])
def test_a_tool_call_that_is_cut_off_is_no_call(reason: str) -> None:
    """Arguments cut by `max_tokens` end with that reason and without a call, whatever the service says."""
    service = Service(tool_start(0, "call_1", "search"), tool_delta(0, '{"que'), end_events(reason, made=8))
    assert service.ask(tools=[SEARCH], max_tokens=8)[1] == End(stop_reason="max_tokens", usage=Usage(7, 8))


def test_missing_usage_is_none() -> None:
    """A stream without metadata is complete, and has no usage."""
    service = Service(HELLO, event("messageStop", {"stopReason": "end_turn"}))
    assert service.ask() == ("Hello", End(stop_reason="end", usage=None))


def test_what_breaks_after_the_stop_reason_loses_the_usage_only() -> None:
    """The answer was complete, and is not paid for again."""
    service = Service(HELLO, event("messageStop", {"stopReason": "end_turn"}), timed_out())
    assert service.ask() == ("Hello", End(stop_reason="end", usage=None))


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=4)


@given(TEXTS, st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_text_arrives_intact_however_the_bytes_are_split(texts: list[str], sizes: list[int]) -> None:
    """The network may cut the stream at any byte: inside of a frame, of a header or of a character."""
    stream = b"".join(map(text_event, texts)) + end_events()
    chunks, start = list[bytes](), 0
    for size in sizes:
        chunks.append(stream[start : start + size])
        start += size
    assert Service(*chunks, stream[start:]).ask()[0] == "".join(texts)


def test_a_character_split_over_two_events_is_intact() -> None:
    """Each event has half of a UTF-16 pair. A half that stays alone becomes U+FFFD."""
    assert Service(text_event("a\ud83d"), text_event("\ude00b"), end_events()).ask()[0] == "a😀b"
    assert Service(text_event("a\ud83d"), end_events()).ask()[0] == "a\ufffd"


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (429, "ThrottlingException", "Too many requests, please wait before trying again.", ModelThrottled),
        (429, "ThrottlingException", "Too many tokens, please wait before trying again.", ModelThrottled),
        (
            503,
            "ServiceUnavailableException",
            "Model is getting throttled. Try your request again.",
            ModelThrottled,
        ),
        (429, "ModelNotReadyException", "The model is not ready.", ModelThrottled),
        (429, "TooManyRequestsException", "Slow down", ModelThrottled),
        (400, "ServiceQuotaExceededException", "Your quota is used up.", ModelQuotaExceeded),
        (503, "ServiceUnavailableException", "Bedrock is unable to process your request.", ModelUnavailable),
        (500, "InternalServerException", "The system encountered an unexpected error.", ModelUnavailable),
        (408, "ModelTimeoutException", "Model has timed out.", ModelUnavailable),
        (424, "ModelErrorException", "The system encountered an error in the model.", ModelUnavailable),
        (403, "ExpiredTokenException", "The security token included in the request is expired", ModelUnavailable),
        (400, "ValidationException", "Input is too long for requested model.", ContextOverflow),
        (400, "ValidationException", "Operation not allowed", ModelRejected),
        (403, "AccessDeniedException", "You don't have access to the model with this ID.", ModelRejected),
        (404, "ResourceNotFoundException", "Could not resolve the model identifier.", ModelRejected),
    ],
)
def test_errors_of_the_service(
    status: int, code: str, message: str, kind: type[RecadoError], stream: bool
) -> None:
    """Each has its class and the service's message, was not billed, and was not repeated."""
    failure = Service(response=error(status, code, message)).failure(stream=stream)
    assert type(failure) is kind
    assert message in str(failure)
    assert not getattr(failure, "billed", False)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("120", 120), ("1400000", 1_400_000), (formatdate(NOW + 5, usegmt=True), 5), ("-1", None), ("soon", None)],
)
@time_machine.travel(NOW, tick=False)
def test_retry_after_of_a_throttle(value: str, seconds: float | None) -> None:
    """Seconds and dates are passed on, and nonsense is ignored. Nobody sleeps here."""
    failure = Service(response=error(429, "ThrottlingException", "Wait.", retry_after=value)).failure()
    assert isinstance(failure, ModelThrottled)
    assert failure.retry_after == seconds


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("throttlingException", ModelThrottled),
        ("internalServerException", ModelUnavailable),
        ("serviceUnavailableException", ModelUnavailable),
        ("modelStreamErrorException", ModelUnavailable),
        ("validationException", ModelRejected),
    ],
)
def test_errors_inside_of_a_stream(name: str, kind: type[RecadoError]) -> None:
    """Their names begin with a small letter. What came before is passed on, and may be billed."""
    service, texts = Service(HELLO, text_event(" there"), exception(name, "No more.")), list[object]()
    with pytest.raises(RecadoError, match=r"No more\.") as caught:
        texts.extend(service.provider.call(request(), seconds=SECONDS))
    assert type(caught.value) is kind
    assert getattr(caught.value, "billed", True)
    assert texts == [TextPart("Hello"), TextPart(" there")]
    assert len(service.requests) == 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("failed", "billed"),
    [
        (exceptions.ReadTimeoutError(endpoint_url="https://bedrock"), True),
        (exceptions.ConnectionClosedError(endpoint_url="https://bedrock"), True),
        (exceptions.HTTPClientError(error="?"), True),
        (exceptions.ConnectTimeoutError(endpoint_url="https://bedrock"), False),
        (exceptions.EndpointConnectionError(endpoint_url="https://bedrock"), False),
        (exceptions.SSLError(endpoint_url="https://bedrock", error="?"), False),
        (exceptions.NoCredentialsError(), False),
    ],
)
def test_a_service_that_is_not_reached(failed: exceptions.BotoCoreError, billed: bool, stream: bool) -> None:
    """It may be billed if the request may have arrived. No address is in the message."""
    failure = Service(response=failed).failure(stream=stream)
    assert isinstance(failure, ModelUnavailable)
    assert (failure.billed, "https" in str(failure)) == (billed, False)


DAMAGED = text_event("Hello")[:-1] + b"\x00"


@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ((HELLO, HELLO), StreamCut),
        ((HELLO, HELLO[:20]), StreamCut),
        ((), StreamCut),
        ((HELLO, ProtocolError("Connection broken")), StreamCut),
        ((HELLO, timed_out()), ModelUnavailable),
        ((HELLO, DAMAGED), MalformedAnswer),
        ((event("contentBlockDelta", {}),), MalformedAnswer),
        ((event("messageStop", {}),), MalformedAnswer),
    ],
    ids=["no end", "half a frame", "nothing", "broken", "silent", "damaged", "no delta", "no reason"],
)
def test_streams_without_their_end(chunks: tuple[bytes | Exception, ...], kind: type[ModelFault]) -> None:
    """None is an answer, and each may be billed."""
    failure = Service(*chunks).failure()
    assert isinstance(failure, kind)
    assert failure.billed


@pytest.mark.parametrize("body", [b"{}", b"<html>", b'{"output": {"message": {"content": [{"toolUse": {}}]}}}'])
def test_answers_of_another_form(body: bytes) -> None:
    """A 200 that is no answer of Converse is malformed."""
    failure = Service(response=Response(chunks=[body], content_type=converse.JSON)).failure(stream=False)
    assert isinstance(failure, MalformedAnswer)


def test_messages_have_nothing_of_the_operator() -> None:
    """ARNs and account ids are removed from what an owner sees."""
    message = (
        "User: arn:aws:sts::123456789012:assumed-role/Worker/x is not authorized to perform: bedrock:InvokeModel "
        "on resource: arn:aws:bedrock:eu-west-1::foundation-model/some.model-v1:0 in account 123456789012"
    )
    text = str(Service(response=error(403, "AccessDeniedException", message)).failure())
    assert "refuses access" in text
    assert "not authorized to perform: bedrock:InvokeModel on resource: [arn] in account [account]" in text
    assert "123456789012" not in text


def test_arguments_that_boto3_refuses() -> None:
    """The message says which one, and nothing is sent."""
    service = Service()
    with pytest.raises(ModelRejected, match="maxTokens"):
        service.ask(max_tokens=0)
    assert service.requests == []
