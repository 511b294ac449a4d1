"""Finds the headings of a plain text or Markdown document in one pass.

A heading is `# Title` (ATX heading of CommonMark), or a line with a line of `=`, `-`, `*`, `~`, `^`, `"`, `+` or
`#` below it, and optionally above it (setext, reStructuredText, Sphinx's text output). Lines longer than
`MAX_TITLE` are prose, and lines between two lines of backquotes are code.
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
_NOT_SPACE = re.compile(r"\S")


class Heading(NamedTuple):
    """`start` and `body`: the offsets of the heading's first character, and of the first one below it.

    `top`: where the headings directly above this one begin; `start` if there are none.
    """

    start: int
    body: int
    top: int
    level: int
    title: str


def headings(text: str) -> Iterator[Heading]:
    """The headings of `text` in order. A generator: it reads on only when the next heading is needed."""
    # With a line feed before every line, the pattern begins with a literal, which is fast to find. The offset of
    # that line feed in `lines` is the offset of the line in `text`.
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
    """The end of the white space that begins at `at`."""
    found = _NOT_SPACE.search(text, at)
    return found.start() if found else len(text)


def _atx(line: re.Match[str]) -> tuple[int, int, str]:
    title = line["title"].rstrip()
    if title.endswith("#"):
        title = _CLOSING.sub("", title)
    return line.start(), len(line["hashes"]) + 1, title if len(title) <= MAX_TITLE else ""


def _underlined(lines: str, underline: re.Match[str]) -> tuple[int, int, str]:
    """(start, level, title) of the heading above an underline: one short line with words in it.

    The line above it is blank or its overline. The title is empty if it is not a heading.
    """
    at, mark, width = underline.start(), underline["mark"], len(underline[0].strip())
    *_, above, line = ("\n" + lines[max(0, at - 2 * MAX_TITLE) : at]).split("\n")
    overline, title = above.strip(), line.strip()
    # In Markdown, `=` and `-` can be shorter than the title. A short line of other marks is decoration.
    short = width < len(title) and mark not in "=-"
    if short or overline.strip(mark) or len(line) > MAX_TITLE or not _WORD.search(title):
        return at, 0, ""
    start = at - len(line) - 1
    return start - len(above) - 1 if overline else start, _MARKS.index(mark), title
