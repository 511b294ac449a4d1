"""Boundaries of grapheme clusters (kinds.document.reading.graphemes)."""

from __future__ import annotations

import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from kinds.document.reading.graphemes import boundaries, first_boundary, is_joined, last_boundary

WELL_FORMED = [
    *[
        "a",
        "é",
        "e\u0301\u0323",
        "ñ",
        " ",
        "\n",
        "\r\n",
        "\t",
        "7",
        "。",
        "漢",
        "か\u3099",
        "ｶﾞ",
        "\u0600١",
        "\u200b",
    ],
    *["👨‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇪🇸", "🇯🇵", "1️⃣", "☺️", "🏴\U000e0067\U000e0062\U000e007f", "🧑🏿‍🚀"],
    *["한", "각", "\u1112\u1161\u11ab", "\u1100\u1100\u1161", "가\u11a8"],
    *["क्ष", "त्रि", "य", "नी", "ক্ষ", "ક્ષ", "ക്ഷ", "క్ష", "ภา", "กำ", "ไ", "ສຳ", "தமி", "ழ்"],
]
# One character of every property in the rules, so that short strings contain all pairs and most triples.
PROPERTIES = (
    "a \r\n\u00ad\u200b\u200d\u200c\u0301\ufe0f\u0600\u06dd\u0d4e\u1cf5\u094d\u09cd\u1039\u17d2\u0bcd\u0915\u0939"
    "\u0995\u1000\u1780\u093f\u0903\u09be\u0e33\u3042漢가각\u1100\u1161\u11a8\U0001f1ea\U0001f468\U0001f3fb☺©ℹ\uff9e\ud800"
)


def oracle(text: str) -> list[int]:
    return [cluster.end() for cluster in regex.finditer(r"\X", text)]


@given(st.lists(st.sampled_from(WELL_FORMED)).map("".join))
def test_well_formed_text(text: str) -> None:
    r"""The boundaries in well-formed text are those of \X over the whole text."""
    assert list(boundaries(text)) == oracle(text)


@given(st.text(PROPERTIES, max_size=12))
def test_any_text(text: str) -> None:
    r"""The boundaries in any mixture of marks and joiners are those of \X over the whole text."""
    assert list(boundaries(text)) == oracle(text)


def test_every_character() -> None:
    r"""Every character of Unicode has the boundaries of \X around it."""
    every = (*range(0x20000), *range(0xE0000, 0xE1000))  # the other planes hold ideographs and nothing
    text = "".join(f"क{chr(code)}कa" for code in every)
    assert list(boundaries(text)) == oracle(text)


def test_letters_are_separate() -> None:
    """Letters, digits and symbols are not joined with a letter before them."""
    known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c))[0] in "LNPSZ"]
    text = "".join(f"a{char}" for char in known)
    joined = {text[at] for at in set(oracle(text)) - set(boundaries(text))}
    assert joined == set()


@given(st.text(PROPERTIES, min_size=1, max_size=30), st.data())
def test_is_joined(text: str, data: st.DataObject) -> None:
    """A position for which is_joined is true is never a boundary."""
    at = data.draw(st.integers(0, len(text)))
    assert not (is_joined(text, at) and at in boundaries(text))


@given(st.lists(st.sampled_from(WELL_FORMED), min_size=1).map("".join), st.data())
def test_first_and_last_boundary(text: str, data: st.DataObject) -> None:
    """They are the nearest boundaries on either side of a position, from any start."""
    ends = oracle(text)
    start = data.draw(st.sampled_from([0, *ends[:-1]]))
    near = data.draw(st.integers(start + 1, len(text)))
    beyond = [end for end in ends if end > start]
    assert first_boundary(text, start, near) == next(end for end in beyond if end >= near)
    assert last_boundary(text, start, near) == max((end for end in beyond if end <= near), default=beyond[0])


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 128, 129, 5000])
def test_long_clusters(length: int) -> None:
    """Clusters longer than the window are found."""
    text = "ab" + "\u0301" * length + "c"
    assert last_boundary(text, 0, 2) == 1
    assert last_boundary(text, 1, 2) == 2 + length
    assert first_boundary(text, 0, 2) == 2 + length
    assert last_boundary(text, 0, len(text)) == len(text)


@pytest.mark.parametrize("pairs", range(1, 80))
def test_many_flags(pairs: int) -> None:
    """Regional indicators are paired from the first one on."""
    text = "a" + "🇪🇸" * pairs + "🇯"
    assert last_boundary(text, 0, 2 * pairs) == 2 * pairs - 1
    assert last_boundary(text, 0, 2 * pairs + 1) == 2 * pairs + 1
