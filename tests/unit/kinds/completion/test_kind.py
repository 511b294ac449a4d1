"""The input of completions and what their submission stores (kinds.completion)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from core.dependencies import dependencies
from core.errors import InvalidRequest
from core.jobs import Inputs
from kinds.completion.kind import COMPLETION
from kinds.completion.models import CompletionInput
from tests.unit.core.memory_blobs import MemoryBlobs

MODELS = {
    "bedrock/amazon.nova-lite-v1:0": {"tokens": "20000/m"},
    "openai/gpt-4o-mini": {},
    "bedrock/somebody.own-model": {},
}
USER = {"role": "user", "content": "Hello."}
WORDS = st.text("abc {}", max_size=10)


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch) -> MemoryBlobs:
    monkeypatch.setenv("MODELS", json.dumps(MODELS))
    monkeypatch.setenv("MAX_OUTPUT_TOKENS", "1000")
    dependencies.cache_clear()
    return MemoryBlobs()


def prepare(blobs: MemoryBlobs, **given: Any) -> dict[str, Any]:
    inputs = Inputs(owner="ana", job_id="job_1", blobs=blobs, max_inline_bytes=262_144, max_upload_bytes=10**6)
    return dict(COMPLETION.prepare(CompletionInput(**given), inputs))


def refused(blobs: MemoryBlobs, **given: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        prepare(blobs, **given)
    assert blobs.objects == {}
    return caught.value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "send one of messages, prompt or template"),
        ({"prompt": "a", "template": "b"}, "send one of"),
        ({"prompt": " \n"}, "pattern"),
        ({"prompt": "a", "variables": {"x": "y"}}, "variables needs a template"),
        ({"template": "{{a}} {{b}}", "variables": {"a": "1"}}, "the template needs b"),
        ({"template": "{{a}}", "variables": {"a": "1", "c": "2"}}, "does not use c"),
        ({"template": "{{a}}", "variables": {"a": " "}}, "it is blank"),
        ({"messages": []}, "at least 1"),
        ({"messages": [{"role": "assistant", "content": "Hi."}, USER]}, "the first and the last message"),
        ({"messages": [USER, {"role": "assistant", "content": "Hi."}]}, "the first and the last message"),
        ({"messages": [{"role": "system", "content": "Be brief."}]}, "the first and the last message"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "'system', 'user' or 'assistant'"),
        ({"prompt": "a", "max_tokens": 0}, "greater than or equal to 1"),
        ({"prompt": "a", "temperature": float("nan")}, "finite"),
        ({"prompt": "a", "stop": [""]}, "at least 1"),
        ({"prompt": "a", "stop": list("abcde")}, "at most 4"),
        ({"prompt": "a", "max_cost_usd": 0}, "greater than 0"),
        ({"prompt": "a", "response_format": {"type": "json_schema"}}, "Field required"),
        ({"prompt": "a", "max_token": 5}, "Extra inputs are not permitted"),
        ({"prompt": "\ud800"}, "surrogate"),
    ],
)
def test_invalid_input(given: dict[str, Any], message: str) -> None:
    """Invalid input is refused, and the message says what to change."""
    with pytest.raises(ValidationError, match=message):
        CompletionInput(**given)


@given(a=WORDS, b=WORDS)
def test_template(a: str, b: str) -> None:
    """Placeholders are filled once: a value that looks like one stays as it is."""
    template = "x{{ a }}-{{b}}-{{a}}"
    assert CompletionInput(template=template, variables={"a": a, "b": b}).turns() == [
        {"role": "user", "content": f"x{a}-{b}-{a}"}
    ]


def test_prompts_are_files(blobs: MemoryBlobs) -> None:
    """What the caller wrote is stored in the bucket, and not in the job's row."""
    stored = prepare(blobs, prompt="A secret.", stop=["END"], response_format=schema(), temperature=0.5)
    assert "secret" not in json.dumps(stored)
    assert json.loads(blobs.objects[stored["source_key"]]) == {
        "messages": [{"role": "user", "content": "A secret."}],
        "stop": ["END"],
        "schema": {"type": "object"},
    }
    assert (stored["temperature"], stored["stream"], stored["allow_sample"]) == (0.5, True, False)


def schema() -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"type": "object"}}


def test_defaults(blobs: MemoryBlobs) -> None:
    """The first model and the deployment's longest answer are the defaults."""
    stored = prepare(blobs, prompt="Hello.")
    assert (stored["model"], stored["max_tokens"]) == ("bedrock/amazon.nova-lite-v1:0", 1000)
    assert stored["input_tokens"] >= 1


def test_unknown_model(blobs: MemoryBlobs) -> None:
    """A model that the deployment does not have is refused with those that it has."""
    error = refused(blobs, prompt="Hello.", model="bedrock/other")
    assert error.field == "input.model"
    assert all(name in str(error) for name in MODELS)


def test_long_answer(blobs: MemoryBlobs) -> None:
    """A longer answer than the deployment allows is refused."""
    assert refused(blobs, prompt="Hello.", max_tokens=1001).field == "input.max_tokens"


def test_tokens_above_the_rate_limit(blobs: MemoryBlobs) -> None:
    """A call that is larger than the token limit could never run, so it is refused."""
    error = refused(blobs, prompt="word " * 20_000)
    assert error.field == "input.max_tokens"
    assert "20000" in str(error)


def test_temperature_of_bedrock(blobs: MemoryBlobs) -> None:
    """Bedrock takes temperatures up to 1, others up to 2."""
    assert refused(blobs, prompt="Hello.", temperature=1.5).field == "input.temperature"
    assert prepare(blobs, prompt="Hello.", temperature=1.5, model="openai/gpt-4o-mini")["temperature"] == 1.5


def test_max_cost(blobs: MemoryBlobs) -> None:
    """A job that could cost more than max_cost_usd is refused before anything is stored or spent."""
    error = refused(blobs, prompt="Hello.", max_cost_usd=1e-9)
    assert error.field == "input.max_cost_usd"
    assert "Nothing was spent" in str(error)
    assert prepare(blobs, prompt="Hello.", max_cost_usd=1)


def test_max_cost_without_price(blobs: MemoryBlobs) -> None:
    """A limit of cost cannot hold for a model without a price, so it is refused."""
    error = refused(blobs, prompt="Hello.", max_cost_usd=1, model="bedrock/somebody.own-model")
    assert error.field == "input.max_cost_usd"
