"""Amazon Bedrock: Converse, and ConverseStream for requests with `stream`.

`close` shuts down the connection of a stream once its headers have arrived; the service sees that within
milliseconds. boto3 has no way to reach a connection before: `close` ends the iteration then, and the connection is
closed when the headers arrive, or by the deadline. The same holds for all of Converse. Bedrock has no idempotency
keys, so `idempotency_key` is not sent.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from botocore.eventstream import ParserError
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, ParamValidationError

from core.errors import (
    ContextOverflow,
    MalformedAnswer,
    ModelFault,
    ModelRejected,
    ModelUnavailable,
    StreamCut,
)
from core.llm import converse
from core.llm.assembly import ToolCalls, reads_answer, usage_of
from core.llm.faults import classify, public, retry_after
from core.llm.provider import Answer, End, ModelRequest, StopReason, TextPart, Usage
from core.llm.running_call import Connection, Part, RunningCall, read_timeout

if TYPE_CHECKING:
    from types_boto3_bedrock_runtime import BedrockRuntimeClient

STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "end",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}
CONTEXT_EXCEEDED = "model_context_window_exceeded"


class BedrockProvider:
    """`client`: of `core.aws.clients.model`, which does not retry. Only this provider may use it."""

    name = "bedrock"

    def __init__(self, client: BedrockRuntimeClient) -> None:
        self._client = client
        self._thread = threading.local()
        client.meta.events.register("before-call.bedrock-runtime", self._on_call)
        client.meta.events.register("response-received.bedrock-runtime.ConverseStream", self._on_response)

    def call(self, request: ModelRequest, *, seconds: float) -> Answer:
        return RunningCall(functools.partial(self._parts, request, seconds), seconds=seconds)

    def _parts(self, request: ModelRequest, seconds: float, connection: Connection) -> Iterator[Part]:
        self._thread.connection, self._thread.read_timeout = connection, read_timeout(request, seconds)
        arguments = converse.arguments(request)
        if not request.stream:
            yield from _whole(_sent(self._client.converse, arguments), request.max_tokens)
            return
        with closing(_sent(self._client.converse_stream, arguments)["stream"]) as stream:
            yield from _streamed(_events(stream), request.max_tokens)

    def _on_call(self, context: dict[str, Any], **_: object) -> None:
        context["read_timeout"] = self._thread.read_timeout

    def _on_response(self, response_dict: Mapping[str, Any] | None, **_: object) -> None:
        """The headers of a stream have arrived; its body is a `urllib3.HTTPResponse`."""
        shut_down = getattr(response_dict["body"], "shutdown", None) if response_dict else None
        if shut_down:
            self._thread.connection.opened(shut_down)


def _sent(operation: Any, arguments: Mapping[str, Any]) -> Any:
    try:
        return operation(**arguments)
    except (BotoCoreError, ClientError) as error:
        raise _fault(error) from error


def _events(stream: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The events. Everything that can go wrong with the connection is an error of the port."""
    try:
        yield from stream
    except ClientError as error:
        raise _fault(error, billed=True) from error
    except ParserError as error:
        raise MalformedAnswer(f"a frame of the answer cannot be read: {error}", billed=True) from error
    except Exception as error:  # botocore does not translate those of urllib3 here
        if isinstance(error.__cause__, TimeoutError):
            raise ModelUnavailable("the model stopped answering", billed=True) from error
        raise StreamCut("the connection was closed before the end of the answer", billed=True) from error


@reads_answer
def _streamed(events: Iterable[Mapping[str, Any]], max_tokens: int) -> Iterator[Part]:
    """The parts. What goes wrong after the stop reason loses the usage only: the answer is complete."""
    calls, reason, usage = ToolCalls(), "", None
    try:
        for event in events:
            if "messageStop" in event:
                reason = event["messageStop"]["stopReason"]
            elif "metadata" in event:
                usage = _usage(event["metadata"])
            else:
                yield from _content(event, calls)
    except (ModelFault, ModelRejected):
        if not reason:
            raise
    if reason:
        yield _end(reason, usage, calls, max_tokens)


def _content(event: Mapping[str, Any], calls: ToolCalls) -> Iterator[TextPart]:
    """The text in an event of a content block. Its tool call goes to `calls`."""
    if "contentBlockStart" in event:
        block = event["contentBlockStart"]
        if "toolUse" in block["start"]:
            use = block["start"]["toolUse"]
            calls.add(block["contentBlockIndex"], id=use["toolUseId"], name=use["name"])
    elif "contentBlockDelta" in event:
        block = event["contentBlockDelta"]
        if "toolUse" in block["delta"]:
            calls.add(block["contentBlockIndex"], arguments=block["delta"]["toolUse"]["input"])
        elif "text" in block["delta"]:
            yield TextPart(block["delta"]["text"])


@reads_answer
def _whole(response: Mapping[str, Any], max_tokens: int) -> Iterator[Part]:
    calls = ToolCalls()
    for index, block in enumerate(response["output"]["message"]["content"]):
        if "text" in block:
            yield TextPart(block["text"])
        elif "toolUse" in block:
            use = block["toolUse"]
            calls.add(index, id=use["toolUseId"], name=use["name"], arguments=json.dumps(use["input"]))
    yield _end(response["stopReason"], _usage(response), calls, max_tokens)


def _end(reason: str, usage: Usage | None, calls: ToolCalls, max_tokens: int) -> End:
    if reason == CONTEXT_EXCEEDED:
        raise ContextOverflow("the answer reached the end of the model's context: shorten the input or max_tokens")
    if reason not in STOP_REASONS:
        raise MalformedAnswer(f"the model's answer ended with {reason}", billed=True)
    return calls.end(STOP_REASONS[reason], usage, max_tokens=max_tokens)


def _usage(fields: Mapping[str, Any]) -> Usage | None:
    match fields.get("usage"):
        case {"inputTokens": given, "outputTokens": made}:
            return usage_of(given, made)
    return None


def _fault(error: BotoCoreError | ClientError, *, billed: bool = False) -> ModelFault | ModelRejected:
    if isinstance(error, ClientError):
        details, http = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
        return classify(
            details.get("Message", ""),
            status=http.get("HTTPStatusCode"),
            codes=(details.get("Code", ""),),
            retry_after=retry_after(http.get("HTTPHeaders", {}).get("retry-after")),
            billed=billed,
        )
    if isinstance(error, ParamValidationError):
        return ModelRejected(public(str(error)))
    # A read time-out, or a connection that was closed after the request: the model may have answered.
    sent = isinstance(error, HTTPClientError)
    return ModelUnavailable(f"the provider cannot be reached: {type(error).__name__}", billed=sent)
