r"""Boundaries of grapheme clusters, which readers see as one character.

`\X` of the package `regex` matches an extended grapheme cluster (Unicode Standard Annex 29). To find a boundary
far into a text, the search starts at a nearby boundary that two characters alone determine.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex  # type: ignore[import-untyped]

_CLUSTER = regex.compile(r"\X")
# Before a character of the class Other, only prepended, extending and joining characters prevent a boundary. The
# pattern is matched backwards (?r), so it finds the last such boundary.
_CERTAIN = regex.compile(r"(?r)(?<=[^\p{GCB=Prepend}\p{GCB=Extend}\p{GCB=ZWJ}])(?=\p{GCB=Other})")
_REGIONAL_INDICATOR = regex.compile(r"\p{GCB=Regional_Indicator}")
_WINDOW = 32  # characters. A longer cluster is matched again in a window twice as long.


def is_joined(text: str, at: int) -> bool:
    """Whether the two characters around `at` alone show that it is not a boundary.

    Two regional indicators do not: a flag has two, so it depends on the number of those before.
    """
    pair = text[at - 1 : at + 1] if at > 0 else ""
    if pair.isascii():  # the most frequent case
        return pair == "\r\n"
    joined = len(pair) == 2 and _CLUSTER.fullmatch(pair) is not None
    return joined and not _REGIONAL_INDICATOR.match(pair)


def last_boundary(text: str, start: int, limit: int) -> int:
    """The last boundary in `start < b <= limit`, or the end of the first cluster if that is longer.

    `start` is a boundary itself.
    """
    last = 0
    for at in boundaries(text, start, limit):
        if at >= limit:
            return last if last and at > limit else at
        last = at
    return last


def first_boundary(text: str, start: int, target: int) -> int:
    """The first boundary at or after `target`. `start` is a boundary before it."""
    return next((at for at in boundaries(text, start, target) if at >= target), len(text))


def boundaries(text: str, start: int = 0, near: int = 0) -> Iterator[int]:
    """The boundaries after `start`, a boundary itself, in order. Those far before `near` may be omitted."""
    certain = _CERTAIN.search(text, max(start, near - _WINDOW) + 1, near + 1)
    at = certain.start() if certain else start
    if at > start:
        yield at
    size = _WINDOW
    while at < len(text):
        base = at
        ends = [cluster.end() for cluster in _CLUSTER.finditer(text[base : base + size])]
        if base + size < len(text):
            ends.pop()  # the last cluster may continue after the window
        for end in ends:
            at = base + end
            yield at
        size = _WINDOW if ends else 2 * size
