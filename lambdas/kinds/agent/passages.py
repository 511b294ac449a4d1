"""What an agent has read: passages of documents, and earlier turns of its session. Both are cut to a budget."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.llm.tokens import estimate_text
from kinds.document.reading import breaks

MIN_CUT_TOKENS = 60
"""With less room than this for its text, a later passage is left out: a line of it seldom helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A chunk of a document, or its first part.

    `start` and `end` are offsets in the document's text: `text` is exactly `document_text[start:end]`.
    """

    document_id: str
    version: str
    chunk: int
    start: int
    end: int
    text: str
    heading: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A question of a session and its answer."""

    question: str
    answer: str


def fit(passages: Sequence[Passage], tokens: int) -> list[Passage]:
    """The first passages whose headings and texts have at most `tokens` of `estimate_text`.

    The one that does not fit is cut after a sentence. At least a part of the first is there: with too few tokens
    for a word, it is its first character.
    """
    return list(_fitting(passages, tokens))


def recent(turns: Sequence[Turn], tokens: int) -> list[Turn]:
    """The last turns that have at most `tokens` of `estimate_text`, oldest first. Long answers are cut."""
    kept: list[Turn] = []
    for turn in reversed(turns):
        left = tokens - estimate_text(turn.question)
        answer = _cut(turn.answer, left)
        if left <= 0 or (turn.answer and not answer):
            break
        kept.insert(0, replace(turn, answer=answer))
        tokens = left - estimate_text(answer)
    return kept


def _fitting(passages: Sequence[Passage], tokens: int) -> Iterator[Passage]:
    for n, passage in enumerate(passages):
        left = tokens - estimate_text(passage.heading)
        cost = estimate_text(passage.text)
        if cost > left:
            if part := _part(passage, left, is_first=n == 0):
                yield part
            return
        yield passage
        tokens = left - cost


def _part(passage: Passage, tokens: int, *, is_first: bool) -> Passage | None:
    """The passage's first sentences. None if they are no use, unless it is the first passage."""
    if tokens < MIN_CUT_TOKENS and not is_first:
        return None
    text = _cut(passage.text, tokens) or passage.text[:1]
    return replace(passage, text=text, end=passage.start + len(text))


def _cut(text: str, tokens: int) -> str:
    """The start of a text within `tokens`: whole sentences if they are half of what fits, else whole words."""
    if estimate_text(text) <= tokens:
        return text
    limit = bisect.bisect_right(range(len(text) + 1), tokens, key=lambda end: estimate_text(text[:end])) - 1
    if limit <= 0:
        return ""
    window = (limit // 2, limit + 1)
    found = [level.match(text, *window) for level in breaks.ENDS[:3]]
    ends = [each.end() for each in found if each]
    word = breaks.WORD_END.match(text, *window)
    end = max(ends, default=word.end() if word else limit)
    return text[:end].rstrip() or text[:limit]
