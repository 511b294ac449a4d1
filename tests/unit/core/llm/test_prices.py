"""Estimates of tokens, and prices."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.llm.prices import PRICES, cost, training_cost
from core.llm.provider import Message, Usage
from core.llm.tokens import TOKENS_PER_MESSAGE, estimate_input, estimate_text
from tests.unit.core.llm.samples import ASKED, CALLED, READ, RESULT, SEARCH, request

MILLION = Usage(1_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("model", "usage", "usd"),
    [
        ("bedrock/amazon.nova-lite-v1:0", MILLION, 0.30),
        ("bedrock/amazon.nova-micro-v1:0", Usage(1, 0), 0.000000035),
        ("bedrock/amazon.nova-pro-v1:0", Usage(1000, 100), 0.00112),
        ("openai/gpt-4o-mini", MILLION, 0.75),
        ("bedrock/smollm2-135m-instruct", MILLION, 0),
        ("openai/gpt-4o-mini", Usage(0, 0), 0),
    ],
)
def test_cost(model: str, usage: Usage, usd: float) -> None:
    """The price of the model, for input and output."""
    assert cost(model, usage) == usd


@pytest.mark.parametrize("prefix", ["us", "eu", "apac", "global", "us-gov", "jp", "au"])
def test_profiles_cost_what_their_model_costs(prefix: str) -> None:
    """The prefix of an inference profile is ignored if the profile has no price of its own."""
    assert cost(f"bedrock/{prefix}.amazon.nova-lite-v1:0", MILLION) == 0.30


def test_a_profile_with_its_own_price() -> None:
    """Newer models of Anthropic cost 10 % more in one geography than worldwide."""
    model = "anthropic.claude-haiku-4-5-20251001-v1:0"
    worldwide, europe = (cost(f"bedrock/{prefix}.{model}", MILLION) for prefix in ("global", "eu"))
    assert (worldwide, europe) == (6.0, 6.6)


@pytest.mark.parametrize("model", ["openai/some-model", "bedrock/eu.some.model-v1:0", "openai/eu.gpt-4o-mini"])
def test_an_unknown_price_is_none(model: str) -> None:
    """It is not zero."""
    assert cost(model, MILLION) is None


@pytest.mark.parametrize(
    ("model", "usd"),
    [("amazon.nova-lite-v1:0", 2), ("amazon.nova-lite-v1:0:300k", 2), ("amazon.nova-lite-v2:0", None)],
)
def test_training(model: str, usd: float | None) -> None:
    """Training costs by token, whatever the context length in the model's id. An unknown price is None."""
    assert training_cost(model, 1_000_000) == usd


def test_the_prices_are_dated_and_sane() -> None:
    """The file has its date and sources. Output never costs less than input, but that embedding has none."""
    file = json.loads(PRICES.read_text())
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", file["as_of"])
    assert all(source.startswith("https://") for source in file["sources"])
    for name, price in file["usd_per_million_tokens"].items():
        assert name.split("/")[0] in ("bedrock", "openai", "local")
        assert 0 <= price["input"] <= 100
        assert price["input"] <= price["output"] <= 100 or ("embed" in name and price["output"] == 0)


@given(st.text())
def test_an_estimate_is_at_most_the_bytes(text: str) -> None:
    """A byte-level tokenizer makes no more tokens. Only lower-case ASCII letters and spaces count less."""
    size = len(text.encode())
    assert -(-3 * size // 5) <= estimate_text(text) <= size


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A city council meeting on Monday will discuss the new tram line.", 13),
        ("吾輩は猫である。名前はまだ無い。", 29),
        ("市议会星期一开会讨论新的电车线路。", 31),
        ("시의회는 월요일에 새 트램 노선을 논의한다.", 49),
        ("Городской совет обсудит новую трамвайную линию.", 34),
        ("سيناقش مجلس المدينة خط الترام الجديد.", 34),
        ("😀🎉👩\u200d👩\u200d👧\u200d👦🇪🇸", 30),
        ("3.14159265358979323846", 22),
        ('def f(x: int) -> dict[str, Any]:\n    return {"x": x}', 21),
        ("z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==", 71),
        ("<|endoftext|><|im_start|>", 2),
    ],
)
def test_estimates_of_counted_texts(text: str, tokens: int) -> None:
    """No estimate is below what SmolLM2's tokenizer makes. Special tokens are text like any other."""
    assert estimate_text(text) >= tokens


def test_lone_surrogates_have_an_estimate() -> None:
    """They have no UTF-8, but an estimate does not fail."""
    assert estimate_text("\ud83d") == 3


def test_everything_that_is_sent_counts() -> None:
    """Messages, calls, tools and the schema, and what the template puts around each."""
    plain = request()
    assert estimate_input(plain) == estimate_text(ASKED.content) + 2 * TOKENS_PER_MESSAGE
    variants = [
        request(messages=[*plain.messages, Message(role="user", content="")]),
        request(messages=[ASKED, CALLED, RESULT]),
        request(tools=[SEARCH, READ]),
        request(schema={"type": "object"}),
    ]
    assert all(estimate_input(variant) > estimate_input(plain) for variant in variants)
