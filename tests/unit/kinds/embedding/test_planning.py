"""The batches of a bulk embedding (kinds.embedding.planning)."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from kinds.embedding.planning import MAX_BATCHES, MAX_TOKENS, batches_of, tokens_of


@given(st.lists(st.integers(1, MAX_TOKENS), max_size=100), st.integers(1, 20), st.integers(1, 3 * MAX_TOKENS))
def test_limits(tokens: list[int], texts: int, most: int) -> None:
    """No batch has more texts or, unless it has one text, more tokens than allowed; no text is left out."""
    sizes = batches_of(tokens, texts=texts, most_tokens=most)
    assert sum(sizes) == len(tokens)
    for low, high in pairwise(accumulate(sizes, initial=0)):
        assert high - low <= texts
        assert high - low <= 1 or sum(tokens[low:high]) <= most
    assert (0 in sizes) == (tokens == [])


@given(st.integers(1, 3), st.integers(1, 10), st.integers(2000, 5000))
def test_never_too_many(texts: int, most: int, count: int) -> None:
    """Batches are larger than usual where there would be too many."""
    sizes = batches_of([3] * count, texts=texts, most_tokens=most)
    assert (sum(sizes), len(sizes) <= MAX_BATCHES) == (count, True)


def test_two_thousand_long_texts() -> None:
    """Long texts are limited by tokens and not by their number."""
    sizes = batches_of([MAX_TOKENS] * 2000, texts=100, most_tokens=50_000)
    assert max(sizes) == 6


def test_tokens() -> None:
    """Tokens are estimated by bytes, and no call is paid for more than the model accepts."""
    assert tokens_of("日本語") == 9
    assert tokens_of("x" * 50_000) == MAX_TOKENS
