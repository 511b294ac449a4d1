"""Cuts a document into chunks for embedding.

A chunk ends before a heading if possible, else after a paragraph, a line, a sentence or a word. Only a word
longer than a whole chunk is cut, and a grapheme cluster is never cut. Only white space between chunks is omitted.
The time is linear in the length of the text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from kinds.document.reading import breaks
from kinds.document.reading.graphemes import first_boundary, is_joined, last_boundary
from kinds.document.reading.outline import Heading, headings, skip_white

MAX_HEADING = 240  # characters of a heading path


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage: `text` is the document's `[start:end]`, in characters.

    `heading`: the path of its headings, such as "Guide > Install", or "". If the path is longer than MAX_HEADING,
    the outermost titles are omitted.
    """

    text: str
    start: int
    end: int
    heading: str


def chunk(text: str, *, size: int, overlap: int) -> Iterator[Chunk]:
    """Chunks of at most `size` characters, each repeating at most `overlap` characters of the one before.

    A chunk is longer than `size` only if it is a single grapheme cluster. A repetition begins with a sentence,
    else with a word, else (after a cut inside a word) anywhere. It contains no heading, and is omitted if a word
    would have to be cut for it. Blank text has no chunks.

    Raises ValueError unless 0 <= overlap < size.
    """
    if not 0 <= overlap < size:
        raise ValueError(f"need 0 <= overlap < size, got overlap {overlap} and size {size}")
    return _Cutter(text, size, overlap).chunks()


class _Cutter:
    """One pass over a text. `fresh`: where the text begins that no chunk contains yet."""

    def __init__(self, text: str, size: int, overlap: int) -> None:
        self.text, self.size, self.overlap = text, size, overlap
        self.stop = _trim(text, 0, len(text))
        self.outline = headings(text)
        self.path: tuple[Heading, ...] = ()  # over `fresh`
        self.ahead: deque[Heading] = deque()  # within a chunk's reach of it

    def chunks(self) -> Iterator[Chunk]:
        start = fresh = _skip(self.text, 0)
        while fresh < self.stop:
            path, low = self._enter(fresh)
            start, cut, clean = self._cut(start, fresh, low)
            end = _trim(self.text, start, cut)
            if end <= fresh:
                raise AssertionError(f"no progress at {fresh}")  # instead of an endless loop
            yield Chunk(self.text[start:end], start, end, _title(path))
            fresh = _skip(self.text, end)
            start = self._reach_back(start, end, fresh, clean)

    def _enter(self, fresh: int) -> tuple[tuple[Heading, ...], int]:
        """The path of a chunk whose new text begins at `fresh`, and the offset that its end must exceed.

        Headings at the start of the chunk belong to its path, and the chunk must contain text after them.
        """
        limit = fresh + self.size
        while (not self.ahead or self.ahead[-1].start <= limit) and (heading := next(self.outline, None)):
            self.ahead.append(heading)
        while self.ahead and self.ahead[0].start <= fresh:
            self.path = _under(self.path, self.ahead.popleft())
        path, low = self.path, fresh
        for heading in chain(self.path[-1:], self.ahead):
            body = heading.body - is_joined(self.text, heading.body)  # a space with a combining mark is text
            if heading.start > low or body >= limit:
                break
            path, low = _under(path, heading), max(low, body)
        return path, low

    def _cut(self, start: int, fresh: int, low: int) -> tuple[int, int, bool]:
        """Start and end of the next chunk, and whether the end is clean, which is not inside a word."""
        for begin in dict.fromkeys((start, fresh)):
            if clean := self._clean_cut(begin, fresh, low):
                return begin, clean, True
        # The word is too long for a chunk. Without the repetition a shorter word may fit.
        begin = fresh if self._word_fits(fresh) else start
        cut = last_boundary(self.text, begin, begin + self.size)
        if cut <= fresh:
            begin, cut = fresh, last_boundary(self.text, fresh, fresh + self.size)
        return begin, cut, False

    def _clean_cut(self, start: int, fresh: int, low: int) -> int | None:
        """The best end after `low` of a chunk from `start` that cuts no word, if there is one."""
        limit = start + self.size
        if self.stop <= limit:
            return self.stop
        if section := self._section(max(low, start + self.size // 4), limit):
            return section
        half = max(low, start + self.size // 2)
        window = _skip(self.text, limit) + 1
        for level, floor in (*((level, half) for level in breaks.ENDS), (breaks.WORD_END, low)):
            found = level.match(self.text, floor, window)
            cut = self._keep_together(found.end(), low) if found else low
            if cut > low and (cut >= half or self._word_fits(cut)):
                return cut
        return low if fresh < low <= limit and self._word_fits(low) else None

    def _section(self, floor: int, limit: int) -> int | None:
        """The start of the last section of the highest level that begins in `floor < start <= limit`."""
        ranks = ((h.level, -h.start) for h in self.ahead if floor < h.start <= limit and h.start == h.top)
        return -min(ranks, default=(0, 0))[1] or None

    def _keep_together(self, cut: int, low: int) -> int:
        """The last place up to `cut` that separates no heading from its body and splits no cluster."""
        while is_joined(self.text, cut):
            cut -= 1
        heading = next((h for h in reversed(self.ahead) if h.start < cut), None)
        return heading.top if heading and cut <= heading.body and heading.top > low else cut

    def _word_fits(self, at: int) -> bool:
        at = _skip(self.text, at)
        return self.stop - at <= self.size or bool(breaks.WORD_END.match(self.text, at, at + self.size + 2))

    def _reach_back(self, start: int, end: int, fresh: int, clean: bool) -> int:
        """The start of the chunk after `start:end`: `fresh`, or at most `overlap` before `end`."""
        target = max(end - self.overlap, start + 1)
        for heading in reversed(self.ahead):
            if target <= heading.start <= fresh:
                return heading.start
        for opening in breaks.STARTS:
            for found in opening.finditer(self.text, max(target - 2, 0), end):
                at = _skip(self.text, found.end())
                if target <= at < end and not is_joined(self.text, at):
                    return at
        return fresh if clean else _skip(self.text, first_boundary(self.text, start, target))


def _skip(text: str, at: int) -> int:
    """The end of the white space at `at`. A space in a grapheme cluster with other characters is not skipped."""
    if is_joined(text, at):
        return at
    end = skip_white(text, at)
    return end - 1 if end > at and is_joined(text, end) else end


def _trim(text: str, start: int, end: int) -> int:
    """The end of `text[start:end]` without trailing white space."""
    end = start + len(text[start:end].rstrip())
    return end + is_joined(text, end)


def _under(path: tuple[Heading, ...], heading: Heading) -> tuple[Heading, ...]:
    while path and path[-1].level >= heading.level:
        path = path[:-1]
    return (*path, heading)


def _title(path: tuple[Heading, ...]) -> str:
    title = " > ".join(heading.title for heading in path)
    while len(title) > MAX_HEADING:
        title = title.partition(" > ")[2]
    return title
