"""Cuts a text into parts, each small enough for one call of a model, and shortens what models write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from core.errors import DocumentTooLarge
from core.llm.tokens import estimate_text
from kinds.document.reading import breaks

# Each part takes 8 events of an execution's history, which has at most 25,000:
# https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
MAX_PARTS = 400
MAX_PART_TOKENS = 100_000
"""What models with a context of 128,000 tokens have room for."""

GROWTH = 1.25
_WORD = re.compile(r"\S+")


def parts_of(text: str, usual: int) -> tuple[int, list[str]]:
    """(tokens of a part at most, the parts without blank ones): `usual`, or more if there would be too many.

    Raises DocumentTooLarge if the parts would be larger than MAX_PART_TOKENS.
    """
    size = max(usual, -(-estimate_text(text) // MAX_PARTS))
    while size <= MAX_PART_TOKENS:
        parts = [part for part in cut(text, size) if part.strip()]
        if len(parts) <= MAX_PARTS:
            return size, parts
        size = int(size * GROWTH) + 1
    raise DocumentTooLarge(
        f"The text has about {estimate_text(text)} tokens. A summary reads at most {MAX_PARTS} parts of "
        f"{MAX_PART_TOKENS} tokens. Split the document."
    )


def cut(text: str, size: int) -> Iterator[str]:
    """Pieces of at most `size` tokens, which joined give the text.

    A piece ends after a paragraph if one ends in its second half, else after a line, a sentence or a word.
    """
    start = 0
    while start < len(text):
        limit = _reach(text, start, size)
        end = limit if limit == len(text) else _border(text, start, limit)
        yield text[start:end]
        start = end


def _reach(text: str, start: int, size: int) -> int:
    """About the largest end of a piece of at most `size` tokens; at least one character."""

    def fits(end: int) -> bool:
        return estimate_text(text[start:end]) <= size

    low, high = start + 1, start + 1 + size
    while high < len(text) and fits(high):
        low, high = high, high + size
    high = min(high, len(text))
    if fits(high):
        return high
    while high - low > max(1, size // 64):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _border(text: str, start: int, limit: int) -> int:
    """The best end in the second half of `text[start:limit]`, else `limit`."""
    half = (start + limit) // 2
    for level in (*breaks.ENDS, breaks.WORD_END):
        found = level.match(text, half, limit + 1)
        if found and found.end() > half:
            return found.end()
    return limit


def groups_of(texts: Sequence[str], size: int) -> list[list[str]]:
    """The texts in order, in groups that `joined` makes texts of at most `size` tokens of."""
    groups: list[list[str]] = []
    for text in texts:
        if groups and estimate_text(joined([*groups[-1], text])) <= size:
            groups[-1].append(text)
        else:
            groups.append([text])
    return groups


def joined(texts: Sequence[str]) -> str:
    return "\n\n".join(texts)


def to_tokens(text: str, limit: int) -> str:
    """The text, or its whole sentences and lines within `limit` tokens."""
    return text if estimate_text(text) <= limit else whole_sentences(text[: _reach(text, 0, limit)])


def to_words(text: str, limit: int) -> str:
    """The text, or its whole sentences and lines within `limit` words, which white space separates."""
    words = list(_WORD.finditer(text))
    return text if len(words) <= limit else whole_sentences(text[: words[limit - 1].end()])


def whole_sentences(text: str) -> str:
    """The text up to its last end of a sentence or line, or all of it if there is none."""
    followed = f"{text} X"  # a sentence ends before white space
    ends = (level.match(followed) for level in breaks.ENDS[:3])
    return text[: max((found.end() for found in ends if found), default=len(text))].rstrip()
