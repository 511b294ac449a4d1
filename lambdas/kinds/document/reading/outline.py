"""The headings of a plain text or Markdown document, found in one pass.

A heading is `# Title` (CommonMark's ATX heading) or a line of its own with a line of `=`, `-`, `*`, `~`, `^`,
`"`, `+` or `#` under it, with or without one above it (setext, reStructuredText, Sphinx's text output).
Lines longer than `MAX_TITLE` are prose, and what stands between two lines of backquotes is code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_TITLE = 200  # characters

_MARKS = '#*=-~^"+'  # outermost first; `=` and `-` are the levels of `#` and `##`
_LINE = re.compile(
    r"""\n(?: (?P<hashes>\#{1,6})[ \t]++(?P<title>[^\r\n]++)
            | (?P<fence>```)
            | (?P<mark>[\#*=~^"+-])(?P=mark){2,}+[ \t\r]*+(?=\n|\Z) )""",
    re.VERBOSE,
)
_CLOSING = re.compile(r"(?:^|[ \t])#+$")
_WORD = re.compile(r"\w")
_INK = re.compile(r"\S")


class Heading(NamedTuple):
    """Positions are offsets into the text: the heading's first character, and the first one below it.

    `top` is where the run of headings begins that stand directly above this one; `start` if there is none.
    """

    start: int
    body: int
    top: int
    level: int
    title: str


def headings(text: str) -> Iterator[Heading]:
    """The headings of `text` in order, found as they are asked for."""
    # A line feed before every line, the first included, is a literal that the search can skip to. The offset
    # of that line feed here is the offset of the line itself in `text`.
    lines = "\n" + text
    fenced, end, last = False, 0, Heading(0, -1, 0, 0, "")
    for line in _LINE.finditer(lines):
        if line.lastgroup == "fence":
            fenced = not fenced
            continue
        start, level, title = _atx(line) if line.lastgroup == "title" else _underlined(lines, line)
        if title and start >= end and not fenced:
            end = line.end()
            body = skip_white(lines, end) - 1
            last = Heading(start, body, last.top if last.body == start else start, level, title)
            yield last


def skip_white(text: str, at: int) -> int:
    """Where the white space that begins at `at` ends."""
    ink = _INK.search(text, at)
    return ink.start() if ink else len(text)


def _atx(line: re.Match[str]) -> tuple[int, int, str]:
    title = line["title"].rstrip()
    if title.endswith("#"):
        title = _CLOSING.sub("", title)
    return line.start(), len(line["hashes"]) + 1, title if len(title) <= MAX_TITLE else ""


def _underlined(lines: str, underline: re.Match[str]) -> tuple[int, int, str]:
    """Where the heading above an underline starts, its level and title: one short line with words in it.

    Above it stands nothing, or its overline. The title is empty where this is no heading.
    """
    at, mark, width = underline.start(), underline["mark"], len(underline[0].strip())
    *_, above, line = ("\n" + lines[max(0, at - 2 * MAX_TITLE) : at]).split("\n")
    overline, title = above.strip(), line.strip()
    # Markdown lets `=` and `-` be shorter than the title; a short row of anything else is decoration.
    short = width < len(title) and mark not in "=-"
    if short or overline.strip(mark) or len(line) > MAX_TITLE or not _WORD.search(title):
        return at, 0, ""
    start = at - len(line) - 1
    return start - len(above) - 1 if overline else start, _MARKS.index(mark), title
