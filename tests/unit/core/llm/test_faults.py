"""Errors of providers: what a message says, and what an owner may see of it."""

from __future__ import annotations

from email.utils import formatdate

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from core.llm.faults import MAX_MESSAGE, is_overflow, public, retry_after

NOW = 1_796_000_000

TOO_LONG = [
    # Bedrock
    "Input is too long for requested model.",
    "The model returned the following errors: Input is too long for requested model.",
    "The model returned the following errors: prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or "
    "`max_tokens` and try again",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
    "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 11234",
    "This model's maximum context length is 8192 tokens. Please reduce the length of the prompt",
    # OpenAI
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the "
    "messages, 1000 in the completion). Please reduce the length of the messages or completion.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    # llama.cpp, Ollama
    "the request exceeds the available context size, try increasing it",
    "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "the input length exceeds the context length",
    # vLLM
    "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 "
    "tokens and your request has 20 input tokens (5000 > 4096 - 20).",
    "You passed 5000 input tokens and requested 1 output tokens. However, the model's context length is only 4096 "
    "tokens, resulting in a maximum input length of 4095 tokens. Please reduce the length of the input prompt.",
    # TGI, SGLang, others
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and "
    "512 `max_new_tokens`",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "The input (12345 tokens) is longer than the model's context length (8192 tokens).",
    "Requested token count exceeds the model's maximum context length of 8192 tokens.",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
]
SOMETHING_ELSE = [
    "max_tokens must be less than or equal to 8192",
    "max_tokens must be ≤ 4096",
    "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5",
    "max_tokens is too large: 50000. This model supports at most 16384 completion tokens, whereas you "
    "provided 50000.",
    "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that "
    "is lower than 4096.",
    "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the "
    "`context_window` for this model",
    "max_tokens or max_completion_tokens can not exceed the context window of 4096",
    "temperature: range: 0..1",
    "Invocation of model ID some.model with on-demand throughput isn't supported.",
    "The provided model identifier is invalid.",
    "messages: text content blocks must be non-empty",
    "Stop sequences are too long",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_messages_about_the_input(message: str) -> None:
    """The input alone, or with the answer that was asked for, is longer than the context."""
    assert is_overflow(message)


@pytest.mark.parametrize("message", SOMETHING_ELSE)
def test_messages_about_something_else(message: str) -> None:
    """A shorter input would not help."""
    assert not is_overflow(message)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("on resource: arn:aws:bedrock:eu-west-1:123456789012:inference-profile/x, no", "on resource: [arn], no"),
        ("arn:aws-us-gov:iam::123456789012:role/Worker", "[arn]"),
        ("account 123456789012 is blocked", "account [account] is blocked"),
        ("1234567890123 tokens", "1234567890123 tokens"),
        ("Incorrect API key provided: sk-proj-ab**cd. You", "Incorrect API key provided: [key] You"),
        ("", "the provider gave no reason"),
        ("a" * 1000, "a" * MAX_MESSAGE),
    ],
)
def test_what_an_owner_sees(message: str, shown: str) -> None:
    """ARNs, account ids and keys are the operator's. Numbers of other lengths stay."""
    assert public(message) == shown


@time_machine.travel(NOW, tick=False)
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("1.5", 1.5),
        (formatdate(NOW + 5, usegmt=True), 5),
        (formatdate(NOW + 5, localtime=False), 5),
        (formatdate(NOW - 5, usegmt=True), None),
        *(
            (nonsense, None)
            for nonsense in (None, "", "-1", "nan", "inf", "soon", "Mon, 99 Foo 2026 00:00:00 GMT")
        ),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    """Seconds and dates ahead are understood, and everything else is ignored."""
    assert retry_after(text) == seconds


@given(st.text())
def test_any_retry_after_is_harmless(text: str) -> None:
    """A header of any text is a number of seconds or nothing."""
    seconds = retry_after(text)
    assert seconds is None or 0 <= seconds < float("inf")
