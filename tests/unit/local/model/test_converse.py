"""local.model.converse: a boto3 client sees Amazon Bedrock."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from local.model import converse
from local.model.service import Service
from local.model.upstreams import Fake
from tests.unit.local.model.calls import HELLO, MODEL, text_of

HEADER_TEXT = st.text(min_size=1, max_size=40)
TOOL = {
    "toolSpec": {
        "name": "search",
        "inputSchema": {"json": {"type": "object", "properties": {"query": {"type": "string"}}}},
    }
}
TOOLS: dict[str, Any] = {"tools": [TOOL], "toolChoice": {"any": {}}}
USE = {"toolUse": {"toolUseId": "c1", "name": "search", "input": {"query": "one"}}}
RESULT = {"toolResult": {"toolUseId": "c1", "content": [{"text": "two"}]}}


@given(st.dictionaries(HEADER_TEXT, st.text(max_size=200), max_size=4), st.binary(max_size=500), st.data())
def test_frames_are_those_of_the_event_stream(
    headers: dict[str, str], payload: bytes, data: st.DataObject
) -> None:
    """botocore, which checks both checksums, reads what was encoded, however the bytes are split."""
    frame = converse.encode_frame(headers, payload) * 2
    at = data.draw(st.integers(0, len(frame)))
    buffer = EventStreamBuffer()
    for part in (frame[:at], frame[at:]):
        buffer.add_data(part)
    assert [(message.headers, message.payload) for message in buffer] == [(headers, payload)] * 2


def test_an_answer_is_streamed(bedrock: Any) -> None:
    """The events have the order of Bedrock, and the text is whole."""
    events = list(bedrock.converse_stream(**HELLO)["stream"])
    names = [next(iter(event)) for event in events]
    assert names == [
        "messageStart",
        *["contentBlockDelta"] * 6,
        "contentBlockStop",
        "messageStop",
        "metadata",
    ]
    assert text_of(events) == "one two three one two three"
    assert events[-2]["messageStop"]["stopReason"] == "end_turn"
    assert events[-1]["metadata"]["usage"] == {"inputTokens": 3, "outputTokens": 6, "totalTokens": 9}


def test_an_answer_that_is_not_streamed_is_the_same(bedrock: Any) -> None:
    """Text, stop reason and usage."""
    answer = bedrock.converse(**HELLO)
    assert answer["output"]["message"] == {
        "role": "assistant",
        "content": [{"text": "one two three one two three"}],
    }
    assert answer["stopReason"] == "end_turn"
    assert answer["usage"]["totalTokens"] == 9


@pytest.mark.parametrize(
    ("options", "reason", "text"),
    [
        ({"maxTokens": 2}, "max_tokens", "one two"),
        ({"maxTokens": 6}, "end_turn", "one two three one two three"),
        ({"stopSequences": ["three"]}, "stop_sequence", "one two"),
    ],
)
def test_why_an_answer_ended(bedrock: Any, options: dict[str, Any], reason: str, text: str) -> None:
    """Streamed or not."""
    events = list(bedrock.converse_stream(**HELLO, inferenceConfig=options)["stream"])
    assert text_of(events) == text
    assert {"messageStop": {"stopReason": reason}} in events
    assert bedrock.converse(**HELLO, inferenceConfig=options)["stopReason"] == reason


def turns(*contents: list[dict[str, Any]]) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": content} for n, content in enumerate(contents)]}


SAID = [{"text": "x"}]
REFUSED = {
    "no message": {"messages": []},
    "starts with the assistant": {"messages": [{"role": "assistant", "content": SAID}]},
    "two user turns": {"messages": [{"role": "user", "content": SAID}] * 2},
    "unknown role": {"messages": [{"role": "user", "content": SAID}, {"role": "system", "content": SAID}]},
    "no content": turns([]),
    "blank text": turns([{"text": " \n"}]),
    "blank system": {**turns(SAID), "system": [{"text": " "}]},
    "image": turns([{"image": {"format": "png", "source": {"bytes": b"x"}}}]),
    "tool turns without toolConfig": turns(SAID, [USE], [RESULT]),
    "toolResult without toolUse": {**turns(SAID, SAID, [RESULT]), "toolConfig": TOOLS},
    "toolResult in the first turn": {**turns([RESULT]), "toolConfig": TOOLS},
    "toolUse without toolResult": {**turns(SAID, [USE], SAID), "toolConfig": TOOLS},
    "error without content": {
        **turns(SAID, [USE], [{"toolResult": {"toolUseId": "c1", "content": [], "status": "error"}}]),
        "toolConfig": TOOLS,
    },
    "schema that is no JSON": {
        **turns(SAID),
        "outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{"}}}},
    },
}


@pytest.mark.parametrize("request_body", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("operation", ["converse", "converse_stream"])
def test_what_aws_refuses_is_refused(bedrock: Any, operation: str, request_body: dict[str, Any]) -> None:
    """It is a ValidationException before anything is streamed, and the model is not called."""
    with pytest.raises(bedrock.exceptions.ValidationException):
        getattr(bedrock, operation)(**{"modelId": MODEL, **request_body})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "valid types"),
        (b"{}", "must start with a user message"),
        (b'{"messages": [{"role": "user", "content": [{"text": "x"}], "name": "y"}]}', '"name", must be one of'),
        (b'{"messages": [], "max_tokens": 5}', '"max_tokens", must be one of'),
        (b'{"messages": [], "inferenceConfig": {"maxTokens": 0}}', "min value: 1"),
        (
            b'{"messages": [{"role": "user", "content": [{"text": {"a secret": 1}}]}]}',
            "text, type: <class 'dict'>",
        ),
    ],
)
def test_requests_are_held_to_the_service_model(service: Service, body: bytes, message: str) -> None:
    """The message names the parameter and has no value, because a value may be a piece of a prompt."""
    response = service.handle("POST", f"/model/{MODEL}/converse", {}, body)
    assert response.status == 400
    assert response.headers["x-amzn-ErrorType"] == "ValidationException"
    text = json.loads(b"".join(response.body))["message"]
    assert message in text
    assert "secret" not in text


class Failing:
    """An upstream that answers with an error of its own."""

    model = None

    def __init__(self, status: int, kind: str = "server_error", *, after: int = 0) -> None:
        self._fake, self._status, self._kind, self._after = Fake(), status, kind, after

    def status(self) -> str:
        return "ok"

    def chunks(self, *arguments: Any) -> Any:
        for n, chunk in enumerate(self._fake.chunks(*arguments)):
            if n == self._after:
                break
            yield chunk
        error = {"message": "It says why.", "type": self._kind}
        raise converse.ProviderError(self._status, error, retry_after="7")


@pytest.mark.parametrize(
    ("status", "code", "answered"),
    [
        *((400, "ValidationException", 400), (404, "ValidationException", 400), (422, "ValidationException", 400)),
        *((403, "AccessDeniedException", 403), (408, "ModelTimeoutException", 408)),
        *((424, "ModelErrorException", 424), (429, "ThrottlingException", 429)),
        *((500, "InternalServerException", 500), (502, "InternalServerException", 500)),
        (503, "ServiceUnavailableException", 503),
    ],
)
@pytest.mark.parametrize("operation", ["converse", "converse_stream"])
def test_errors_of_the_model_become_exceptions_of_bedrock(
    make_bedrock: Callable[[Any], Any], operation: str, status: int, code: str, answered: int
) -> None:
    """The status, the message and Retry-After arrive."""
    client = make_bedrock(Service(Failing(status)))
    with pytest.raises(ClientError, match="It says why") as raised:
        getattr(client, operation)(**HELLO)
    response = raised.value.response
    assert response["Error"]["Code"] == code
    assert response["ResponseMetadata"]["HTTPStatusCode"] == answered
    assert response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "7"


def test_a_prompt_that_is_too_long(make_bedrock: Callable[[Any], Any]) -> None:
    """llama.cpp has an error type for it, Bedrock a message."""
    client = make_bedrock(Service(Failing(400, "exceed_context_size_error")))
    with pytest.raises(client.exceptions.ValidationException, match="Input is too long for requested model"):
        client.converse(**HELLO)


def test_an_error_in_mid_stream_is_an_event(make_bedrock: Callable[[Any], Any]) -> None:
    """What came before it arrives."""
    stream = make_bedrock(Service(Failing(424, after=2))).converse_stream(**HELLO)["stream"]
    got: list[dict[str, Any]] = []
    with pytest.raises(ClientError, match="modelStreamErrorException"):
        got += stream
    assert text_of(got) == "one two"


def test_a_json_schema_is_enforced(bedrock: Any) -> None:
    """`outputConfig` becomes the `response_format` of the model."""
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}}
    wanted = {"type": "json_schema", "structure": {"jsonSchema": {"schema": json.dumps(schema)}}}
    answer = bedrock.converse(**HELLO, outputConfig={"textFormat": wanted})
    assert json.loads(answer["output"]["message"]["content"][0]["text"]) == {"colour": "red"}


def test_a_tool_is_called_and_its_result_answered(bedrock: Any) -> None:
    """A call has the tool's name and arguments of its schema; after the result there may be an answer."""
    asked = bedrock.converse(**HELLO, toolConfig=TOOLS)
    assert asked["stopReason"] == "tool_use"
    said = asked["output"]["message"]
    use = said["content"][0]["toolUse"]
    assert (use["name"], use["input"]) == ("search", {"query": "one two three"})
    result = {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"json": {"found": 1}}]}}
    messages = [*HELLO["messages"], said, {"role": "user", "content": [result]}]
    answered = bedrock.converse(modelId=MODEL, messages=messages, toolConfig={"tools": [TOOL]})
    assert answered["stopReason"] == "end_turn"
    assert "found" in answered["output"]["message"]["content"][0]["text"]


