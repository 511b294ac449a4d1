"""Cutting texts into parts, and shortening what models write (kinds.summary.parts)."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.errors import DocumentTooLarge
from core.llm.tokens import estimate_text
from kinds.summary import parts
from kinds.summary.parts import MAX_PARTS, cut, groups_of, joined, parts_of, to_tokens, to_words, whole_sentences

MIN_TOKENS = 8  # more than one character has, whatever the estimate of tokens is
words = st.sampled_from(["One.", "two", "Three?", "ñandú", "日本語の文。", "👩‍👩‍👧", "- item", "x" * 90])
white = st.sampled_from([" ", "\n", "\n\n", "", "\n \n", " " * 60])
texts = st.lists(st.tuples(words, white), max_size=80).map(lambda pairs: "".join(a + b for a, b in pairs))


@given(texts, st.integers(MIN_TOKENS, 200))
def test_cut(text: str, size: int) -> None:
    """Pieces are not empty, have at most `size` tokens, and joined give the text."""
    pieces = list(cut(text, size))
    assert "".join(pieces) == text
    assert all(piece and estimate_text(piece) <= size for piece in pieces)


@given(texts, st.integers(MIN_TOKENS, 60))
def test_parts(text: str, usual: int) -> None:
    """There are at most 400 parts, none blank, which have all words of the text."""
    size, found = parts_of(text * 20, usual)
    assert size >= usual
    assert len(found) <= MAX_PARTS
    assert all(part.strip() and estimate_text(part) <= size for part in found)
    assert "".join("".join(found).split()) == "".join((text * 20).split())


def test_border() -> None:
    """A part ends after a paragraph, else after a line, a sentence or a word."""
    sentence = "These are five words here. "
    size = estimate_text(sentence * 8)
    for border in ("\n\n", "\n"):
        text = sentence * 6 + border + sentence * 40
        assert next(cut(text, size)) == sentence * 6 + border
    assert next(cut(sentence * 40, size)).endswith("here.")
    assert next(cut("word " * 400, size)).endswith("word ")


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text whose parts would be too large for any model is refused, and the message says how large it may be."""
    monkeypatch.setattr(parts, "MAX_PART_TOKENS", 20)
    with pytest.raises(DocumentTooLarge, match="at most 400 parts of 20 tokens"):
        parts_of("word " * 20_000, 10)


@given(st.lists(texts.filter(bool), max_size=30), st.integers(200, 600))
def test_groups(found: list[str], size: int) -> None:
    """Groups keep the order and all texts, and fit into `size` if each text does."""
    assume(all(estimate_text(text) <= size for text in found))
    groups = groups_of(found, size)
    assert [text for group in groups for text in group] == found
    assert all(estimate_text(joined(group)) <= size for group in groups)


@given(texts, st.integers(1, 60))
def test_limit_of_words(text: str, limit: int) -> None:
    """A shortened text is the beginning of the text, with at most so many words, and not empty."""
    short = to_words(text, limit)
    assert text.startswith(short)
    assert len(short.split()) <= limit
    assert bool(short.strip()) == bool(text.strip())


@given(texts, st.integers(MIN_TOKENS, 60))
def test_limit_of_tokens(text: str, limit: int) -> None:
    """A shortened text is the beginning of the text, with at most so many tokens."""
    short = to_tokens(text, limit)
    assert text.startswith(short)
    assert estimate_text(short) <= limit


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("One. Two is cut in the mid", "One."),
        ("One. Dr. Who is cut", "One."),
        ("- one\n- two\n- thr", "- one\n- two"),
        ("No end at all", "No end at all"),
        ("It ends here.", "It ends here."),
        ("短い文。途中で切れ", "短い文。"),
    ],
)
def test_whole_sentences(text: str, whole: str) -> None:
    """What is cut off inside a sentence or line ends with the one before."""
    assert whole_sentences(text) == whole
