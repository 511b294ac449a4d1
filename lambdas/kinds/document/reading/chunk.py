"""Cuts a document into chunks for embedding, where a reader would.

A chunk ends before a heading if it can, else after a paragraph, a line, a sentence, a word; only a word
longer than a whole chunk is cut inside, and no character that a reader sees as one (a grapheme cluster)
ever is. Nothing but white space between chunks is left out. Time is linear in the text.
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

    `heading` is the path of headings it stands under, its own included: "Guide > Install", or "". Of a path
    longer than `MAX_HEADING` the outermost titles are left out.
    """

    text: str
    start: int
    end: int
    heading: str


def chunk(text: str, *, size: int, overlap: int) -> Iterator[Chunk]:
    """Chunks of at most `size` characters, each repeating at most `overlap` characters of the one before.

    Longer than `size` is only a chunk that is one grapheme cluster. A repetition begins where a sentence does,
    else a word, else (after a cut inside a word) anywhere; it never reaches back over a heading, and it is
    left out where a word would have to be cut to make room for it. Blank text has no chunks.

    Raises ValueError unless 0 <= overlap < size.
    """
    if not 0 <= overlap < size:
        raise ValueError(f"need 0 <= overlap < size, got overlap {overlap} and size {size}")
    return _Cutter(text, size, overlap).chunks()


class _Cutter:
    """One pass over a text. `fresh` is always where the text begins that no chunk has yet."""

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
                raise AssertionError(f"no progress at {fresh}")  # fails the job, where a loop would hang it
            yield Chunk(self.text[start:end], start, end, _title(path))
            fresh = _skip(self.text, end)
            start = self._reach_back(start, end, fresh, clean)

    def _enter(self, fresh: int) -> tuple[tuple[Heading, ...], int]:
        """The path over a chunk whose new text begins here, and the offset it must reach beyond.

        Headings that open the chunk belong to its path, and are worth nothing without what follows them.
        """
        limit = fresh + self.size
        while (not self.ahead or self.ahead[-1].start <= limit) and (heading := next(self.outline, None)):
            self.ahead.append(heading)
        while self.ahead and self.ahead[0].start <= fresh:
            self.path = _under(self.path, self.ahead.popleft())
        path, low = self.path, fresh
        for heading in chain(self.path[-1:], self.ahead):
            body = heading.body - is_joined(self.text, heading.body)  # a space that carries a mark is text
            if heading.start > low or body >= limit:
                break
            path, low = _under(path, heading), max(low, body)
        return path, low

    def _cut(self, start: int, fresh: int, low: int) -> tuple[int, int, bool]:
        """Start and end of the next chunk, and whether the end is a clean one, not inside a word."""
        for begin in dict.fromkeys((start, fresh)):
            if clean := self._clean_cut(begin, fresh, low):
                return begin, clean, True
        # A word too long for any chunk: what is repeated before a shorter one would push that over the edge.
        begin = fresh if self._word_fits(fresh) else start
        cut = last_boundary(self.text, begin, begin + self.size)
        if cut <= fresh:
            begin, cut = fresh, last_boundary(self.text, fresh, fresh + self.size)
        return begin, cut, False

    def _clean_cut(self, start: int, fresh: int, low: int) -> int | None:
        """The best place beyond `low` for a chunk from `start` to end without cutting a word, if there is one."""
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
        """Where the last of the highest-ranking sections begins that begin in `floor < start <= limit`."""
        ranks = ((h.level, -h.start) for h in self.ahead if floor < h.start <= limit and h.start == h.top)
        return -min(ranks, default=(0, 0))[1] or None

    def _keep_together(self, cut: int, low: int) -> int:
        """The place at or before `cut` that parts no heading from its body and splits no cluster."""
        while is_joined(self.text, cut):
            cut -= 1
        heading = next((h for h in reversed(self.ahead) if h.start < cut), None)
        return heading.top if heading and cut <= heading.body and heading.top > low else cut

    def _word_fits(self, at: int) -> bool:
        at = _skip(self.text, at)
        return self.stop - at <= self.size or bool(breaks.WORD_END.match(self.text, at, at + self.size + 2))

    def _reach_back(self, start: int, end: int, fresh: int, clean: bool) -> int:
        """Where the chunk after `start:end` begins: at `fresh`, or at most `overlap` before `end`."""
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
    """Past the white space at `at`, but for a space that carries a mark or belongs to what precedes it."""
    if is_joined(text, at):
        return at
    end = skip_white(text, at)
    return end - 1 if end > at and is_joined(text, end) else end


def _trim(text: str, start: int, end: int) -> int:
    """Where `text[start:end]` ends without its trailing white space."""
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
