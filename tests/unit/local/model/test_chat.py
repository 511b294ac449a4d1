"""local.model.chat: OpenAI's protocol."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from local.model.service import Service
from tests.unit.local.model.calls import CHAT, sent_events

Post = Callable[[dict[str, Any]], tuple[int, bytes]]
PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}}
SEARCH = {"type": "function", "function": {"name": "search", "parameters": PARAMETERS}}
TOOLS = {"tools": [SEARCH], "tool_choice": "required"}


def test_an_answer_is_streamed(post: Post) -> None:
    """Role, text, finish reason, and the usage in a chunk without choices, because it was asked for."""
    status, body = post({**CHAT, "stream": True, "stream_options": {"include_usage": True}})
    *chunks, usage = sent_events(body)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert status == 200
    assert choices[0]["delta"]["role"] == "assistant"
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "one two three one two three"
    assert [choice["finish_reason"] for choice in choices] == [None] * 7 + ["stop"]
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}


def test_usage_is_streamed_only_if_it_is_asked_for(post: Post) -> None:
    """As OpenAI does."""
    assert all(chunk["choices"] for chunk in sent_events(post({**CHAT, "stream": True})[1]))


def test_an_answer_that_is_not_streamed(post: Post) -> None:
    """Text, finish reason and usage."""
    answer = json.loads(post({**CHAT, "max_tokens": 2})[1])
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "one two"}
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 5


@pytest.mark.parametrize(
    "change",
    [
        {"messages": []},
        {"messages": "text"},
        {"messages": ["text"]},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"model": None},
        {"max_tokens": 0},
        {"max_completion_tokens": "many"},
        {"n": 2},
        {"tools": [{"type": "function"}]},
        {"tools": "search"},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c1"}]}]},
        {"tools": [SEARCH], "tool_choice": {"type": "function", "function": {"name": "other"}}},
    ],
)
def test_what_makes_no_sense_is_refused(post: Post, change: dict[str, Any]) -> None:
    """llama.cpp would accept most of it."""
    status, body = post({**CHAT, **change})
    assert status == 400
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_a_body_that_is_no_json(service: Service) -> None:
    """It is an error object, too."""
    response = service.handle("POST", "/v1/chat/completions", {}, b"{")
    assert response.status == 400
    assert "not JSON" in json.loads(b"".join(response.body))["error"]["message"]


def test_pages_in_a_browser_are_refused(service: Service) -> None:
    """The server behind may cost money, and browsers send requests of any page to loopback."""
    body = json.dumps(CHAT).encode()
    response = service.handle("POST", "/v1/chat/completions", {"origin": "https://example.com"}, body)
    assert response.status == 403


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called(post: Post, stream: bool) -> None:
    """The model is asked for JSON of the tool's form, and it arrives as a call."""
    body = post({**CHAT, **TOOLS, "stream": stream})[1]
    if stream:
        choices = [chunk["choices"][0] for chunk in sent_events(body)]
        calls = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
        assert [call["index"] for call in calls] == [0]
        reason = choices[-1]["finish_reason"]
    else:
        choice = json.loads(body)["choices"][0]
        calls, reason = choice["message"]["tool_calls"], choice["finish_reason"]
    assert calls[0]["function"]["name"] == "search"
    assert json.loads(calls[0]["function"]["arguments"]) == {"query": "one two three"}
    assert reason == "tool_calls"


def test_a_tool_call_that_was_cut_off_says_so(post: Post) -> None:
    """The finish reason is `length`, and the arguments are the text that there is."""
    choice = json.loads(post({**CHAT, **TOOLS, "max_tokens": 20})[1])["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"query": "one'
