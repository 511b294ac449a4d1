"""Words and numbers of texts in any script (kinds.agent.words)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinds.agent import words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The key's in the Cellar_2.", {"the", "key", "s", "in", "cellar", "2"}),
        ("Straße ＡＢＣ ﬁn", {"strasse", "abc", "fin"}),
        ("東京都は", {"東京", "京都", "都は"}),
        ("서울에서", {"서울", "울에", "에서"}),
        ("S3の鍵", {"s3", "の鍵"}),
        ("猫", {"猫"}),
        ("हिन्दी भाषा", {"हिन्दी", "भाषा"}),
        ("niño naïve", {"niño", "naïve"}),
        ("... — !", set()),
    ],
)
def test_words(text: str, expected: set[str]) -> None:
    """Words are compared without case and width; scripts without spaces by pairs of characters."""
    assert words.of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("From 1,000 to 1.000.000.", {"1000", "1000000"}),
        ("2,5 or 2.5, in 3.11", {"2.5", "3.11"}),
        ("Room 12, 3 May ２０２６", {"12", "3", "2026"}),
        ("none", set()),
    ],
)
def test_numbers(text: str, expected: set[str]) -> None:
    """A number is the same with any separator of thousands and decimals."""
    assert words.numbers(text) == expected


@pytest.mark.parametrize(
    ("word", "often", "expected"),
    [
        ("the", False, True),
        ("of", False, True),
        ("la", False, True),
        ("der", True, True),
        ("der", False, False),
        ("key", False, False),
        ("no", True, False),
        ("s3", True, False),
        ("42", True, False),
        ("都は", True, False),
        ("cellar", True, False),
    ],
)
def test_stop_words(word: str, often: bool, expected: bool) -> None:
    """English function words mean little, and so do short words that are short or in many sentences."""
    assert words.is_stop_word(word, sentences=5 if often else 1, of=20) is expected
    assert words.is_stop_word("der", sentences=2, of=4) is False  # of so few, a quarter says nothing


@given(st.text())
def test_a_word_has_something_to_compare(text: str) -> None:
    """A text in which `is_in` sees a word has words, and a text without has none and no number."""
    assert words.is_in(text) == bool(words.of(text))
    assert words.is_in(text) or not words.numbers(text)
