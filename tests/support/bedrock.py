"""Fakes of models in Amazon Bedrock, which moto lacks: one that embeds, and one that answers."""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import ClientError
from botocore.response import StreamingBody

from local.model.customization import EXCEPTIONS, Customizations
from local.model.events import ProviderError
from tests.simulated_cloud.functions import ACCOUNT, REGION

TITAN = "amazon.titan-embed-text-v2:0"


def embedding(text: str, dimensions: int) -> list[float]:
    """A unit vector that depends on the text only. The vectors of different texts are nearly orthogonal."""
    chance = random.Random(hashlib.sha256(text.encode()).digest())
    values = [chance.gauss(0, 1) for _ in range(dimensions)]
    length = math.hypot(*values)
    return [value / length for value in values]


def invoke_model(params: dict[str, Any]) -> dict[str, Any]:
    """The response of Titan Text Embeddings V2 to `bedrock-runtime:InvokeModel`."""
    if params["modelId"] != TITAN:
        raise NotImplementedError(f"model {params['modelId']}")
    body = json.loads(params["body"])
    vector = embedding(body["inputText"], body.get("dimensions", 1024))
    tokens = max(1, len(body["inputText"]) // 4)
    answer = {"embedding": vector, "embeddingsByType": {"float": vector}, "inputTextTokenCount": tokens}
    raw = json.dumps(answer).encode()
    return {"contentType": "application/json", "body": StreamingBody(io.BytesIO(raw), len(raw))}


def answer_to(params: dict[str, Any]) -> str:
    """What the fake model says: the last words of the prompt."""
    last = params["messages"][-1]["content"][-1]["text"]
    return f"You said: {' '.join(last.split()[-12:])}"


def usage(params: dict[str, Any], text: str) -> dict[str, int]:
    """A token is a word."""
    given = len(json.dumps(params["messages"]).split())
    return {"inputTokens": given, "outputTokens": len(text.split()), "totalTokens": given + len(text.split())}


def stop_reason(params: dict[str, Any], text: str) -> str:
    return "max_tokens" if len(text.split()) > params["inferenceConfig"]["maxTokens"] else "end_turn"


def converse(params: dict[str, Any]) -> dict[str, Any]:
    """The response to `bedrock-runtime:Converse`."""
    text = answer_to(params)
    return {
        "output": {"message": {"role": "assistant", "content": [{"text": text}]}},
        "stopReason": stop_reason(params, text),
        "usage": usage(params, text),
        "metrics": {"latencyMs": 1},
    }


def converse_stream(params: dict[str, Any]) -> dict[str, Any]:
    """The response to `bedrock-runtime:ConverseStream`."""
    return {"stream": Stream(stream_events(params))}


def stream_events(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Words of an answer; or of tools, the call of the last one, which an agent has for its answer."""
    if "toolConfig" in params:
        return tool_events(params, params["toolConfig"]["tools"][-1]["toolSpec"]["name"], {})
    text = answer_to(params)
    words = [f"{word} " for word in text.split(" ")]
    words[-1] = words[-1].rstrip()
    deltas = [{"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": word}}} for word in words]
    return [
        {"messageStart": {"role": "assistant"}},
        *deltas,
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": stop_reason(params, text)}},
        {"metadata": {"usage": usage(params, text), "metrics": {"latencyMs": 1}}},
    ]


def tool_events(
    params: dict[str, Any], name: str, given: dict[str, Any], *, thought: str = ""
) -> list[dict[str, Any]]:
    """The call of a tool, perhaps after a text."""
    text = [{"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": thought}}}] if thought else []
    start = {"toolUse": {"toolUseId": "t1", "name": name}}
    return [
        {"messageStart": {"role": "assistant"}},
        *text,
        {"contentBlockStart": {"contentBlockIndex": 1, "start": start}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": json.dumps(given)}}}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": usage(params, thought), "metrics": {"latencyMs": 1}}},
    ]


class Stream:
    """Stands in for botocore's EventStream: an event may be an exception, which is raised, or a function."""

    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for event in self._events:
            if isinstance(event, BaseException):
                raise event
            if callable(event):
                event()
            else:
                yield event

    def close(self) -> None:
        """The answer is not read further."""


class Customization:
    """Amazon Bedrock's customization jobs: moto's stay in progress for ever."""

    def __init__(self) -> None:
        self.jobs = Customizations(account=f"{REGION}:{ACCOUNT}")

    def answers(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        return {
            "bedrock:CreateModelCustomizationJob": self._answer(self.jobs.create),
            "bedrock:GetModelCustomizationJob": self._answer(self.jobs.get),
            "bedrock:StopModelCustomizationJob": self._answer(self.jobs.stop),
        }

    def _answer(self, operation: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def answer(params: dict[str, Any]) -> dict[str, Any]:
            try:
                return operation(params)
            except ProviderError as failure:
                error = {"Code": EXCEPTIONS[failure.status], "Message": str(failure)}
                raise ClientError({"Error": error}, operation.__name__) from None

        return answer


CUSTOMIZATION = Customization()
ANSWERS = {
    **CUSTOMIZATION.answers(),
    "bedrock-runtime:InvokeModel": invoke_model,
    "bedrock-runtime:Converse": converse,
    "bedrock-runtime:ConverseStream": converse_stream,
}
"""What the simulated cloud answers instead of moto."""