def test_a_tool_call_is_streamed(bedrock: Any) -> None:
    """Its start has the name, its delta the arguments."""
    events = list(bedrock.converse_stream(**HELLO, toolConfig=TOOLS)["stream"])
    starts = [event["contentBlockStart"]["start"]["toolUse"] for event in events if "contentBlockStart" in event]
    inputs = [e["contentBlockDelta"]["delta"]["toolUse"]["input"] for e in events if "contentBlockDelta" in e]
    assert [start["name"] for start in starts] == ["search"]
    assert json.loads("".join(inputs)) == {"query": "one two three"}
    assert {"messageStop": {"stopReason": "tool_use"}} in events


def test_a_tool_call_that_was_cut_off_is_none(bedrock: Any) -> None:
    """The stop reason is max_tokens, and no arguments are made up for half a JSON."""
    limit = {"maxTokens": 20}
    answer = bedrock.converse(**HELLO, toolConfig=TOOLS, inferenceConfig=limit)
    assert answer["stopReason"] == "max_tokens"
    assert not [block for block in answer["output"]["message"]["content"] if "toolUse" in block]
    events = list(bedrock.converse_stream(**HELLO, toolConfig=TOOLS, inferenceConfig=limit)["stream"])
    inputs = [e["contentBlockDelta"]["delta"]["toolUse"]["input"] for e in events if "contentBlockDelta" in e]
    assert inputs == ['{"query": "one']
    assert {"messageStop": {"stopReason": "max_tokens"}} in events


def test_a_model_that_is_not_there(make_bedrock: Callable[[Any], Any]) -> None:
    """The small model answers under its own id only."""

    class Small(Fake):
        model = "small"  # type: ignore[assignment]

    client = make_bedrock(Service(Small()))
    assert client.converse(**{**HELLO, "modelId": "small"})["stopReason"] == "end_turn"
    with pytest.raises(client.exceptions.ValidationException, match="model identifier is invalid"):
        client.converse(**HELLO)
